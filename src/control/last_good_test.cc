// Older generations: what is gone back to, by a revert or a rollback, and that it says what was
// lost.

#include "control/testing/interleaving.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_CRASHED;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

class LastGood : public Interleaving {
 protected:
  // Durable generations 2, 4 ... with the values 10, 20 ...; SUSPENDED on the newest.
  void MakeGenerations(int count, int keep, bool reverts = false) {
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    tmpl.mutable_snapshot_config()->set_keep_generations(keep);
    if (reverts) tmpl.mutable_crash_policy()->set_on_crash(torpor::v1::ON_CRASH_REVERT);
    ASSERT_THAT(MakeTemplate(tmpl), IsOk());
    lease_id.clear();
    Register();
    ASSERT_THAT(MakeActor("a"), IsOk());
    for (int i = 1; i <= count; ++i) {
      RunsWith(10 * i);
      ASSERT_THAT(Await(StartSuspend("a")), IsOk());
    }
  }
  std::vector<int64_t> Generations() {
    torpor::v1::ListGenerationsRequest request;
    *request.mutable_actor() = Ref("a");
    auto listed = plane->ListGenerations(request);
    EXPECT_THAT(listed, IsOk());
    std::vector<int64_t> numbers;
    for (const auto& generation : listed->generations()) {
      numbers.push_back(generation.generation());
    }
    return numbers;
  }
  torpor::v1::RollbackActorRequest To(int64_t generation) {
    torpor::v1::RollbackActorRequest request;
    *request.mutable_actor() = Ref("a");
    request.set_generation(generation);
    return request;
  }
  Slot<torpor::v1::RollbackActorResponse> StartRollback(
      const torpor::v1::RollbackActorRequest& request) {
    auto slot = MakeSlot<torpor::v1::RollbackActorResponse>();
    plane->RollbackActor(request, {}, Into(slot));
    return slot;
  }
  // The generations that events name as lost, oldest event first.
  std::vector<int64_t> Lost() {
    torpor::v1::ListEventsRequest request;
    *request.mutable_actor() = Ref("a");
    auto events = plane->ListEvents(request);
    EXPECT_THAT(events, IsOk());
    std::vector<int64_t> lost;
    for (const auto& event : events->events()) {
      if (event.type() == "GenerationLost") lost.insert(lost.begin(), event.generation());
    }
    return lost;
  }
  static std::vector<int64_t> LostBy(const torpor::v1::RollbackActorResponse& response) {
    return {response.lost_generations().begin(), response.lost_generations().end()};
  }
  void Corrupt() {
    world().FailNext("StartActor",
                     Fail(reasons::kSnapshotCorrupt, "memory.tsz, block 3 at 4096: wrong hash",
                          {{"guest_ran", "false"}}));
  }
};

TEST_F(LastGood, KeepsAsManyAsTheTemplateSays) {
  for (int keep : {0, 1, 3}) {
    Reset();
    MakeGenerations(5, keep);
    Run();
    EXPECT_EQ(Generations().size(), static_cast<size_t>(keep + 1));
    EXPECT_EQ(world().objects.size(), static_cast<size_t>(keep + 1));
    CheckRules();
  }
}

TEST_F(LastGood, A16_RevertGoesBackBehindADamagedGeneration) {
  MakeGenerations(2, 1);
  Corrupt();
  auto refused = Await(StartResume("a"));
  EXPECT_THAT(refused, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(refused.status(), MessageHas("block 3 at 4096"));
  ASSERT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_EQ(Get("a").status().crash().lost_generation(), 4);
  EXPECT_EQ(Get("a").status().crash().durable_generation(), 2);
  ASSERT_OK_AND_ASSIGN(auto reverted, Await(StartRevert("a")));
  EXPECT_EQ(reverted.generation(), 2);
  ASSERT_EQ(reverted.lost_generations_size(), 1);
  EXPECT_EQ(reverted.lost_generations(0), 4);
  EXPECT_EQ(Lost(), std::vector<int64_t>{4});
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[uid].value, 10);
  EXPECT_EQ(world().objects.size(), 2u) << "nothing is destroyed by a fallback";
  ASSERT_OK(Await(StartSuspend("a")));
  Run();
  EXPECT_EQ(Generations().size(), 2u) << "the damaged one goes when there is a newer good one";
  EXPECT_EQ(Lost().size(), 1u);
  CheckRules();
}

