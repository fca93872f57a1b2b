#pragma once
// A control plane that answers what the test says.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "router/park/resolver.h"

namespace torpor::router {

// Thread-safe. Calls are kept until the test answers them, or answered at once by `auto_answer`.
class FakeResolver : public ActorResolver {
 public:
  using AutoAnswer = std::function<StatusOr<Answer>(const ActorKey& key, int number)>;

  explicit FakeResolver(AutoAnswer auto_answer = nullptr) : auto_answer_(std::move(auto_answer)) {}

  static Answer Running(Route route) {
    return Answer{std::make_shared<Route>(std::move(route)), false, ""};
  }
  static Answer Woken(Route route) {
    return Answer{std::make_shared<Route>(std::move(route)), true, "op-1"};
  }

  void Resume(const ActorKey& key, Duration wait_for_capacity, const std::string& traceparent,
              std::function<void(StatusOr<Answer>)> done) override {
    int number = 0;
    {
      MutexLock lock(&mu_);
      number = ++calls_;
      last_wait_ = wait_for_capacity;
      last_trace_ = traceparent;
      if (!auto_answer_) pending_.emplace_back(key, std::move(done));
      changed_.SignalAll();
    }
    if (auto_answer_) done(auto_answer_(key, number));
  }
  // Nothing is under way unless the test says so.
  void Progress(const ActorKey&,
                std::function<void(StatusOr<std::optional<WakeProgress>>)> done) override {
    std::optional<WakeProgress> progress;
    {
      MutexLock lock(&mu_);
      ++progress_calls_;
      progress = progress_;
      if (progress_lost_) return;
    }
    done(std::move(progress));
  }
  void set_progress(std::optional<WakeProgress> progress) {
    MutexLock lock(&mu_);
    progress_ = std::move(progress);
  }
  // From now on nobody hears how far a wake is.
  void LoseProgress() {
    MutexLock lock(&mu_);
    progress_lost_ = true;
  }
  int progress_calls() const {
    MutexLock lock(&mu_);
    return progress_calls_;
  }
  void Phases(const ActorKey&, const std::string&,
              std::function<void(StatusOr<std::vector<torpor::v1::Phase>>)> done) override {
    std::vector<torpor::v1::Phase> phases(2);
    phases[0].set_name("place");
    phases[0].set_duration_ms(0.5);
    phases[1].set_name("restore");
    phases[1].set_duration_ms(42.25);
    done(std::move(phases));
  }
  // Answers the oldest open call.
  void AnswerNext(StatusOr<Answer> answer) {
    std::function<void(StatusOr<Answer>)> done;
    {
      MutexLock lock(&mu_);
      done = std::move(pending_.front().second);
      pending_.erase(pending_.begin());
    }
    done(std::move(answer));
  }
  bool WaitForCalls(int n) {
    return WaitFor([this, n]() NO_THREAD_SAFETY_ANALYSIS { return calls_ >= n; });
  }
  int calls() const {
    MutexLock lock(&mu_);
    return calls_;
  }
  size_t open_calls() const {
    MutexLock lock(&mu_);
    return pending_.size();
  }
  Duration last_wait() const {
    MutexLock lock(&mu_);
    return last_wait_;
  }
  std::string last_trace() const {
    MutexLock lock(&mu_);
    return last_trace_;
  }

 private:
  bool WaitFor(const std::function<bool()>& condition) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    MutexLock lock(&mu_);
    while (!condition()) {
      if (!changed_.WaitUntil(&mu_, deadline)) return condition();
    }
    return true;
  }

  const AutoAnswer auto_answer_;
  mutable Mutex mu_;
  CondVar changed_;
  int calls_ GUARDED_BY(mu_) = 0;
  int progress_calls_ GUARDED_BY(mu_) = 0;
  std::optional<WakeProgress> progress_ GUARDED_BY(mu_);
  bool progress_lost_ GUARDED_BY(mu_) = false;
  Duration last_wait_ GUARDED_BY(mu_){};
  std::string last_trace_ GUARDED_BY(mu_);
  std::vector<std::pair<ActorKey, std::function<void(StatusOr<Answer>)>>> pending_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
