#include "control/reconciler/writer.h"

#include <algorithm>

#include "base/log.h"
#include "control/core/golden.h"
#include "control/core/record_view.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr size_t kBatchMax = 256;
// How long a blocking call waits for the store before it says that it does not know.
constexpr Duration kCommitWaitMax = std::chrono::seconds(10);
constexpr Duration kCommitRetryMax = std::chrono::seconds(1);
// Wall time may be set meanwhile, so the loop never sleeps longer than this.
constexpr Duration kSleepMax = std::chrono::seconds(1);
constexpr Duration kTrimEvery = std::chrono::minutes(10);
constexpr Duration kBookmarkEvery = std::chrono::seconds(30);
constexpr size_t kWatchesMax = 1000;

}  // namespace

bool Inbox::Post(Task task) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  tasks_.push_back(std::move(task));
  changed_.Signal();
  return true;
}

std::vector<Inbox::Task> Inbox::TakeAll(size_t max) {
  MutexLock lock(&mu_);
  std::vector<Task> tasks;
  while (!tasks_.empty() && tasks.size() < max) {
    tasks.push_back(std::move(tasks_.front()));
    tasks_.pop_front();
  }
  return tasks;
}

size_t Inbox::size() const {
  MutexLock lock(&mu_);
  return tasks_.size();
}

void Inbox::Close() {
  std::deque<Task> dropped;  // outside the lock: what they hold answers its callers
  MutexLock lock(&mu_);
  closed_ = true;
  dropped.swap(tasks_);
  changed_.SignalAll();
}

bool Inbox::WaitUntil(MonotonicTime until) {
  MutexLock lock(&mu_);
  while (tasks_.empty() && !closed_) {
    if (!changed_.WaitUntil(&mu_, until)) break;
  }
  return !closed_;
}

Writer::Writer(ControlPlane::Parts parts, Settings settings)
    : parts_(std::move(parts)), settings_(std::move(settings)) {}

Writer::~Writer() {
  inbox_->Close();
  if (thread_.joinable()) thread_.join();
}

Status Writer::Load() {
  RETURN_IF_ERROR(LoadState(*parts_.store, state_));
  started_ = parts_.clock->Now();
  {
    // Nobody knows how long ago the nodes renewed: they get one whole lease. Nothing is placed on
    // them before they have reported.
    MutexLock state_lock(&state_.mu);
    MutexLock lock(&mu_);
    for (const auto& [name, entry] : state_.table<torpor::v1::NodeRecord>()) {
      leases_[name].expires = parts_.clock->Now() + settings_.lease_ttl + settings_.lease_slack;
    }
  }
  inbox_->Post([this](Txn& txn) {
    if (txn.Get<torpor::v1::AtespaceRecord>(core::kGoldenAtespace) == nullptr) {
      torpor::v1::AtespaceRecord record;
      record.mutable_atespace()->mutable_metadata()->set_name(core::kGoldenAtespace);
      record.mutable_atespace()->mutable_metadata()->set_uid(parts_.ids->NewUuid());
      txn.Put(core::kGoldenAtespace, std::move(record));
    }
    RecoverTags(txn);  // before anything is deleted
    for (const auto& [key, record] : txn.All<torpor::v1::ActorRecord>()) {
      if (record->has_operation() || !record->uploads().empty()) {
        Status status = StepActor(txn, key, core::Recover{});
        CHECK(status.ok());
      }
      ArmActor(txn, key);
    }
    for (const auto& [key, record] : txn.All<torpor::v1::TemplateRecord>()) {
      if (core::IsGoldenOpen(*record)) ReconcileGolden(txn, key);
    }
    for (const auto& [name, node] : txn.All<torpor::v1::NodeRecord>()) {
      txn.AfterCommit([this, name] { AskNode(name); });
    }
    for (const auto& [id, garbage] : txn.All<torpor::v1::GarbageRecord>()) {
      txn.AfterCommit([this, id] { RunGarbage(id); });
    }
    for (const auto& [name, node] : txn.All<torpor::v1::NodeRecord>()) {
      if (node->drain() != torpor::v1::DrainNodeRequest::MODE_UNSPECIFIED) {
        timers_.Set("d/" + name, txn.now());
      }
    }
    timers_.Set("trim", core::Later(txn.now(), kTrimEvery));
  });
  // Before anybody asks, the reserved atespace is there.
  RunReady();
  if (pending_ != nullptr) {
    return Fail(reasons::kStoreUnavailable, "the store does not take writes; see the log");
  }
  return OkStatus();
}

