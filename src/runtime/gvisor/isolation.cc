#include "runtime/gvisor/isolation.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"

namespace torpor::gvisor {
namespace {

using os::CgroupSide;
using Event = IsolationEvent;
using State = IsolationState;

// argv[0] of the sentry. Gofers are runsc-gofer, the stubs that run guest code have none.
constexpr std::string_view kSentryName = "runsc-sandbox";

struct Transition {
  State from;
  Event event;
  State to;
};
constexpr Transition kTransitions[] = {
    {State::kIdle, Event::kSentryFound, State::kFound},
    {State::kIdle, Event::kSentryUnclear, State::kPlain},
    {State::kFound, Event::kSiblingReady, State::kPrepared},
    {State::kFound, Event::kSiblingRefused, State::kPlain},
    {State::kPrepared, Event::kMoved, State::kIsolated},
    {State::kPrepared, Event::kNotMoved, State::kPlain},
    {State::kPrepared, Event::kSentryDead, State::kTeardown},
    {State::kIsolated, Event::kCaptureBegins, State::kCapturing},
    {State::kPlain, Event::kCaptureBegins, State::kCapturing},
    {State::kCapturing, Event::kSavedToEnd, State::kTeardown},
    {State::kCapturing, Event::kSavedToGoOn, State::kReturning},
    {State::kCapturing, Event::kNotSaved, State::kReturning},
    {State::kReturning, Event::kBack, State::kReturned},
    {State::kReturning, Event::kStuck, State::kMustKill},
    {State::kReturned, Event::kProven, State::kIdle},
    {State::kReturned, Event::kNotProven, State::kMustKill},
    {State::kMustKill, Event::kKilled, State::kTeardown},
    {State::kIdle, Event::kTornDown, State::kRemoving},  // stopped without a capture
    {State::kTeardown, Event::kTornDown, State::kRemoving},
    {State::kRemoving, Event::kRemoved, State::kDone},
    {State::kRemoving, Event::kSurvived, State::kError},
    // Ending a sandbox is idempotent.
    {State::kDone, Event::kTornDown, State::kRemoving},
    {State::kError, Event::kTornDown, State::kRemoving},
};

bool Contains(const StatusOr<std::vector<pid_t>>& pids, pid_t pid) {
  return pids.ok() && std::find(pids->begin(), pids->end(), pid) != pids->end();
}

}  // namespace

std::optional<IsolationState> NextIsolationState(IsolationState state, IsolationEvent event) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == state && transition.event == event) return transition.to;
  }
  return std::nullopt;
}

std::string_view Name(IsolationState state) {
  static constexpr std::string_view kNames[] = {
      "IDLE",     "FOUND",     "PREPARED", "ISOLATED", "PLAIN", "CAPTURING", "RETURNING",
      "RETURNED", "MUST_KILL", "TEARDOWN", "REMOVING", "DONE",  "ERROR"};
  return kNames[static_cast<size_t>(state)];
}

void CaptureIsolation::Advance(IsolationEvent event) {
  std::optional<IsolationState> next = NextIsolationState(state_, event);
  CHECK(next.has_value());
  state_ = *next;
}

void CaptureIsolation::Warn(std::string_view what, const Status& why) {
  LogFields fields = {{"leaf", leaf_},
                      {"pid", fmt::to_string(sentry_->pid())},
                      {"state", std::string(Name(state_))}};
  if (!why.ok()) fields.push_back({"error", why.ToString()});
  LogWarning(what, fields);
}

// Exactly one process of the leaf is a sentry, and it is ours.
bool CaptureIsolation::SentryIsClear() {
  auto processes = cgroups_->ProcessesOf(leaf_, CgroupSide::kLeaf);
  if (!processes.ok()) return false;
  std::vector<pid_t> sentries;
  for (pid_t pid : *processes) {
    if (program_of_(pid) == kSentryName) sentries.push_back(pid);
  }
  return sentries == std::vector<pid_t>{sentry_->pid()};
}

IsolationEvent CaptureIsolation::MoveToSibling() {
  // Held, the pid cannot be another process's between the look and the write.
  std::shared_ptr<void> hold = sentry_->HoldPid();
  if (hold == nullptr) return Event::kSentryDead;
  if (!Contains(cgroups_->ProcessesOf(leaf_, CgroupSide::kLeaf), sentry_->pid())) {
    if (sentry_->Ended()) return Event::kSentryDead;
    Warn("capture without isolation: the sentry is not in its cgroup");
    return Event::kNotMoved;
  }
  StatusOr<bool> moved = cgroups_->Move(leaf_, sentry_->pid(), CgroupSide::kSibling);
  if (sentry_->Ended()) return Event::kSentryDead;
  if (moved.ok() && *moved) return Event::kMoved;
  Warn("capture without isolation: the sentry cannot be moved", moved.status());
  return Event::kNotMoved;
}

