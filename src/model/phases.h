#pragma once
// Phases of an operation: who did what when, for reports, Server-Timing and benchmarks.
//
// A recorder belongs to one operation in one process; its times start at 0 when it is made and are
// milliseconds. Thread-safe: parallel legs record into one recorder. The names are those
// that docs/operate.md lists.

#include <string>
#include <string_view>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor {

class PhaseRecorder {
 public:
  PhaseRecorder(std::string_view component, Clock* clock)
      : component_(component), clock_(clock), start_(clock->Now()) {}

  // Records from construction to destruction (or End). A failing leg names its reason.
  class Scope {
   public:
    Scope(PhaseRecorder* recorder, std::string_view name)
        : recorder_(recorder), name_(name), begin_(recorder->clock_->Now()) {}
    ~Scope() { End(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void SetBytes(int64_t bytes) { bytes_ = bytes; }
    void SetDetail(std::string_view detail) { detail_ = std::string(detail); }
    // Keeps the guilty phase with the reason of `status`; returns it, so it wraps a return.
    Status Fail(Status status) {
      error_reason_ = ReasonOf(status);
      return status;
    }
    // What did not happen after all is in no report.
    void Drop() { recorder_ = nullptr; }
    void End() {
      if (recorder_ == nullptr) return;
      torpor::v1::Phase phase;
      phase.set_name(name_);
      phase.set_component(recorder_->component_);
      phase.set_start_ms(ToMs(begin_ - recorder_->start_));
      phase.set_duration_ms(ToMs(recorder_->clock_->Now() - begin_));
      phase.set_bytes(bytes_);
      phase.set_detail(detail_);
      phase.set_error_reason(error_reason_);
      recorder_->Add(std::move(phase));
      recorder_ = nullptr;
    }

   private:
    PhaseRecorder* recorder_;
    std::string name_;
    MonotonicTime begin_;
    int64_t bytes_ = 0;
    std::string detail_;
    std::string error_reason_;
  };

  void Add(torpor::v1::Phase phase) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    phases_.push_back(std::move(phase));
  }
  // Phases of a callee, whose clock started `offset_ms` after ours.
  void AddAll(const google::protobuf::RepeatedPtrField<torpor::v1::Phase>& phases, double offset_ms)
      EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    for (torpor::v1::Phase phase : phases) {
      phase.set_start_ms(phase.start_ms() + offset_ms);
      phases_.push_back(std::move(phase));
    }
  }
  double ElapsedMs() const { return ToMs(clock_->Now() - start_); }
  std::vector<torpor::v1::Phase> phases() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return phases_;
  }

 private:
  const std::string component_;
  Clock* const clock_;
  const MonotonicTime start_;
  mutable Mutex mu_;
  std::vector<torpor::v1::Phase> phases_ GUARDED_BY(mu_);
};

}  // namespace torpor
