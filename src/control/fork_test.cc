// Forks: all children or none, the source goes on, and nothing is left over.

#include <set>

#include "control/testing/interleaving.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_CRASHED;
using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

class Forks : public Interleaving {
 protected:
  int64_t ValueOf(const std::string& name) {
    EXPECT_THAT(Await(StartResume(name)), IsOk());
    return world().sandboxes[Uid(name)].value;
  }
  std::vector<std::string> TagNames() {
    std::vector<std::string> names;
    auto tags = plane->ListTags({});
    EXPECT_THAT(tags, IsOk());
    for (const ateapi::Tag& tag : tags->tags()) names.push_back(tag.metadata().name());
    return names;
  }
  size_t Actors() {
    auto actors = plane->ListActors({});
    EXPECT_THAT(actors, IsOk());
    return static_cast<size_t>(actors->actors_size());
  }
  // Each child has that state, an identity of its own, and goes its own way.
  void CheckChildren(const torpor::v1::ForkActorResponse& response, int count, int64_t value) {
    ASSERT_EQ(response.actors_size(), count);
    std::set<std::string> uids{Uid("a")};
    std::set<std::string> names{"a"};
    for (const ateapi::Actor& child : response.actors()) {
      EXPECT_TRUE(uids.insert(child.metadata().uid()).second);
      EXPECT_TRUE(names.insert(child.metadata().name()).second);
      EXPECT_EQ(child.status().state(), ACTOR_STATE_SUSPENDED);
      EXPECT_EQ(child.source_tag().name(), response.tag().name());
      EXPECT_EQ(child.actor_template().name(), "counter");
    }
    int64_t next = 100;
    for (const ateapi::Actor& child : response.actors()) {
      EXPECT_EQ(ValueOf(child.metadata().name()), value);
      world().sandboxes[child.metadata().uid()].value = ++next;
    }
    next = 100;
    for (const ateapi::Actor& child : response.actors()) {
      const std::string& name = child.metadata().name();
      ASSERT_OK(Await(StartSuspend(name)));
      EXPECT_EQ(ValueOf(name), ++next);
    }
    CheckRules();
  }
};

TEST_F(Forks, EightOfATag) {
  MakeAll();
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartTag("t")));
  torpor::v1::ForkActorRequest request;
  *request.mutable_tag() = Ref("t");
  request.set_count(8);
  request.set_name_prefix("clone");
  ASSERT_OK_AND_ASSIGN(auto forked, Await(StartFork(request)));
  EXPECT_EQ(forked.tag().name(), "t");
  EXPECT_EQ(forked.source_generation(), 2);
  EXPECT_EQ(forked.actors(0).metadata().name().size(), 11u);
  EXPECT_EQ(forked.actors(0).metadata().name().rfind("clone-", 0), 0u);
  EXPECT_THAT(DeleteTag("t"), HasReason(Code::kFailedPrecondition, "TAG_IN_USE"));
  EXPECT_EQ(world().calls["Copy"], 1) << "the tag's own";
  CheckChildren(forked, 8, 5);
  EXPECT_OK(GetTag("t")) << "a tag of a client stays until it is deleted";
  EXPECT_OK(DeleteTag("t"));
}

TEST_F(Forks, OfARunningActorThatRunsOn) {
  MakeAll();
  RunsWith(5);
  auto slot = StartFork(ForkOf("a", 8));
  plane->RunReady();
  Step();  // the capture
  plane->RunReady();
  EXPECT_EQ(State("a"), ateapi::ACTOR_STATE_RESUMING) << "it does not wait for the upload";
  ASSERT_OK_AND_ASSIGN(auto forked, Await(slot));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().sandboxes[uid].value, 5);
  EXPECT_EQ(forked.source_generation(), 2);
  EXPECT_FALSE(forked.op_id().empty());
  world().sandboxes[uid].value = 6;
  ASSERT_EQ(TagNames(), std::vector<std::string>{forked.tag().name()});
  EXPECT_THAT(DeleteTag(forked.tag().name()), HasReason(Code::kFailedPrecondition, "TAG_IN_USE"));
  CheckChildren(forked, 8, 5);
  EXPECT_TRUE(TagNames().empty()) << "no child borrows its copy any more";
  Run();
  EXPECT_EQ(world().objects.size(), 9u);
  EXPECT_EQ(world().sandboxes[uid].value, 6);
}

