#include "os/process/reaper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "os/process/children.h"

namespace torpor::os {
namespace {

constexpr size_t kRecentMax = 4096;

// Ends a blocking waitid when the reaper stops; nothing else in this program uses the signal.
constexpr int kWakeSignal = SIGURG;
void OnWake(int) {}

void OnlyWakeSignal() {
  sigset_t mask;
  sigfillset(&mask);
  sigdelset(&mask, kWakeSignal);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// Runs the watchers' callbacks, without the lock.
void Notify(Children& children, const std::vector<std::shared_ptr<WatchState>>& ended,
            ExitStatus status) {
  for (const auto& state : ended) {
    {
      MutexLock lock(&children.mu);
      state->status = status;
      if (state->cancelled || !state->on_exit) continue;
      state->calling = true;
      state->caller = std::this_thread::get_id();
    }
    state->on_exit(status);
    MutexLock lock(&children.mu);
    state->calling = false;
    children.changed.SignalAll();
  }
  MutexLock lock(&children.mu);
  children.changed.SignalAll();
}

// Collects `pid`, which has ended, and hands its status to whoever waits.
void CollectOne(Children& children, pid_t pid) {
  std::vector<std::shared_ptr<WatchState>> ended;
  ExitStatus status;
  {
    MutexLock lock(&children.mu);
    while (children.held.count(pid) != 0) children.changed.Wait(&children.mu);
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
      return;
    }
    status = ExitStatusOf(info);
    auto spawned = children.spawned.find(pid);
    auto [first, last] = children.watched.equal_range(pid);
    for (auto it = first; it != last; ++it) ended.push_back(it->second);
    children.watched.erase(first, last);
    if (spawned != children.spawned.end()) {
      spawned->second->status = status;
      children.spawned.erase(spawned);
    } else if (ended.empty()) {
      children.recent.push_back({pid, std::chrono::steady_clock::now(), status});
      if (children.recent.size() > kRecentMax) children.recent.pop_front();
    }
  }
  Notify(children, ended, status);
}

}  // namespace

struct Reaper::Loop {
  std::atomic<bool> stopping{false};
  std::atomic<bool> done{false};
  std::thread thread;

  void Run() {
    OnlyWakeSignal();
    Children& children = Children::Get();
    while (!stopping) {
      siginfo_t info{};
      // Only looks: the pid must stay taken until CollectOne holds the lock.
      if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0) {
        CollectOne(children, info.si_pid);
      } else if (errno == ECHILD) {
        // Descendants are re-parented only while we have a child, so Spawn's signal is enough; the
        // timeout is for children of libraries.
        MutexLock lock(&children.mu);
        if (children.spawned.empty() && !stopping) {
          children.changed.WaitUntil(&children.mu,
                                     std::chrono::steady_clock::now() + std::chrono::seconds(1));
        }
      }
    }
    done = true;
  }
};

StatusOr<std::unique_ptr<Reaper>> Reaper::Start() {
  Children& children = Children::Get();
  {
    MutexLock lock(&children.mu);
    if (children.reaper_active) {
      return Error(Code::kAlreadyExists, "INTERNAL", "this process has a reaper already");
    }
    children.reaper_active = true;
  }
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    Status status = ErrnoStatus(errno, "PR_SET_CHILD_SUBREAPER");
    MutexLock lock(&children.mu);
    children.reaper_active = false;
    return status;
  }
  struct sigaction action{};
  action.sa_handler = OnWake;  // without SA_RESTART
  sigaction(kWakeSignal, &action, nullptr);
  std::unique_ptr<Reaper> reaper(new Reaper);
  reaper->loop_ = std::make_unique<Loop>();
  reaper->loop_->thread = std::thread([loop = reaper->loop_.get()] { loop->Run(); });
  return reaper;
}

Reaper::~Reaper() {
  Children& children = Children::Get();
  loop_->stopping = true;
  // A signal that arrives just before waitid blocks is lost, hence the repetition.
  while (!loop_->done) {
    {
      MutexLock lock(&children.mu);
      children.changed.SignalAll();
    }
    pthread_kill(loop_->thread.native_handle(), kWakeSignal);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  loop_->thread.join();
  MutexLock lock(&children.mu);
  children.reaper_active = false;
  children.changed.SignalAll();  // waiting threads collect for themselves now
}

StatusOr<std::unique_ptr<Reaper::Watched>> Reaper::Watch(pid_t pid, MonotonicTime not_before,
                                                         std::function<void(ExitStatus)> on_exit) {
  std::unique_ptr<Watched> watched(new Watched);
  watched->pid_ = pid;
  watched->state_ = std::make_shared<WatchState>();
  watched->state_->on_exit = std::move(on_exit);
  Children& children = Children::Get();
  ExitStatus status;
  {
    MutexLock lock(&children.mu);
    auto it = children.recent.rbegin();
    while (it != children.recent.rend() && (it->pid != pid || it->time < not_before)) ++it;
    if (it == children.recent.rend()) {
      ASSIGN_OR_RETURN(watched->pidfd_, OpenPidfd(pid));
      children.watched.emplace(pid, watched->state_);
      return watched;
    }
    status = it->status;
  }
  Notify(children, {watched->state_}, status);
  return watched;
}

Reaper::Watched::~Watched() {
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  state_->cancelled = true;
  auto [first, last] = children.watched.equal_range(pid_);
  for (auto it = first; it != last; ++it) {
    if (it->second == state_) {
      children.watched.erase(it);
      break;
    }
  }
  // The callback itself may destroy us.
  while (state_->calling && state_->caller != std::this_thread::get_id()) {
    children.changed.Wait(&children.mu);
  }
}

bool Reaper::Watched::ended() const {
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  return state_->status.has_value();
}

StatusOr<ExitStatus> Reaper::Watched::Wait(MonotonicTime deadline) {
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  while (!state_->status.has_value()) {
    bool in_time = true;
    if (deadline == MonotonicTime::max()) {
      children.changed.Wait(&children.mu);
    } else {
      in_time = children.changed.WaitUntil(&children.mu, deadline);
    }
    if (!in_time && !state_->status.has_value()) {
      return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                   fmt::format("process {} did not end in time", pid_));
    }
  }
  return *state_->status;
}

std::shared_ptr<void> Reaper::Watched::HoldPid() const {
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  // Only what is not collected yet is in the list.
  auto [first, last] = children.watched.equal_range(pid_);
  if (std::none_of(first, last, [&](const auto& w) { return w.second == state_; })) return nullptr;
  children.held.insert(pid_);
  return std::shared_ptr<void>(&children, [pid = pid_](void*) {
    Children& all = Children::Get();
    MutexLock unlock(&all.mu);
    all.held.erase(all.held.find(pid));
    all.changed.SignalAll();
  });
}

Status Reaper::Watched::Signal(int signal) const {
  if (!pidfd_.valid()) return OkStatus();
  return SignalPidfd(pidfd_.get(), signal);
}

}  // namespace torpor::os
