#include "control/core/golden.h"

#include <algorithm>

#include "control/core/node_call.h"
#include "control/core/record_view.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

using torpor::v1::TemplateRecord;

constexpr int kAttemptsMax = 8;
constexpr Duration kBackoffMax = std::chrono::seconds(60);
constexpr Duration kCapacityAgain = std::chrono::seconds(1);
constexpr size_t kErrorMax = 4096;

ateapi::GoldenSnapshotStatus& Shown(TemplateRecord& record) {
  return *record.mutable_actor_template()->mutable_status()->mutable_golden_snapshot_status();
}

void SetStep(TemplateRecord& record, torpor::v1::GoldenStep step) {
  record.set_golden_step(step);
  record.set_golden_attempts(0);
  record.clear_golden_retry_time();
  record.clear_golden_op_id();
}

void Abandon(TemplateRecord& record, const std::string& kind, const std::string& detail) {
  std::string message = kind + ": " + detail;
  Shown(record).set_error_message(message.substr(0, kErrorMax));
  Shown(record).clear_take_golden_snapshot_at();
  SetStep(record, torpor::v1::GOLDEN_STEP_ABANDON);
}

// The sandbox's host died, not the program in it: another try can go well.
bool IsHostFailure(const std::string& reason) {
  return reason == reasons::kNodeLost.name || reason == reasons::kWorkerRestarted.name ||
         reason == reasons::kWorkerPodGone.name;
}

bool HasProbes(const ateapi::ActorTemplate& tmpl) {
  return std::all_of(tmpl.containers().begin(), tmpl.containers().end(),
                     [](const ateapi::Container& c) { return c.has_wakeup_probe(); });
}

torpor::v1::Event MakeEvent(WallTime now, const TemplateRecord& record, const std::string& type,
                            torpor::v1::Event::Severity severity, const std::string& message) {
  torpor::v1::Event event;
  *event.mutable_time() = ToProto(now);
  event.set_severity(severity);
  event.set_type(type);
  const ateapi::ResourceMetadata& metadata = record.actor_template().metadata();
  event.mutable_actor()->set_atespace(kGoldenAtespace);
  event.mutable_actor()->set_name(metadata.uid());
  event.set_message(
      fmt::format("template {}/{}: {}", metadata.atespace(), metadata.name(), message));
  return event;
}

class GoldenRun {
 public:
  GoldenRun(WallTime now, const Settings& settings, TemplateRecord& record,
            const torpor::v1::ActorRecord* actor, const torpor::v1::TagRecord* tag)
      : now_(now), settings_(settings), record_(record), actor_(actor), tag_(tag) {}

  GoldenDecision Decide() {
    switch (record_.golden_step()) {
      case torpor::v1::GOLDEN_STEP_BOOT:
        Boot();
        break;
      case torpor::v1::GOLDEN_STEP_WARM:
        Warm();
        break;
      case torpor::v1::GOLDEN_STEP_SUSPEND:
        Suspend();
        break;
      case torpor::v1::GOLDEN_STEP_TAG:
        Tag();
        break;
      case torpor::v1::GOLDEN_STEP_DELETE:
        Delete();
        break;
      case torpor::v1::GOLDEN_STEP_ABANDON:
        CleanUp();
        break;
      default:
        break;
    }
    return std::move(out_);
  }

 private:
  ateapi::ActorState state() const { return actor_->actor().status().state(); }

  // True when a retry has to wait until its time.
  bool Waiting() {
    if (!record_.has_golden_retry_time()) return false;
    WallTime at = FromProto(record_.golden_retry_time());
    if (at <= now_) return false;
    out_.next = at;
    return true;
  }

  // The failure of the operation that this step waited for, once.
  bool TakeFailure() {
    const torpor::v1::OperationError& error = actor_->actor().status().last_error();
    if (record_.golden_op_id().empty() || error.op_id() != record_.golden_op_id()) return false;
    record_.clear_golden_op_id();
    out_.dirty = true;
    GoldenFailed(now_, record_,
                 Error(static_cast<Code>(error.code()), error.reason(), error.message()));
    AfterFailure();
    return true;
  }

  void AfterFailure() {
    if (record_.golden_step() == torpor::v1::GOLDEN_STEP_ABANDON) {
      ReportFailure();
    } else if (record_.has_golden_retry_time()) {
      out_.next = FromProto(record_.golden_retry_time());
    }
  }

  void ReportFailure() {
    out_.event = MakeEvent(now_, record_, "GoldenFailed", torpor::v1::Event::SEVERITY_ERROR,
                           Shown(record_).error_message());
    CleanUp();
  }

  // True when the golden actor crashed and that was dealt with.
  bool Crashed() {
    if (state() != ateapi::ACTOR_STATE_CRASHED) return false;
    const ateapi::ActorCrash& crash = actor_->actor().status().crash();
    out_.dirty = true;
    if (IsHostFailure(crash.reason()) && record_.golden_attempts() + 1 < kAttemptsMax) {
      int attempts = record_.golden_attempts();
      SetStep(record_, torpor::v1::GOLDEN_STEP_BOOT);
      record_.set_golden_attempts(attempts + 1);
      out_.action = GoldenAction::kDeleteActor;
      return true;
    }
    Abandon(record_, "GoldenActorCrashed", crash.reason() + ": " + crash.message());
    ReportFailure();
    return true;
  }