TEST_F(LastGood, A16_ByPolicyItGoesBackByItself) {
  MakeGenerations(2, 1, /*reverts=*/true);
  Corrupt();
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(Lost(), std::vector<int64_t>{4});
  // The older one is damaged, too: there is nothing to go back to, and nothing is invented.
  Corrupt();
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_EQ(world().objects.size(), 2u);
}

// What could not be read may be there again, as after a repair of the store.
TEST_F(LastGood, ARollbackTriesADamagedGenerationAgain) {
  MakeGenerations(2, 1);
  Corrupt();
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  ASSERT_OK_AND_ASSIGN(auto response, Await(StartRollback(To(4))));
  EXPECT_TRUE(LostBy(response).empty());
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[uid].value, 20);
}

TEST_F(LastGood, RollbackFromEachRestingState) {
  for (const std::string from : {"SUSPENDED", "RUNNING", "PAUSED", "CRASHED"}) {
    SCOPED_TRACE(from);
    Reset();
    MakeGenerations(3, 3);
    if (from != "SUSPENDED") {
      RunsWith(99);
      if (from == "PAUSED") {
        ASSERT_OK(Await(StartPause("a")));
      }
      if (from == "CRASHED") ReportExit(Get("a").status().generation());
    }
    const int64_t before = Get("a").status().generation();
    ASSERT_OK_AND_ASSIGN(auto response, Await(StartRollback(To(2))));
    EXPECT_EQ(response.actor().status().state(), ACTOR_STATE_SUSPENDED);
    EXPECT_EQ(response.actor().status().last_snapshot_generation(), 2);
    std::vector<int64_t> lost = {4, 6};
    if (from == "PAUSED") lost.push_back(8);
    EXPECT_EQ(LostBy(response), lost);
    EXPECT_EQ(Lost(), lost);
    Run();
    EXPECT_EQ(Generations(), std::vector<int64_t>{2});
    EXPECT_EQ(world().objects.size(), 1u);
    EXPECT_TRUE(world().sandboxes.empty());
    ASSERT_OK(Await(StartResume("a")));
    EXPECT_EQ(world().sandboxes[uid].value, 10);
    EXPECT_GT(Get("a").status().generation(), before) << "numbers are never used again";
    CheckRules();
  }
}

TEST_F(LastGood, RollbackSaysWhatItCannotGoBackTo) {
  MakeGenerations(2, 1);
  EXPECT_THAT(Await(StartRollback(To(3))), HasReason(Code::kNotFound, "GENERATION_NOT_FOUND"));
  RunsWith(99);
  ASSERT_OK(Await(StartPause("a")));
  EXPECT_THAT(Await(StartRollback(To(6))),
              HasReason(Code::kFailedPrecondition, "GENERATION_NOT_DURABLE"));
  auto request = To(2);
  request.set_version(Get("a").metadata().version() + 1);
  EXPECT_THAT(Await(StartRollback(request)), HasReason(Code::kAborted, "VERSION_CONFLICT"));
  request = To(2);
  request.set_uid("00000000-0000-4000-8000-ffffffffffff");
  EXPECT_THAT(Await(StartRollback(request)), HasReason(Code::kAborted, "UID_CONFLICT"));
  auto resume = StartResume("a");
  plane->RunReady();
  EXPECT_THAT(Await(StartRollback(To(2))), HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  ASSERT_OK(Await(resume));
  EXPECT_EQ(world().sandboxes[uid].value, 99);
  request = To(2);
  request.mutable_actor()->set_atespace("ate-golden");
  EXPECT_THAT(Await(StartRollback(request)),
              HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
}

// A tag of a generation that is given up: the copy is made all the same.
TEST_F(LastGood, ATagOutlivesARollback) {
  Slot<ateapi::Tag> tag;
  EveryOrder(
      "nnntx",
      [&] {
        for (int i = 1; i <= 2; ++i) {
          RunsWith(10 * i);
          ASSERT_THAT(Await(StartSuspend("a")), IsOk());
        }
        tag = StartTag("t");
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 't') Time();
        if (letter == 'x') StartRollback(To(2));
      },
      [&] {
        RunFor(std::chrono::minutes(6));
        ASSERT_TRUE(tag->has_value());
        ASSERT_OK(**tag);
        EXPECT_EQ(world().objects.size(), 2u);
        ASSERT_OK(MakeActorFrom("t", "b"));
        ASSERT_OK(Await(StartResume("b")));
        EXPECT_EQ(world().sandboxes[Uid("b")].value, 20);
        EXPECT_EQ(ValueAfterWake(), 10);
      });
}

}  // namespace
}  // namespace torpor::control