void Writer::StartThread() {
  thread_ = std::thread([this] { Loop(); });
}

void Writer::Loop() {
  while (true) {
    while (RunReady()) {
    }
    Duration sleep = kSleepMax;
    WallTime next = NextTimer();
    WallTime now = parts_.clock->WallNow();
    if (next <= now) {
      sleep = std::chrono::milliseconds(1);
    } else if (next != WallTime::max()) {
      sleep = std::min<Duration>(sleep, next - now);
    }
    bool blocked = pending_ != nullptr;
    if (blocked) {
      // Tasks that wait must not wake the loop while the store is away.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    MonotonicTime until = std::chrono::steady_clock::now() + (blocked ? Duration::zero() : sleep);
    if (!inbox_->WaitUntil(until)) return;
  }
}

WallTime Writer::NextTimer() const { return pending_ != nullptr ? commit_retry_ : timers_.next(); }

bool Writer::RunReady() {
  WallTime now = parts_.clock->WallNow();
  if (pending_ != nullptr) {
    if (now < commit_retry_) return false;
    return TryCommit();
  }
  std::vector<Inbox::Task> tasks = inbox_->TakeAll(kBatchMax);
  if (tasks.empty() && timers_.next() > now) return false;
  pending_ = std::make_unique<Txn>(&state_, now);
  for (Inbox::Task& task : tasks) {
    task(*pending_);
    Settle(*pending_);
  }
  RunTimers(*pending_);
  Settle(*pending_);
  TryCommit();
  return true;
}

bool Writer::TryCommit() {
  Batch batch = pending_->MakeBatch();
  if (!batch.empty()) {
    Status status = parts_.store->Commit(batch);
    // Somebody else wrote to this store. What is in memory is no longer the truth; a restart reads
    // it.
    if (status.code() == Code::kAborted) {
      LogError("the store was changed by somebody else", {{"error", status.ToString()}});
      CHECK(status.code() != Code::kAborted);
    }
    if (!status.ok()) {
      if (commit_failures_ == 0) LogError("commit failed", {{"error", status.ToString()}});
      Duration wait = std::min<Duration>(
          kCommitRetryMax, std::chrono::milliseconds(50) * (1 << std::min(commit_failures_, 6)));
      ++commit_failures_;
      commit_retry_ = core::Later(parts_.clock->WallNow(), wait);
      return false;
    }
    commit_failures_ = 0;
  }
  std::unique_ptr<Txn> done = std::move(pending_);
  const std::vector<std::string> actors = done->ChangedActors();
  done->Publish();
  if (!actors.empty()) watches_.Changed(actors);
  for (auto& action : done->TakeAfter()) action();
  return true;
}

void Writer::RunTimers(Txn& txn) {
  for (const std::string& name : timers_.TakeDue(txn.now())) {
    const std::string rest = name.size() > 2 ? name.substr(2) : "";
    if (name.compare(0, 2, "a/") == 0) {
      OnActorTimer(txn, rest);
    } else if (name.compare(0, 2, "t/") == 0) {
      ReconcileGolden(txn, rest);
    } else if (name.compare(0, 2, "g/") == 0) {
      txn.AfterCommit([this, rest] { RunGarbage(rest); });
    } else if (name.compare(0, 2, "w/") == 0) {
      ExpireWaiter(txn, std::stoull(rest));
    } else if (name.compare(0, 2, "c/") == 0) {
      txn.AfterCommit([this, rest] { RunCopy(rest); });
    } else if (name.compare(0, 2, "k/") == 0) {
      ExpireTagCall(txn, std::stoull(rest));
    } else if (name.compare(0, 2, "f/") == 0) {
      ExpireFork(txn, std::stoull(rest));
    } else if (name.compare(0, 2, "d/") == 0) {
      ReconcileDrain(txn, rest);
    } else if (name == "bookmark") {
      watches_.Bookmark();
      if (!watches_.empty()) timers_.Set(name, core::Later(txn.now(), kBookmarkEvery));
    } else if (name == "trim") {
      txn.AfterCommit([this] { TrimEvents(); });
      ForgetRouters();
      timers_.Set("trim", core::Later(txn.now(), kTrimEvery));
    }
  }
}

StatusOr<std::shared_ptr<ActorWatch>> Writer::Watch(const torpor::v1::WatchActorsRequest& request) {
  if (!request.resume_token().empty()) {
    return Fail(reasons::kResumeTokenExpired, "tokens are not kept; watch without one");
  }
  auto show = [this](const torpor::v1::ActorRecord& record) { return Shown(record); };
  ASSIGN_OR_RETURN(auto watch, watches_.Open(request, show, kWatchesMax));
  inbox_->Post(
      [this](Txn& txn) { timers_.Set("bookmark", core::Later(txn.now(), kBookmarkEvery)); });
  return watch;
}

// Lets those look again whom the last events concern, until nothing moves any more.
void Writer::Settle(Txn& txn) {
  while (!touched_.empty() || capacity_changed_) {
    if (!touched_.empty()) {
      std::string key = *touched_.begin();
      touched_.erase(touched_.begin());
      std::set<uint64_t> ids;
      if (auto it = waiters_of_.find(key); it != waiters_of_.end()) ids = it->second;
      for (uint64_t id : ids) {
        auto it = waiters_.find(id);
        if (it != waiters_.end() && it->second->op_id.empty() && !it->second->for_capacity) {
          Ask(txn, std::shared_ptr<Waiter>(it->second));
        }
      }
      LookAtForks(txn, key);
      size_t slash = key.find('/');
      if (key.compare(0, slash, core::kGoldenAtespace) == 0) {
        std::string template_key = state_.TemplateKeyOf(key.substr(slash + 1));
        if (!template_key.empty()) ReconcileGolden(txn, template_key);
      }
      continue;
    }
    capacity_changed_ = false;
    for (uint64_t id : std::set<uint64_t>(capacity_waiters_)) {
      auto it = waiters_.find(id);
      if (it == waiters_.end()) continue;
      std::shared_ptr<Waiter> waiter = it->second;
      waiter->for_capacity = false;
      capacity_waiters_.erase(id);
      timers_.Set(fmt::format("w/{}", id), waiter->deadline);
      Ask(txn, waiter);
    }
  }
}

Status Writer::CallAndWait(Inbox::Task task) {
  struct Gate {
    Mutex mu;
    CondVar changed;
    bool committed GUARDED_BY(mu) = false;
    bool over GUARDED_BY(mu) = false;
  };
  auto gate = std::make_shared<Gate>();
  {
    // Goes with the last owner of the task: committed, or dropped by a writer that stops.
    std::shared_ptr<void> ticket(nullptr, [gate](void*) {
      MutexLock lock(&gate->mu);
      gate->over = true;
      gate->changed.SignalAll();
    });
    inbox_->Post([gate, ticket, task = std::move(task)](Txn& txn) {
      task(txn);
      txn.AfterCommit([gate, ticket] {
        MutexLock lock(&gate->mu);
        gate->committed = true;
      });
    });
  }
  if (!thread_.joinable()) {
    while (RunReady()) {
    }
  }
  MutexLock lock(&gate->mu);
  MonotonicTime until = std::chrono::steady_clock::now() + kCommitWaitMax;
  while (!gate->over) {
    if (!thread_.joinable() || !gate->changed.WaitUntil(&gate->mu, until)) break;
  }
  if (gate->committed) return OkStatus();
  if (gate->over) return Fail(reasons::kShuttingDown, "the control plane is stopping; try again");
  return Fail(reasons::kStoreUnavailable,
              "the store does not take the change; it may still be made, so read before a retry");
}

}  // namespace torpor::control
