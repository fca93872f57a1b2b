#pragma once
// Collects what all users of one repeat did.
//
// Thread-safe. Rows appear in the order of their first operation. Before the window begins nothing
// is measured, but failures are kept as events and corruptions count.

#include <map>
#include <string>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "bench/outcome.h"
#include "bench/result.h"

namespace torpor::bench {

class Recorder {
 public:
  explicit Recorder(Clock* clock) : clock_(clock) {}

  // A second window starts the counts of cycles anew; rows keep what they have.
  void BeginWindow(Duration duration) EXCLUDES(mu_);
  // Ends the window now.
  void EndWindow() EXCLUDES(mu_);
  // Put before the name of every row from now on.
  void SetPrefix(const std::string& prefix) EXCLUDES(mu_);
  // Since the window began; zero before.
  Duration Elapsed() const EXCLUDES(mu_);
  // True from BeginWindow until its duration has passed.
  bool InWindow() const EXCLUDES(mu_);
  bool WindowOver() const EXCLUDES(mu_);

  // `always`: also outside the window, as for what happens once in an actor's life.
  void Add(const std::string& row, const Outcome& outcome, bool always = false) EXCLUDES(mu_);
  // A series that was measured elsewhere in the window.
  void AddAll(const std::string& row, const std::vector<double>& ms, int64_t failures,
              int64_t unexplained, const std::string& first_failure) EXCLUDES(mu_);
  // Share of the requests that the driver itself sent too late.
  void SetDriverLate(double share) EXCLUDES(mu_);
  // A hibernation followed by a resume; `hibernated` is when the first ended.
  void AddCycle(MonotonicTime hibernated) EXCLUDES(mu_);
  void AddReplaced() EXCLUDES(mu_);
  void AddCrashed() EXCLUDES(mu_);
  void AddFigure(Figure figure) EXCLUDES(mu_);
  void AddEvent(const std::string& text) EXCLUDES(mu_);

  bool corrupt() const EXCLUDES(mu_);
  // Everything but what is known of the machine.
  Repeat Finish() const EXCLUDES(mu_);

 private:
  struct PhaseSeries {
    std::vector<double> starts, ms;
  };
  struct Series {
    std::string name;
    double seconds = 0;  // of its window
    int64_t attempts = 0;
    int64_t failures = 0;
    std::vector<double> ms, failed_ms, server_ms;
    std::map<std::pair<std::string, std::string>, PhaseSeries> phases;  // (component, name)
  };
  Series& Find(const std::string& row) REQUIRES(mu_);
  bool InWindowLocked() const REQUIRES(mu_);
  double SecondsLocked() const REQUIRES(mu_);
  static Row ToRow(const Series& series, double seconds);

  Clock* const clock_;
  mutable Mutex mu_;
  std::optional<MonotonicTime> begin_ GUARDED_BY(mu_);
  MonotonicTime end_ GUARDED_BY(mu_);
  std::string prefix_ GUARDED_BY(mu_);
  std::vector<Series> series_ GUARDED_BY(mu_);
  Repeat repeat_ GUARDED_BY(mu_);
};

}  // namespace torpor::bench
