// Tables of the pure decisions.

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "control/core/idle.h"
#include "control/core/node_call.h"
#include "control/core/record_view.h"
#include "google/rpc/status.pb.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

using torpor::v1::Operation;

TEST(Judge, EveryReasonHasItsVerdict) {
  for (const Reason& reason : AllReasons()) {
    Verdict want = Verdict::kGiveUp;
    const std::string name = reason.name;
    switch (reason.code) {
      case Code::kDataLoss:
        want = Verdict::kCrash;
        break;
      case Code::kInternal:
        want = name == "INTERNAL" ? Verdict::kRetry : Verdict::kCrash;
        break;
      case Code::kUnavailable:
      case Code::kResourceExhausted:
      case Code::kDeadlineExceeded:
      case Code::kCancelled:
      case Code::kAborted:
        want = Verdict::kRetry;
        break;
      default:
        if (name == "STALE_LEASE" || name == "ACTOR_BUSY") want = Verdict::kRetry;
    }
    EXPECT_EQ(Judge(reason.code, name), want) << name;
  }
}

TEST(Backoff, DoublesUpToTheCap) {
  const Duration cap = std::chrono::seconds(10);
  EXPECT_EQ(Backoff(0, cap), std::chrono::milliseconds(250));
  EXPECT_EQ(Backoff(1, cap), std::chrono::milliseconds(500));
  EXPECT_EQ(Backoff(5, cap), std::chrono::seconds(8));
  EXPECT_EQ(Backoff(6, cap), cap);
  EXPECT_EQ(Backoff(1000, cap), cap);
  EXPECT_EQ(Backoff(-1, cap), std::chrono::milliseconds(250));
}

Operation Ended(Operation::State state) {
  Operation operation;
  operation.set_state(state);
  if (state == Operation::STATE_FAILED) {
    Status error = Fail(reasons::kDiskFull, "full");
    EXPECT_TRUE(operation.mutable_error()->ParseFromString(SerializeStatus(error)));
  }
  return operation;
}

TEST(Resolve, EveryAnswer) {
  const WallTime now{std::chrono::hours(1000)};
  struct Case {
    std::string name;
    StatusOr<Operation> answer;
    bool query, refused;
    CallState state;
    bool unknown;        // while open: ask GetOperation; else send again
    std::string reason;  // when failed
  };
  const std::vector<Case> kCases = {
      {"done", Ended(Operation::STATE_SUCCEEDED), false, false, CallState::kSucceeded, false, ""},
      {"failed", Ended(Operation::STATE_FAILED), false, false, CallState::kFailed, false,
       "DISK_FULL"},
      {"at it", Ended(Operation::STATE_RUNNING), true, false, CallState::kOpen, true, ""},
      {"lost", Fail(reasons::kNodeUnreachable, ""), false, false, CallState::kOpen, true, ""},
      {"late", Fail(reasons::kDeadlineExceeded, ""), false, false, CallState::kOpen, true, ""},
      {"cut", Fail(reasons::kCancelled, ""), false, false, CallState::kOpen, true, ""},
      {"busy", Fail(reasons::kOperationInProgress, ""), false, false, CallState::kOpen, false, ""},
      {"lease", Fail(reasons::kStaleLease, ""), false, false, CallState::kOpen, false, ""},
      {"stale", Fail(reasons::kStaleGeneration, ""), false, false, CallState::kFailed, false,
       "STALE_GENERATION"},
      {"never began", Fail(reasons::kOperationNotFound, ""), true, false, CallState::kOpen, false,
       ""},
      {"never will", Fail(reasons::kOperationNotFound, ""), true, true, CallState::kFailed, false,
       "DEADLINE_EXCEEDED"},
      {"query lost", Fail(reasons::kNodeUnreachable, ""), true, true, CallState::kOpen, true, ""},
      {"query broken", Fail(reasons::kInternal, ""), true, false, CallState::kOpen, true, ""},
  };
  for (const Case& c : kCases) {
    torpor::v1::NodeCall call;
    CallOutcome outcome = Resolve(call, c.answer, c.query, c.refused, now);
    EXPECT_EQ(outcome.state, c.state) << c.name;
    EXPECT_EQ(ReasonOf(outcome.error), c.reason) << c.name;
    EXPECT_EQ(call.has_query_time(), c.state == CallState::kOpen) << c.name;
    if (c.state == CallState::kOpen) {
      EXPECT_EQ(call.unknown(), c.unknown) << c.name;
    }
  }
}

