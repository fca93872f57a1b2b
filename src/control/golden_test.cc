// Golden builds, tags and templates through the whole control plane.

#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

class Golden : public PlaneTest {
 protected:
  static ateapi::ActorTemplate GoldenTemplate(bool probe = false) {
    ateapi::ActorTemplate tmpl = Template();
    tmpl.clear_golden_config();
    if (probe) tmpl.mutable_containers(0)->mutable_wakeup_probe()->mutable_http_get()->set_port(80);
    return tmpl;
  }
  const ateapi::GoldenSnapshotStatus Status() {
    return GetTemplate().status().golden_snapshot_status();
  }
  StatusOr<ateapi::ActorTemplate> Delete() {
    ateapi::DeleteActorTemplateRequest request;
    *request.mutable_actor_template() = Ref("counter");
    return plane->DeleteActorTemplate(request);
  }
  size_t GoldenActors() {
    ateapi::ListActorsRequest request;
    request.set_atespace("ate-golden");
    return static_cast<size_t>(plane->ListActors(request)->actors_size());
  }
};

// A golden snapshot goes to many machines; the one that made it may be the newest of them.
TEST_F(Golden, C4_IsBoundToTheCpuThatMadeIt) {
  world().cpu_features = {"avx2", "avx512f"};
  MakeAtespace();
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  Register();
  RunFor(std::chrono::seconds(30));
  ASSERT_TRUE(Status().has_golden_tag());
  ASSERT_OK(MakeActor("a"));
  world().cpu_features = {"avx2"};  // the machine was replaced
  world().Reboot();
  Register();
  auto refused = Await(StartResume("a"));
  EXPECT_THAT(refused, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT(refused.status(), MessageHas("(avx512f)"));
  world().cpu_features = {"amx_tile", "avx2", "avx512f"};
  Register();
  EXPECT_OK(Await(StartResume("a")));
}

TEST_F(Golden, IsBuiltAndBorrowedByNewActors) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::minutes(1));  // nothing can run yet: that is no failure
  EXPECT_EQ(Status().error_message(), "");
  Register();
  RunFor(std::chrono::seconds(5));
  const std::string uid = GetTemplate().metadata().uid();
  EXPECT_TRUE(Status().has_take_golden_snapshot_at());
  ASSERT_EQ(world().sandboxes.size(), 1u);
  world().sandboxes.begin()->second.value = 77;  // warmed up
  RunFor(std::chrono::seconds(20));
  EXPECT_EQ(Status().golden_tag().atespace(), "ate-golden");
  EXPECT_EQ(Status().golden_tag().name(), uid);
  EXPECT_EQ(GoldenActors(), 0u);
  EXPECT_TRUE(world().sandboxes.empty());
  ASSERT_EQ(world().objects.size(), 1u) << "only the tag's copy stays";

  ateapi::GetTagRequest get;
  *get.mutable_tag() = Ref(uid, "ate-golden");
  ASSERT_OK_AND_ASSIGN(auto tag, plane->GetTag(get));
  EXPECT_EQ(tag.status().snapshot().snapshot_uri(), world().objects.begin()->first);

  ASSERT_OK_AND_ASSIGN(auto actor, MakeActor("a"));
  EXPECT_EQ(actor.status().external_snapshot().snapshot_uri(), world().objects.begin()->first);
  EXPECT_THAT(Delete(), HasReason(Code::kFailedPrecondition, "TEMPLATE_IN_USE"));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 77);
  ASSERT_OK(Await(StartRevert("a")));  // back to the golden snapshot
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 77);
  ASSERT_OK(Await(StartSuspend("a")));
  EXPECT_EQ(world().objects.size(), 2u);
  ASSERT_OK(Delete());
  Run();
  EXPECT_EQ(world().objects.size(), 1u) << "the actor's own stays";
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kFailedPrecondition, "TEMPLATE_NOT_FOUND"));
  EXPECT_TRUE(world().problems.empty());
}

TEST_F(Golden, ProbesReplaceTheWarmUp) {
  MakeAtespace();
  Register();
  ASSERT_OK(MakeTemplate(GoldenTemplate(/*probe=*/true)));
  Run();
  EXPECT_TRUE(Status().has_golden_tag());
}