Status CaptureIsolation::Begin() {
  if (state_ != State::kIdle) {
    return Fail(reasons::kWorkloadExited, "the guest was ended before the capture");
  }
  if (cgroups_ == nullptr) {
    Advance(Event::kSentryUnclear);
  } else if (!SentryIsClear()) {
    Warn("capture without isolation: no sentry or several in the sandbox's cgroup");
    Advance(Event::kSentryUnclear);
  } else {
    Advance(Event::kSentryFound);
  }
  if (state_ == State::kFound) {
    Status made = cgroups_->CreateSibling(leaf_);
    if (!made.ok()) Warn("capture without isolation: no sibling group", made);
    Advance(made.ok() ? Event::kSiblingReady : Event::kSiblingRefused);
  }
  if (state_ == State::kPrepared) {
    Advance(MoveToSibling());
    if (state_ == State::kTeardown) {
      return Fail(reasons::kWorkloadExited, "the guest ended before the capture");
    }
    if (state_ == State::kPlain) {
      Status removed = cgroups_->RemoveSibling(leaf_);
      if (!removed.ok()) Warn("sibling group not removed", removed);
    }
  }
  isolated_ = state_ == State::kIsolated;
  Advance(Event::kCaptureBegins);
  return OkStatus();
}

void CaptureIsolation::SavedToEnd() { Advance(Event::kSavedToEnd); }

IsolationEvent CaptureIsolation::MoveBack() {
  if (cgroups_ == nullptr) return Event::kBack;
  const pid_t pid = sentry_->pid();
  auto apart = cgroups_->ProcessesOf(leaf_, CgroupSide::kSibling);
  if (apart.ok() && apart->empty()) return Event::kBack;  // it is dead, or was never moved
  std::shared_ptr<void> hold = sentry_->HoldPid();
  if (hold != nullptr) {
    StatusOr<bool> moved = cgroups_->Move(leaf_, pid, CgroupSide::kLeaf);
    if (!moved.ok()) {
      // Also when the leaf is missing: the sentry was seen in the sibling and is still there.
      Warn("the sentry cannot be given its limits again", moved.status());
      return Event::kStuck;
    }
    if (!*moved) return Event::kBack;  // ESRCH: there is no such process any more
  }
  apart = cgroups_->ProcessesOf(leaf_, CgroupSide::kSibling);
  const bool back = Contains(cgroups_->ProcessesOf(leaf_, CgroupSide::kLeaf), pid);
  if (apart.ok() && apart->empty() && (back || sentry_->Ended())) return Event::kBack;
  Warn("the sentry is not where it was moved", apart.status());
  return Event::kStuck;
}

bool CaptureIsolation::GoOn(bool saved) {
  if (state_ != State::kCapturing) return false;
  Advance(saved ? Event::kSavedToGoOn : Event::kNotSaved);
  Advance(MoveBack());
  if (state_ == State::kReturned) {
    // A failed checkpoint can have killed the guest although nothing says so.
    Advance(sentry_->ProveAlive() ? Event::kProven : Event::kNotProven);
  }
  if (state_ == State::kIdle) {
    Status removed = cgroups_ == nullptr ? OkStatus() : cgroups_->RemoveSibling(leaf_);
    if (!removed.ok()) Warn("sibling group not removed", removed);
    return true;
  }
  Status killed = sentry_->Kill();
  if (!killed.ok()) Warn("the sentry survives SIGKILL", killed);
  Advance(Event::kKilled);
  return false;
}

Status CaptureIsolation::TornDown() {
  Advance(Event::kTornDown);
  Status removed = cgroups_ == nullptr ? OkStatus() : cgroups_->RemoveSibling(leaf_);
  if (!removed.ok()) {
    // Somebody is in it who should be dead. Not without a limit, at least.
    std::shared_ptr<void> hold = sentry_->HoldPid();
    if (hold != nullptr) {
      StatusOr<bool> moved = cgroups_->Move(leaf_, sentry_->pid(), CgroupSide::kLeaf);
      if (!moved.ok()) Warn("the sentry cannot be given its limits again", moved.status());
    }
    removed = cgroups_->RemoveSibling(leaf_);
    if (!sentry_->Ended()) {
      Status frozen = cgroups_->Freeze(leaf_, true);
      removed = Fail(reasons::kInternal,
                     fmt::format("process {} of {} survives SIGKILL; it is {}", sentry_->pid(),
                                 leaf_, frozen.ok() ? "frozen" : "not even frozen"));
    }
  }
  Advance(removed.ok() ? Event::kRemoved : Event::kSurvived);
  return removed;
}

}  // namespace torpor::gvisor