TEST(DecideIdle, Table) {
  const WallTime now{std::chrono::hours(1000)};
  auto ago = [&](int seconds) { return now - std::chrono::seconds(seconds); };
  struct Case {
    std::string name;
    ateapi::ActorState state;
    int pause, suspend;  // policy, seconds; 0 = never
    int idle;            // since the last activity
    int streams;         // -1: nobody knows
    int awake;           // seconds from now; 0 = unset
    torpor::v1::Verb verb;
    int next;  // seconds from now; -1 = none
  };
  constexpr auto kRunning = ateapi::ACTOR_STATE_RUNNING;
  constexpr auto kPaused = ateapi::ACTOR_STATE_PAUSED;
  constexpr auto kNone = torpor::v1::VERB_UNSPECIFIED;
  const std::vector<Case> kCases = {
      {"no policy", kRunning, 0, 0, 9999, 0, 0, kNone, -1},
      {"not yet", kRunning, 30, 0, 29, 0, 0, kNone, 1},
      {"pause", kRunning, 30, 0, 30, 0, 0, torpor::v1::VERB_PAUSE, -1},
      {"pause before suspend", kRunning, 30, 60, 45, 0, 0, torpor::v1::VERB_PAUSE, -1},
      {"suspend", kRunning, 30, 60, 60, 0, 0, torpor::v1::VERB_SUSPEND, -1},
      {"suspend only", kRunning, 0, 60, 10, 0, 0, kNone, 50},
      {"open stream", kRunning, 30, 60, 99, 1, 0, kNone, 30},
      {"silent router", kRunning, 30, 60, 99, -1, 0, kNone, 30},
      {"kept awake", kRunning, 30, 0, 99, 0, 10, kNone, 40},
      {"paused waits", kPaused, 30, 60, 45, 0, 0, kNone, 15},
      {"paused is uploaded", kPaused, 30, 60, 61, 0, 0, torpor::v1::VERB_SUSPEND, -1},
      {"paused stays", kPaused, 30, 0, 9999, 0, 0, kNone, -1},
      {"suspended", ateapi::ACTOR_STATE_SUSPENDED, 1, 1, 99, 0, 0, kNone, -1},
      {"busy", ateapi::ACTOR_STATE_PAUSING, 1, 1, 99, 0, 0, kNone, -1},
  };
  for (const Case& c : kCases) {
    torpor::v1::ActorRecord record;
    record.mutable_actor()->mutable_status()->set_state(c.state);
    *record.mutable_actor()->mutable_status()->mutable_last_active_time() = ToProto(ago(99999));
    if (c.awake > 0) {
      *record.mutable_actor()->mutable_status()->mutable_awake_until() = ToProto(ago(-c.awake));
    }
    torpor::v1::TemplateRecord tmpl;
    tmpl.mutable_actor_template()->mutable_idle_policy()->mutable_pause_after()->set_seconds(
        c.pause);
    tmpl.mutable_actor_template()->mutable_idle_policy()->mutable_suspend_after()->set_seconds(
        c.suspend);
    const Activity activity{ago(c.idle), std::max(0, c.streams), c.streams < 0};
    IdleDecision decision = DecideIdle(now, record, &tmpl, activity);
    EXPECT_EQ(decision.verb, c.verb) << c.name;
    EXPECT_EQ(decision.next.has_value(), c.next >= 0) << c.name;
    if (decision.next && c.next >= 0) {
      EXPECT_EQ(*decision.next, ago(-c.next)) << c.name;
    }
  }
}

TEST(RecordView, OwnPolicyBeatsTheTemplates) {
  torpor::v1::TemplateRecord tmpl;
  tmpl.mutable_actor_template()->mutable_idle_policy()->mutable_pause_after()->set_seconds(5);
  tmpl.mutable_actor_template()->mutable_idle_policy()->mutable_suspend_after()->set_seconds(9);
  torpor::v1::ActorRecord record;
  record.mutable_actor()->mutable_idle_policy()->mutable_pause_after()->set_seconds(0);
  torpor::v1::IdlePolicy policy = EffectiveIdlePolicy(record, &tmpl);
  EXPECT_EQ(policy.pause_after().seconds(), 0);
  EXPECT_EQ(policy.suspend_after().seconds(), 9);
  record.set_golden(true);
  EXPECT_FALSE(EffectiveIdlePolicy(record, &tmpl).has_suspend_after());
  EXPECT_EQ(EffectiveCrashPolicy(record, nullptr).max_reverts(), 3);
}

TEST(RecordView, NeedsAndFidelity) {
  ateapi::ActorTemplate tmpl;
  Settings settings;
  EXPECT_EQ(Needs(tmpl, settings).memory_bytes, settings.default_memory_bytes);
  auto* limit = tmpl.mutable_resources()->add_limits();
  limit->set_name("memory");
  limit->set_quantity("1Gi");
  EXPECT_EQ(Needs(tmpl, settings).memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(Needs(tmpl, settings).cpu_milli, settings.default_cpu_milli);
  EXPECT_EQ(TemplateFidelity(tmpl), torpor::v1::FIDELITY_MEMORY);
  tmpl.mutable_snapshot_config()->set_on_commit(ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
  EXPECT_EQ(TemplateFidelity(tmpl), torpor::v1::FIDELITY_VOLUMES);
  tmpl.mutable_snapshot_config()->set_preferred_fidelity(torpor::v1::FIDELITY_MEMORY);
  EXPECT_EQ(TemplateFidelity(tmpl), torpor::v1::FIDELITY_MEMORY);
  EXPECT_EQ(MakeSpec(tmpl, settings).http_port(), 80);
}

}  // namespace
}  // namespace torpor::control::core