TEST_F(Golden, DisabledIsSkipped) {
  MakeAtespace();
  Register();
  ASSERT_OK(MakeTemplate(Template()));
  RunFor(std::chrono::minutes(1));
  EXPECT_FALSE(Status().has_golden_tag());
  EXPECT_EQ(world().calls["StartActor"], 0);
}

TEST_F(Golden, CrashIsFinal) {
  MakeAtespace();
  Register();
  world().FailNext("StartActor", Fail(reasons::kWorkloadExited, "exit code 127"), 1000);
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::minutes(5));
  EXPECT_EQ(Status().error_message(), "GoldenActorCrashed: WORKLOAD_EXITED: exit code 127");
  EXPECT_EQ(world().calls["StartActor"], 1);
  EXPECT_EQ(GoldenActors(), 0u);
  world().HealAll();
  ASSERT_OK(MakeActor("a"));  // still usable: a cold boot
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_OK(Delete());
}

TEST_F(Golden, BrokenImageEndsInAFinalError) {
  MakeAtespace();
  Register();
  world().FailNext("StartActor", Fail(reasons::kImageRegistryUnavailable, "no such registry"),
                   1000);
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::minutes(30));
  EXPECT_THAT(Status().error_message(), ::testing::HasSubstr("IMAGE_REGISTRY_UNAVAILABLE"));
  EXPECT_LE(world().calls["StartActor"], 8);
  EXPECT_EQ(GoldenActors(), 0u);
}

TEST_F(Golden, BrokenStorageEndsInAFinalError) {
  for (bool permanent : {false, true}) {
    Reset();
    MakeAtespace();
    Register();
    world().FailNext("UploadSnapshot",
                     permanent ? Fail(reasons::kStoreDenied, "bucket is not allowed")
                               : Fail(reasons::kObjectStorageUnavailable, "no route"),
                     1000);
    ASSERT_OK(MakeTemplate(GoldenTemplate()));
    RunFor(std::chrono::minutes(30));
    EXPECT_THAT(Status().error_message(), ::testing::HasSubstr("GoldenActorInvalid"));
    EXPECT_EQ(GoldenActors(), 0u);
  }
}

TEST_F(Golden, CopyIsRetriedAndThenGivenUp) {
  MakeAtespace();
  Register();
  world().FailNext("Copy", Fail(reasons::kObjectStorageUnavailable, "503"), 2);
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::minutes(2));
  EXPECT_TRUE(Status().has_golden_tag());
  EXPECT_EQ(world().objects.size(), 1u);
}

TEST_F(Golden, RestartsAtAnyStep) {
  MakeAtespace();
  Register();
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  for (int i = 0; i < 40 && !Status().has_golden_tag(); ++i) {
    Restart();
    plane->RunReady();
    if (world().queued() > 0) world().RunAt(0);
    plane->RunReady();
    clock.Advance(std::chrono::seconds(1));
    RenewLease();
  }
  RunFor(std::chrono::seconds(30));
  EXPECT_TRUE(Status().has_golden_tag());
  EXPECT_EQ(Status().error_message(), "");
  EXPECT_EQ(world().objects.size(), 1u);
  EXPECT_TRUE(world().problems.empty()) << world().problems.front();
}

TEST_F(Golden, WorkerRestartDuringBootIsTriedAgain) {
  MakeAtespace();
  Register();
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::seconds(3));
  ++world().worker_epoch;
  world().sandboxes.clear();
  Register();
  RunFor(std::chrono::seconds(40));
  EXPECT_TRUE(Status().has_golden_tag());
}

TEST_F(Golden, DeletedTemplateTakesItsGoldenActorAlong) {
  MakeAtespace();
  Register();
  ASSERT_OK(MakeTemplate(GoldenTemplate()));
  RunFor(std::chrono::seconds(3));
  ASSERT_EQ(world().sandboxes.size(), 1u);
  ASSERT_OK(Delete());
  Run();
  EXPECT_TRUE(world().sandboxes.empty());
  EXPECT_EQ(GoldenActors(), 0u);
  EXPECT_TRUE(world().objects.empty());
}

}  // namespace
}  // namespace torpor::control
