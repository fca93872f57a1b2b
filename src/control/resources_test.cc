// Creates, updates, deletes, lists and page tokens; and the same control plane with its own thread.

#include <atomic>
#include <filesystem>
#include <thread>

#include "control/page_token.h"
#include "control/store/sqlite/sqlite_store.h"
#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

class Resources : public PlaneTest {};

TEST_F(Resources, Atespaces) {
  MakeAtespace();
  ateapi::CreateAtespaceRequest create;
  create.mutable_atespace()->mutable_metadata()->set_name("demo");
  EXPECT_THAT(plane->CreateAtespace(create), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  create.mutable_atespace()->mutable_metadata()->set_name("ate-golden");
  EXPECT_THAT(plane->CreateAtespace(create),
              HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
  ASSERT_OK_AND_ASSIGN(auto list, plane->ListAtespaces({}));
  ASSERT_EQ(list.atespaces_size(), 2);
  EXPECT_EQ(list.atespaces(0).metadata().name(), "ate-golden");
  EXPECT_EQ(list.atespaces(1).metadata().version(), 1);
  ASSERT_OK(MakeTemplate(Template()));
  ateapi::DeleteAtespaceRequest remove;
  remove.mutable_atespace()->set_name("demo");
  EXPECT_THAT(plane->DeleteAtespace(remove),
              HasReason(Code::kFailedPrecondition, "ATESPACE_NOT_EMPTY"));
  remove.mutable_atespace()->set_name("none");
  EXPECT_THAT(plane->DeleteAtespace(remove), HasReason(Code::kNotFound, "ATESPACE_NOT_FOUND"));
}

TEST_F(Resources, TemplatesAndActorsNeedWhatTheyName) {
  EXPECT_THAT(MakeTemplate(Template()), HasReason(Code::kFailedPrecondition, "PARENT_NOT_FOUND"));
  MakeAtespace();
  ateapi::ActorTemplate tmpl = Template();
  tmpl.mutable_sandbox_config()->set_config_name("none");
  EXPECT_THAT(MakeTemplate(tmpl), HasReason(Code::kFailedPrecondition, "SANDBOX_CONFIG_NOT_FOUND"));
  tmpl = Template();
  tmpl.mutable_sandbox_config()->set_sandbox_class(ateapi::SANDBOX_CLASS_MICROVM);
  EXPECT_THAT(MakeTemplate(tmpl), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(MakeActor("a"), HasReason(Code::kFailedPrecondition, "TEMPLATE_NOT_FOUND"));
  ASSERT_OK_AND_ASSIGN(auto made, MakeTemplate(Template()));
  EXPECT_EQ(made.snapshot_config().storage_location(), "file:///store");
  EXPECT_EQ(made.snapshot_config().on_commit(), ateapi::SNAPSHOT_CONTENT_SCOPE_FULL);
  ASSERT_OK(MakeActor("a"));
  EXPECT_THAT(MakeActor("a"), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  ateapi::CreateActorRequest fork;
  fork.mutable_actor()->mutable_metadata()->set_atespace("demo");
  fork.mutable_actor()->mutable_metadata()->set_name("b");
  *fork.mutable_actor()->mutable_actor_template() = Ref("counter");
  *fork.mutable_actor()->mutable_source_tag() = Ref("none");
  EXPECT_THAT(plane->CreateActor(fork), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
}

TEST_F(Resources, UpdateReplacesUnderPreconditions) {
  MakeAll();
  ateapi::UpdateActorRequest update;
  *update.mutable_actor() = Get("a");
  ateapi::Actor& actor = *update.mutable_actor();
  (*actor.mutable_worker_selector()->mutable_match_labels())["zone"] = "a";
  actor.mutable_idle_policy()->mutable_pause_after()->set_seconds(60);
  ASSERT_OK_AND_ASSIGN(auto updated, plane->UpdateActor(update));
  EXPECT_EQ(updated.metadata().version(), 2);
  EXPECT_THAT(plane->UpdateActor(update), HasReason(Code::kAborted, "VERSION_CONFLICT"));
  actor = updated;
  actor.clear_worker_selector();
  actor.clear_idle_policy();
  ASSERT_OK_AND_ASSIGN(updated, plane->UpdateActor(update));
  EXPECT_FALSE(updated.has_worker_selector()) << "public: unset clears";
  EXPECT_TRUE(updated.has_idle_policy()) << "ours: unset keeps";
  actor = updated;
  actor.mutable_metadata()->set_uid("00000000-0000-4000-8000-ffffffffffff");
  EXPECT_THAT(plane->UpdateActor(update), HasReason(Code::kAborted, "UID_CONFLICT"));
  actor.mutable_metadata()->clear_uid();
  EXPECT_THAT(plane->UpdateActor(update),
              HasReason(Code::kInvalidArgument, "PRECONDITION_MISSING"));
  actor = updated;
  *actor.mutable_source_tag() = Ref("tag");
  EXPECT_THAT(plane->UpdateActor(update), HasReason(Code::kInvalidArgument, "FIELD_IMMUTABLE"));
}

TEST_F(Resources, TemplateChangesOnlyWhileSuspendedAndNarrowsTheRestore) {
  MakeAll();
  ASSERT_OK(MakeTemplate(Template("second")));
  ateapi::ActorTemplate other = Template("other");
  other.add_volumes()->set_name("data");
  ASSERT_OK(MakeTemplate(other));
  ASSERT_OK(Await(StartResume("a")));
  ateapi::UpdateActorRequest update;
  *update.mutable_actor() = Get("a");
  *update.mutable_actor()->mutable_actor_template() = Ref("second");
  EXPECT_THAT(plane->UpdateActor(update), HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
  ASSERT_OK(Await(StartSuspend("a")));
  *update.mutable_actor() = Get("a");
  *update.mutable_actor()->mutable_actor_template() = Ref("other");
  auto refused = plane->UpdateActor(update).status();
  EXPECT_THAT(refused, HasReason(Code::kFailedPrecondition, "TEMPLATE_CHANGE_INCOMPATIBLE"));
  EXPECT_EQ(MetadataOf(refused)["field"], "volumes");
  *update.mutable_actor()->mutable_actor_template() = Ref("second");
  ASSERT_OK(plane->UpdateActor(update));
  ASSERT_OK(Await(StartResume("a")));
  torpor::v1::ExplainActorRequest explain;
  *explain.mutable_actor() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto report, plane->ExplainActor(explain));
  EXPECT_EQ(report.reports(0).fidelity(), torpor::v1::FIDELITY_VOLUMES);
}

TEST_F(Resources, ListsInPages) {
  MakeAll();
  for (const char* name : {"b", "c", "d"}) ASSERT_OK(MakeActor(name));
  ateapi::ListActorsRequest request;
  request.set_atespace("demo");
  request.set_page_size(3);
  ASSERT_OK_AND_ASSIGN(auto page, plane->ListActors(request));
  ASSERT_EQ(page.actors_size(), 3);
  EXPECT_EQ(page.actors(2).metadata().name(), "c");
  request.set_page_token(page.next_page_token());
  ASSERT_OK_AND_ASSIGN(page, plane->ListActors(request));
  ASSERT_EQ(page.actors_size(), 1);
  EXPECT_EQ(page.next_page_token(), "");
  request.add_states(ateapi::ACTOR_STATE_RUNNING);
  EXPECT_THAT(plane->ListActors(request), HasReason(Code::kInvalidArgument, "PAGE_TOKEN_INVALID"));
  request.clear_page_token();
  ASSERT_OK_AND_ASSIGN(page, plane->ListActors(request));
  EXPECT_EQ(page.actors_size(), 0);
  request.set_page_size(-1);
  EXPECT_THAT(plane->ListActors(request), HasCode(Code::kInvalidArgument));
}

TEST_F(Resources, WorkersAndNodes) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK_AND_ASSIGN(auto workers, plane->ListWorkers({}));
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).status().allocated().actors(), 1);
  const std::string name = workers.workers(0).metadata().name();
  ateapi::ListWorkerActorAssignmentsRequest assignments;
  assignments.mutable_worker()->set_name(name);
  ASSERT_OK_AND_ASSIGN(auto bound, plane->ListWorkerActorAssignments(assignments));
  ASSERT_EQ(bound.actor_assignments_size(), 1);
  EXPECT_EQ(bound.actor_assignments(0).actor().name(), "a");
  assignments.mutable_worker()->set_name("none");
  EXPECT_THAT(plane->ListWorkerActorAssignments(assignments),
              HasReason(Code::kNotFound, "WORKER_NOT_FOUND"));
  ASSERT_OK_AND_ASSIGN(auto nodes, plane->ListNodes({}));
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).state(), torpor::v1::Node::STATE_READY);
  EXPECT_EQ(nodes.nodes(0).running_actors(), 1);
  ateapi::DrainWorkerRequest drain;
  drain.mutable_worker()->set_name(name);
  ASSERT_OK_AND_ASSIGN(auto drained, plane->DrainWorker(drain));
  ASSERT_OK_AND_ASSIGN(auto again, plane->DrainWorker(drain));
  EXPECT_EQ(again.metadata().version(), drained.metadata().version());
  ASSERT_OK(MakeActor("b"));
  EXPECT_THAT(Await(StartResume("b")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_EQ(State("a"), ateapi::ACTOR_STATE_RUNNING);
}

TEST_F(Resources, StaleLeases) {
  MakeAll();
  torpor::v1::RenewLeaseRequest renew;
  renew.set_lease_id("other");
  EXPECT_THAT(plane->RenewLease(renew), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  renew.set_lease_id(lease_id);
  renew.set_boot_id("another boot");
  EXPECT_THAT(plane->RenewLease(renew), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  renew.set_boot_id(world().boot_id);
  EXPECT_OK(plane->RenewLease(renew));
  clock.Advance(std::chrono::seconds(23));
  EXPECT_THAT(plane->RenewLease(renew), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  EXPECT_THAT(plane->ReportUsage({}), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
}

TEST(PageToken, BindsAndDetectsDamage) {
  std::string token = MakePageToken("ListActors/demo", std::string(127, 'x'));
  EXPECT_LE(token.size(), 256u);
  EXPECT_EQ(*ReadPageToken("ListActors/demo", token), std::string(127, 'x'));
  EXPECT_EQ(*ReadPageToken("ListActors/demo", ""), "");
  for (size_t i = 0; i < token.size(); ++i) {
    std::string damaged = token;
    damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
    auto read = ReadPageToken("ListActors/demo", damaged);
    EXPECT_TRUE(!read.ok() || *read == std::string(127, 'x')) << i;
  }
  EXPECT_FALSE(ReadPageToken("ListTags/demo", token).ok());
  EXPECT_FALSE(ReadPageToken("ListActors/demo", "!!").ok());
  EXPECT_FALSE(ReadPageToken("ListActors/demo", std::string(300, 'A')).ok());
}

// A node that answers every call at once, from the thread that calls.
class InstantNode : public NodeClient {
 public:
  static void Ok(const torpor::v1::OpHeader& op, const OperationDone& done) {
    torpor::v1::Operation operation;
    operation.set_op_id(op.op_id());
    operation.set_state(torpor::v1::Operation::STATE_SUCCEEDED);
    done(operation);
  }
  void StartActor(const torpor::v1::StartActorRequest& r, Duration, OperationDone done) override {
    Ok(r.op(), done);
  }
  void CaptureActor(const torpor::v1::CaptureActorRequest& r, Duration,
                    OperationDone done) override {
    Ok(r.op(), done);
  }
  void UploadSnapshot(const torpor::v1::UploadSnapshotRequest& r, Duration,
                      OperationDone done) override {
    Ok(r.op(), done);
  }
  void StopActor(const torpor::v1::StopActorRequest& r, Duration, OperationDone done) override {
    Ok(r.op(), done);
  }
  void DeleteLocalSnapshots(const torpor::v1::DeleteLocalSnapshotsRequest& r, Duration,
                            OperationDone done) override {
    Ok(r.op(), done);
  }
  void GetOperation(const torpor::v1::GetOperationRequest&, Duration, OperationDone done) override {
    done(Fail(reasons::kOperationNotFound, ""));
  }
};

class NoObjects : public SnapshotAdmin {
 public:
  void CopySnapshot(const torpor::v1::SnapshotRef&, const std::string&, DoneStatus done) override {
    done(OkStatus());
  }
  void DeleteSnapshot(const std::string&, DoneStatus done) override { done(OkStatus()); }
};

TEST(ControlPlaneThread, ManyCallersOverSqliteAndARestart) {
  std::string dir = ::testing::TempDir() + "/torpor-plane-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(dir + "/torpor.db"));
  NoObjects objects;
  ControlPlane::Parts parts{store.get(), &objects,
                            [](const std::string&) { return std::make_shared<InstantNode>(); },
                            Clock::Real(), IdSource::Real()};
  Settings settings;
  settings.default_storage_location = "file:///store";
  constexpr int kThreads = 4;
  constexpr int kRounds = 5;
  {
    ASSERT_OK_AND_ASSIGN(auto plane, ControlPlane::Create(parts, settings));
    FakeClock unused;
    ASSERT_OK(plane->RegisterNode(FakeWorld(&unused).Registration()));
    ateapi::CreateAtespaceRequest space;
    space.mutable_atespace()->mutable_metadata()->set_name("demo");
    ASSERT_OK(plane->CreateAtespace(space));
    ateapi::CreateActorTemplateRequest tmpl;
    tmpl.mutable_actor_template()->mutable_metadata()->set_atespace("demo");
    tmpl.mutable_actor_template()->mutable_metadata()->set_name("t");
    tmpl.mutable_actor_template()->mutable_sandbox_config()->set_config_name("gvisor");
    tmpl.mutable_actor_template()->mutable_sandbox_config()->set_sandbox_class(
        ateapi::SANDBOX_CLASS_GVISOR);
    tmpl.mutable_actor_template()->mutable_golden_config()->set_disabled(true);
    ASSERT_OK(plane->CreateActorTemplate(tmpl));
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ateapi::ObjectRef ref;
        ref.set_atespace("demo");
        ref.set_name("a" + std::to_string(t));
        ateapi::CreateActorRequest create;
        create.mutable_actor()->mutable_metadata()->set_atespace("demo");
        create.mutable_actor()->mutable_metadata()->set_name(ref.name());
        create.mutable_actor()->mutable_actor_template()->set_atespace("demo");
        create.mutable_actor()->mutable_actor_template()->set_name("t");
        failures += !plane->CreateActor(create).ok();
        for (int i = 0; i < kRounds; ++i) {
          Mutex mu;
          CondVar changed;
          int pending = 1;
          auto finish = [&](bool ok) {
            MutexLock lock(&mu);
            failures += !ok;
            --pending;
            changed.SignalAll();
          };
          auto wait = [&] {
            MutexLock lock(&mu);
            while (pending > 0) changed.Wait(&mu);
            pending = 1;
          };
          ateapi::ResumeActorRequest resume;
          *resume.mutable_actor() = ref;
          plane->ResumeActor(resume, {}, [&](auto result) { finish(result.ok()); });
          wait();
          ateapi::PauseActorRequest pause;
          *pause.mutable_actor() = ref;
          plane->PauseActor(pause, {}, [&](auto result) { finish(result.ok()); });
          wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
  }
  ASSERT_OK_AND_ASSIGN(auto plane, ControlPlane::Create(parts, settings));
  ASSERT_OK_AND_ASSIGN(auto list, plane->ListActors({}));
  ASSERT_EQ(list.actors_size(), kThreads);
  for (const ateapi::Actor& actor : list.actors()) {
    EXPECT_EQ(actor.status().state(), ateapi::ACTOR_STATE_PAUSED);
    EXPECT_EQ(actor.status().generation(), 2 * kRounds);
  }
  plane.reset();
  store.reset();
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace torpor::control