TEST_F(Forks, OfARestingActor) {
  for (bool pause : {true, false}) {
    Reset();
    MakeAll();
    RunsWith(5);
    pause ? (void)Await(StartPause("a")).ok() : (void)Await(StartSuspend("a")).ok();
    ASSERT_OK_AND_ASSIGN(auto forked, Await(StartFork(ForkOf("a", 2))));
    EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
    EXPECT_EQ(world().calls["StartActor"], 1) << "without a wake";
    CheckChildren(forked, 2, 5);
    EXPECT_EQ(ValueOf("a"), 5);
  }
}

// It holds the copy of the tag that it was made from.
TEST_F(Forks, OfAnActorThatNeverRan) {
  MakeAll();
  EXPECT_THAT(Await(StartFork(ForkOf("a", 1))),
              HasReason(Code::kFailedPrecondition, "NO_SNAPSHOT"));
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartTag("t")));
  ASSERT_OK(MakeActorFrom("t", "b"));
  ASSERT_OK_AND_ASSIGN(auto forked, Await(StartFork(ForkOf("b", 2))));
  ASSERT_OK(Await(StartDelete("b")));
  ASSERT_OK(DeleteTag("t"));
  Run();
  CheckChildren(forked, 2, 5);
}

TEST_F(Forks, ChildrenHaveWhatTheSourceHas) {
  MakeAll();
  ateapi::UpdateActorRequest update;
  *update.mutable_actor() = Get("a");
  update.mutable_actor()->mutable_idle_policy()->mutable_pause_after()->set_seconds(3600);
  ASSERT_OK(plane->UpdateActor(update));
  RunsWith(5);
  auto request = ForkOf("a", 2);
  request.add_names("x");
  request.add_names("y");
  request.set_resume(true);
  ASSERT_OK_AND_ASSIGN(auto forked, Await(StartFork(request)));
  ASSERT_EQ(forked.actors_size(), 2);
  EXPECT_EQ(forked.actors(1).metadata().name(), "y");
  EXPECT_EQ(forked.actors(1).status().state(), ACTOR_STATE_RUNNING);
  EXPECT_EQ(forked.actors(1).idle_policy().pause_after().seconds(), 3600);
  EXPECT_EQ(world().sandboxes[Uid("x")].value, 5);
  EXPECT_EQ(world().sandboxes.size(), 3u);
}

TEST_F(Forks, EachWakeFailsByItself) {
  MakeAll();
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  auto request = ForkOf("a", 3);
  request.set_resume(true);
  world().FailNext("StartActor", Fail(reasons::kWorkloadExited, "exit 1"));
  ASSERT_OK_AND_ASSIGN(auto forked, Await(StartFork(request)));
  int running = 0, crashed = 0;
  for (const ateapi::Actor& child : forked.actors()) {
    running += child.status().state() == ACTOR_STATE_RUNNING;
    crashed += child.status().state() == ACTOR_STATE_CRASHED;
  }
  EXPECT_EQ(running, 2);
  EXPECT_EQ(crashed, 1);
}

// A source whose template was replaced since wakes with its volumes only; so do its children.
TEST_F(Forks, AChangedTemplateNarrowsTheChildrenToo) {
  MakeAll();
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(MakeTemplate(Template("second")));
  ateapi::UpdateActorRequest update;
  *update.mutable_actor() = Get("a");
  *update.mutable_actor()->mutable_actor_template() = Ref("second");
  ASSERT_OK(plane->UpdateActor(update));
  auto request = ForkOf("a", 1);
  request.add_names("x");
  ASSERT_OK(Await(StartFork(request)));
  ASSERT_OK(Await(StartResume("x")));
  torpor::v1::ExplainActorRequest explain;
  *explain.mutable_actor() = Ref("x");
  ASSERT_OK_AND_ASSIGN(auto report, plane->ExplainActor(explain));
  EXPECT_EQ(report.reports(0).fidelity(), torpor::v1::FIDELITY_VOLUMES);
}

