// Answers of a node that are lost or late, in every order with what else can happen.

#include "control/testing/interleaving.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

// ---- B1, B14: lost and late replies ----

TEST_F(Interleaving, B1_LostReplies) {
  // 'n' delivers, 'l' loses the reply, 'q' loses the request, 'k' restarts the apiserver, 'g' the
  // agent.
  EveryOrder(
      "gklnqt",
      [&] {
        RunsWith(7);
        StartSuspend("a");
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 'l') Step(Fate::kLoseReply);
        if (letter == 'q') Step(Fate::kLoseRequest);
        if (letter == 'k') Restart();
        if (letter == 'g') ReRegister();
        if (letter == 't') Time();
      },
      [&] {
        RunFor(std::chrono::minutes(1));
        EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
        EXPECT_EQ(world().calls["CaptureActor"], 1) << "a checkpoint ran twice";
        EXPECT_EQ(world().calls["UploadSnapshot"], 1);
        EXPECT_EQ(ValueAfterWake(), 7);
        EXPECT_EQ(world().calls["StartActor"], 2);
      });
}

// A node drops all that it knows of a deleted actor when its last outcome is acknowledged. So from
// then on nobody may ask for it, whatever was lost before.
TEST_F(Interleaving, B1_AnAcknowledgedDeleteIsNotAskedForAgain) {
  int acknowledged = 0;
  for (bool durable : {false, true}) {
    EveryOrder(
        "gklnot",
        [&] {
          RunsWith(7);
          if (durable) {
            ASSERT_OK(Await(StartSuspend("a")));
            ASSERT_OK(Await(StartResume("a")));
          }
          StartDelete("a", /*any_state=*/true);
          plane->RunReady();
        },
        [&](char letter) {
          if (letter == 'n') Step();
          if (letter == 'l') Step(Fate::kLoseReply);
          if (letter == 'k') Restart();
          if (letter == 'g') ReRegister();
          if (letter == 't') Time();
          if (letter != 'o') return;
          torpor::v1::ReportOperationRequest report;
          report.set_lease_id(lease_id);
          const auto registration = world().Registration();
          for (const auto& op : registration.inventory().operations()) {
            if (op.method() == "StopActor") *report.mutable_operation() = op;
          }
          if (!report.has_operation() || !plane->ReportOperation(report).ok()) return;
          ++acknowledged;
          while (world().queued() > 0) world().RunAt(0, Fate::kLoseRequest);
          const int stops = world().calls["StopActor"];
          Restart();
          ReRegister();
          for (int i = 0; i < 30; ++i) {
            Time(std::chrono::seconds(5));
            while (plane->RunReady()) {
            }
            for (size_t at = 0; at < world().queued(); ++at) {
              EXPECT_NE(world().method(at), "GetOperation");
            }
            world().RunAll();
          }
          EXPECT_EQ(world().calls["StopActor"], stops);
        },
        [&] { RunFor(std::chrono::minutes(1)); });
  }
  EXPECT_GT(acknowledged, 100);
}

TEST_F(Interleaving, B14_UnknownTakenAsFailed) {
  MakeAll();
  RunsWith(7);
  ASSERT_OK(Await(StartPause("a")));
  auto resume = StartResume("a");
  plane->RunReady();
  Step(Fate::kHoldReply);
  // Far beyond the deadline of the operation the call is given up, and the node is asked.
  for (int i = 0; i < 60; ++i) {
    Time(std::chrono::seconds(5));
    while (plane->RunReady()) {
    }
  }
  ASSERT_EQ(world().method(0), "reply");
  Step(Fate::kLoseRequest);
  RunFor(std::chrono::seconds(10));
  ASSERT_TRUE(resume->has_value());
  EXPECT_OK(**resume);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().calls["StartActor"], 2) << "one boot, one restore";
  EXPECT_EQ(world().sandboxes[uid].value, 7);
  CheckRules();
}

TEST_F(Interleaving, B5_StuckTransitional) {
  MakeAll();
  uid = Uid("a");
  Status died = Fail(reasons::kRuntimeFailed, "runsc restore exited with 128: bad image");
  AddMetadata(died, "guest_ran", "false");
  world().FailNext("StartActor", died, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "RUNTIME_FAILED"));
    EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
    ASSERT_OK_AND_ASSIGN(auto workers, plane->ListWorkers({}));
    EXPECT_EQ(workers.workers(0).status().allocated().actors(), 0);
  }
  EXPECT_OK(Await(StartResume("a")));
}

}  // namespace
}  // namespace torpor::control