  void Boot() {
    if (actor_ == nullptr) {
      if (!Waiting()) out_.action = GoldenAction::kCreateActor;
      return;
    }
    if (Crashed()) return;
    if (state() == ateapi::ACTOR_STATE_SUSPENDED) {
      if (TakeFailure() || Waiting()) return;
      out_.action = GoldenAction::kResumeActor;
      return;
    }
    if (state() != ateapi::ACTOR_STATE_RUNNING) return;
    const ateapi::ActorTemplate& tmpl = record_.actor_template();
    Duration warmup = settings_.golden_warmup;
    if (tmpl.golden_config().has_warmup()) {
      warmup = FromProto(tmpl.golden_config().warmup());
    } else if (HasProbes(tmpl)) {
      warmup = Duration::zero();
    }
    *Shown(record_).mutable_take_golden_snapshot_at() = ToProto(Later(now_, warmup));
    SetStep(record_, torpor::v1::GOLDEN_STEP_WARM);
    out_.dirty = true;
    Warm();
  }

  void Warm() {
    if (actor_ == nullptr || Crashed()) return Restart();
    if (state() != ateapi::ACTOR_STATE_RUNNING) return;
    WallTime at = FromProto(Shown(record_).take_golden_snapshot_at());
    if (at > now_) {
      out_.next = at;
      return;
    }
    SetStep(record_, torpor::v1::GOLDEN_STEP_SUSPEND);
    out_.dirty = true;
    out_.action = GoldenAction::kSuspendActor;
  }

  void Suspend() {
    if (actor_ == nullptr || Crashed()) return Restart();
    if (state() == ateapi::ACTOR_STATE_RUNNING) {
      if (TakeFailure() || Waiting()) return;
      out_.action = GoldenAction::kSuspendActor;
      return;
    }
    if (state() == ateapi::ACTOR_STATE_SUSPENDING && actor_->operation().has_last_error()) {
      // An actor of a user would wait for the store; a template says at last that it is broken.
      const torpor::v1::OperationError& error = actor_->operation().last_error();
      Verdict verdict = Judge(static_cast<Code>(error.code()), error.reason());
      if (verdict == Verdict::kRetry && actor_->operation().attempts() < kAttemptsMax) return;
      Abandon(record_, "GoldenActorInvalid", error.reason() + ": " + error.message());
      out_.dirty = true;
      ReportFailure();
      return;
    }
    if (state() != ateapi::ACTOR_STATE_SUSPENDED) return;
    if (CurrentDurable(*actor_) == nullptr) {  // reverted by somebody: from the start
      SetStep(record_, torpor::v1::GOLDEN_STEP_BOOT);
      out_.dirty = true;
      out_.action = GoldenAction::kResumeActor;
      return;
    }
    SetStep(record_, torpor::v1::GOLDEN_STEP_TAG);
    out_.dirty = true;
    Tag();
  }

  void Tag() {
    if (tag_ == nullptr) {
      if (actor_ == nullptr) return Restart();
      if (!Waiting()) out_.action = GoldenAction::kCreateTag;
      return;
    }
    if (!tag_->ready()) return;
    SetStep(record_, torpor::v1::GOLDEN_STEP_DELETE);
    out_.dirty = true;
    Delete();
  }

  void Delete() {
    if (actor_ != nullptr) {
      if (state() != ateapi::ACTOR_STATE_DELETING) out_.action = GoldenAction::kDeleteActor;
      return;
    }
    Shown(record_).mutable_golden_tag()->set_atespace(kGoldenAtespace);
    Shown(record_).mutable_golden_tag()->set_name(record_.actor_template().metadata().uid());
    SetStep(record_, torpor::v1::GOLDEN_STEP_DONE);
    out_.dirty = true;
    out_.event = MakeEvent(now_, record_, "GoldenReady", torpor::v1::Event::SEVERITY_INFO,
                           "golden snapshot is ready");
  }

  void CleanUp() {
    if (actor_ != nullptr) {
      if (state() != ateapi::ACTOR_STATE_DELETING) out_.action = GoldenAction::kDeleteActor;
    } else if (tag_ != nullptr) {
      out_.action = GoldenAction::kDeleteTag;
    }
  }

  // The golden actor is gone although nobody deleted it here.
  void Restart() {
    if (actor_ != nullptr) return;
    SetStep(record_, torpor::v1::GOLDEN_STEP_BOOT);
    out_.dirty = true;
    out_.action = GoldenAction::kCreateActor;
  }

  const WallTime now_;
  const Settings& settings_;
  TemplateRecord& record_;
  const torpor::v1::ActorRecord* const actor_;
  const torpor::v1::TagRecord* const tag_;
  GoldenDecision out_;
};

}  // namespace

GoldenDecision DecideGolden(WallTime now, const Settings& settings, TemplateRecord& record,
                            const torpor::v1::ActorRecord* actor,
                            const torpor::v1::TagRecord* tag) {
  return GoldenRun(now, settings, record, actor, tag).Decide();
}

void GoldenFailed(WallTime now, TemplateRecord& record, const Status& error) {
  std::string reason = ReasonOf(error);
  if (reason == reasons::kNoCapacity.name || reason == reasons::kNodeUnreachable.name) {
    *record.mutable_golden_retry_time() = ToProto(Later(now, kCapacityAgain));
    return;
  }
  int attempts = record.golden_attempts() + 1;
  if (Judge(error) != Verdict::kRetry || attempts >= kAttemptsMax) {
    Abandon(record, Judge(error) == Verdict::kCrash ? "GoldenActorCrashed" : "GoldenActorInvalid",
            reason + ": " + std::string(error.message()));
    return;
  }
  record.set_golden_attempts(attempts);
  *record.mutable_golden_retry_time() = ToProto(Later(now, Backoff(attempts + 1, kBackoffMax)));
}

bool IsGoldenOpen(const TemplateRecord& record) {
  return record.golden_step() != torpor::v1::GOLDEN_STEP_DONE &&
         record.golden_step() != torpor::v1::GOLDEN_STEP_UNSPECIFIED;
}

}  // namespace torpor::control::core