TEST_F(Forks, FidelityOfTheChildren) {
  MakeAll();
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  auto request = ForkOf("a", 1);
  request.add_names("x");
  request.set_fidelity(torpor::v1::FIDELITY_ROOTFS);
  EXPECT_THAT(Await(StartFork(request)), HasReason(Code::kInvalidArgument, "FIDELITY_UNSUPPORTED"));
  request.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK(Await(StartFork(request)));
  ASSERT_OK(Await(StartFork(ForkOf("x", 1)))) << "what x holds";
  request = ForkOf("x", 1);
  request.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  EXPECT_THAT(Await(StartFork(request)),
              HasReason(Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED"));
  EXPECT_EQ(ValueOf("a"), 5) << "the source keeps its memory";
}

// ---- all or none ----

TEST_F(Forks, BadSources) {
  MakeAll();
  EXPECT_THAT(Await(StartFork(ForkOf("none", 1))), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  torpor::v1::ForkActorRequest request;
  *request.mutable_tag() = Ref("none");
  request.set_count(1);
  EXPECT_THAT(Await(StartFork(request)), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
  request = ForkOf("a", 1);
  *request.mutable_actor() = Ref("a", "ate-golden");
  EXPECT_THAT(Await(StartFork(request)), HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
  RunsWith(5);
  auto pause = StartPause("a");
  plane->RunReady();
  EXPECT_THAT(Await(StartFork(ForkOf("a", 1))), HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
}

TEST_F(Forks, ANameThatIsTakenIsToldAtOnce) {
  MakeAll();
  RunsWith(5);
  auto request = ForkOf("a", 2);
  request.add_names("b");
  request.add_names("a");
  EXPECT_THAT(Await(StartFork(request)), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  EXPECT_EQ(world().calls["CaptureActor"], 0);
  EXPECT_FALSE(Exists("b"));
}

TEST_F(Forks, ANameThatIsTakenMeanwhileEndsIt) {
  MakeAll();
  RunsWith(5);
  auto request = ForkOf("a", 2);
  request.add_names("x");
  request.add_names("b");
  auto slot = StartFork(request);
  plane->RunReady();
  ASSERT_OK(MakeActor("b"));
  EXPECT_THAT(Await(slot), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  EXPECT_FALSE(Exists("x"));
  EXPECT_TRUE(TagNames().empty());
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().objects.size(), 1u);
}

TEST_F(Forks, AFailedCaptureLeavesTheSourceAndNothingElse) {
  MakeAll();
  RunsWith(5);
  world().FailNext("CaptureActor", Fail(reasons::kDiskFull, "no room"));
  EXPECT_THAT(Await(StartFork(ForkOf("a", 2))), HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().sandboxes[uid].value, 5);
  EXPECT_EQ(Actors(), 1u);
  world().capture_kills = true;
  world().FailNext("CaptureActor", Fail(reasons::kRuntimeFailed, "the sandbox is gone"));
  EXPECT_THAT(Await(StartFork(ForkOf("a", 2))), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_THAT(Await(StartFork(ForkOf("a", 2))),
              HasReason(Code::kFailedPrecondition, "ACTOR_CRASHED"));
}

TEST_F(Forks, ACopyThatFailsForGoodLeavesNothing) {
  MakeAll();
  RunsWith(5);
  world().FailNext("Copy", Fail(reasons::kStoreDenied, "bucket is not allowed"));
  EXPECT_THAT(Await(StartFork(ForkOf("a", 2))), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_EQ(Actors(), 1u);
  EXPECT_TRUE(TagNames().empty());
  EXPECT_EQ(world().objects.size(), 1u);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
}

TEST_F(Forks, AStoreThatIsAwayDelaysItAndEndsIt) {
  MakeAll();
  RunsWith(5);
  ASSERT_OK(Await(StartSuspend("a")));
  world().FailNext("Copy", Fail(reasons::kObjectStorageUnavailable, "503"), 4);
  auto request = ForkOf("a", 2);
  request.set_name_prefix("x");
  auto slot = StartFork(request, CallContext{clock.Now() + std::chrono::seconds(1), {}});
  RunFor(std::chrono::seconds(2));
  ASSERT_TRUE(slot->has_value());
  EXPECT_THAT(**slot, HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  RunFor(std::chrono::seconds(10));
  EXPECT_EQ(Actors(), 3u) << "it went on without the caller";
  world().FailNext("Copy", Fail(reasons::kObjectStorageUnavailable, "503"), 1000);
  slot = StartFork(request);
  RunFor(std::chrono::minutes(11));
  ASSERT_TRUE(slot->has_value());
  EXPECT_THAT(**slot, HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  world().HealAll();
  RunFor(std::chrono::minutes(11));
  EXPECT_EQ(Actors(), 3u) << "it was given up";
  EXPECT_EQ(TagNames().size(), 1u);
  CheckRules();
}

TEST_F(Forks, ARestartEndsItAndLeavesNothing) {
  for (int steps = 0; steps < 8; ++steps) {
    SCOPED_TRACE(steps);
    Reset();
    lease_id.clear();
    MakeAll();
    RunsWith(5);
    auto slot = StartFork(ForkOf("a", 2));
    plane->RunReady();
    for (int i = 0; i < steps; ++i) {
      Step();
      plane->RunReady();
    }
    const bool made = Actors() == 3;
    Restart();
    EXPECT_TRUE(slot->has_value());
    Register();
    RunFor(std::chrono::minutes(6));
    EXPECT_EQ(Actors(), made ? 3u : 1u);
    EXPECT_EQ(TagNames().size(), made ? 1u : 0u);
    EXPECT_LE(world().objects.size(), made ? 2u : 1u);
    CheckRules();
    EXPECT_EQ(ValueAfterWake(), 5);
  }
}

// ---- what may meet a fork ----

TEST_F(Forks, TheSourceIsDeletedDuringAFork) {
  Slot<torpor::v1::ForkActorResponse> slot;
  EveryOrder(
      "nnnnxt",
      [&] {
        RunsWith(5);
        slot = StartFork(ForkOf("a", 2));
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 't') Time();
        if (letter == 'x') StartDelete("a", /*any_state=*/true);
      },
      [&] {
        RunFor(std::chrono::minutes(6));
        ASSERT_TRUE(slot->has_value());
        EXPECT_FALSE(Exists("a"));
        EXPECT_EQ(Actors(), (*slot)->ok() ? 2u : 0u);
        EXPECT_EQ(world().objects.size(), (*slot)->ok() ? 1u : 0u);
        EXPECT_EQ(TagNames().size(), (*slot)->ok() ? 1u : 0u);
        if (!(*slot)->ok()) return;
        for (const ateapi::Actor& child : (**slot)->actors()) {
          EXPECT_EQ(ValueOf(child.metadata().name()), 5);
        }
      });
}

TEST_F(Forks, TheCopyIsDeletedDuringAFork) {
  Slot<torpor::v1::ForkActorResponse> slot;
  EveryOrder(
      "nnnnnx",
      [&] {
        RunsWith(5);
        slot = StartFork(ForkOf("a", 2));
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 'x') {
          for (const std::string& name : TagNames()) (void)DeleteTag(name).ok();
        }
      },
      [&] {
        RunFor(std::chrono::minutes(6));
        ASSERT_TRUE(slot->has_value());
        EXPECT_EQ(Actors(), (*slot)->ok() ? 3u : 1u);
        EXPECT_EQ(world().objects.size(), (*slot)->ok() ? 2u : 1u);
        EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
        if (!(*slot)->ok()) {
          EXPECT_THAT(**slot, HasReason(Code::kAborted, "SUPERSEDED"));
        }
      });
}

// Clients go on using the source; pauses and wakes may come at any time.
TEST_F(Forks, TheSourceIsUsedDuringAFork) {
  Slot<torpor::v1::ForkActorResponse> slot;
  EveryOrder(
      "nnnnprt",
      [&] {
        RunsWith(5);
        slot = StartFork(ForkOf("a", 2));
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 't') Time();
        if (letter == 'r') StartResume("a");
        if (letter == 'p') StartPause("a");
      },
      [&] {
        RunFor(std::chrono::minutes(3));
        ASSERT_TRUE(slot->has_value());
        ASSERT_OK(**slot);
        for (const ateapi::Actor& child : (**slot)->actors()) {
          EXPECT_EQ(ValueOf(child.metadata().name()), 5);
        }
        EXPECT_EQ(ValueAfterWake(), 5);
      });
}

}  // namespace
}  // namespace torpor::control
