#include "worker/worker_service.h"

#include <thread>

#include "model/door_line.h"
#include "worker/testing/service_fixture.h"

namespace torpor::worker {
namespace {

TEST_F(WorkerServiceTest, StartServesAndRecordsItsPhases) {
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(MakeStart(3)));
  ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  EXPECT_EQ(op.start().address(), "unix:" + dir_ + "/door.sock");
  EXPECT_TRUE(op.start().cold_boot());
  ASSERT_EQ(op.phases_size(), 2);
  EXPECT_EQ(op.phases(0).name(), "boot");
  EXPECT_EQ(op.phases(1).name(), "probe");
  EXPECT_EQ(op.phases(1).component(), "worker");
  EXPECT_EQ(Ask(3), "2");  // the probe was the first request
  EXPECT_EQ(Ask(2), "STALE_GENERATION");
  EXPECT_EQ(Ask(3, 8081), "NO_SUCH_PORT");
  runtime::StartArgs args = runtime_.last_start();
  EXPECT_EQ(args.sandbox_id, kUid);
  EXPECT_EQ(args.bundles_dir, ActorDir() + "/bundles");
  EXPECT_TRUE(args.restore_dir.empty());
  ASSERT_EQ(service_->ListWorkloads().residents_size(), 1);
  EXPECT_EQ(service_->ListWorkloads().residents(0).generation(), 3);
}

TEST_F(WorkerServiceTest, CaptureEndsTheActorAndListsTheFiles) {
  StartOk(3);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(MakeCapture(4)));
  ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  ASSERT_EQ(op.capture().files_size(), 1);
  EXPECT_EQ(op.capture().files(0).name(), "memory.img");
  EXPECT_EQ(op.capture().meta().generation(), 4);
  EXPECT_EQ(op.capture().meta().runtime(), "scripted");
  ASSERT_EQ(op.phases_size(), 2);
  EXPECT_EQ(op.phases(0).name(), "drain");
  EXPECT_EQ(op.phases(1).name(), "checkpoint");
  EXPECT_TRUE(std::filesystem::exists(ActorDir() + "/checkpoint-state/memory.img"));
  EXPECT_EQ(Ask(3), "NOT_HERE");
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 0);
  // The next start waits for what is still being removed.
  StartOk(5);
  EXPECT_EQ(Ask(5), "2");
  EXPECT_EQ(exits_.count(), 0u);
}

TEST_F(WorkerServiceTest, RestoreHandsOverExactlyTheCheckedFiles) {
  std::ofstream(ActorDir() + "/local-checkpoint/g1/memory.img") << "12345";
  StartWorkloadRequest request = MakeStart(3);
  request.mutable_dirs()->set_restore(request.dirs().root() + "/local-checkpoint/g1");
  request.set_restore(torpor::v1::FIDELITY_MEMORY);
  request.set_preserve_restore(true);
  torpor::v1::SnapshotFile* file = request.add_files();
  file->set_name("memory.img");
  file->set_logical_bytes(5);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(request));
  ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  EXPECT_FALSE(op.start().cold_boot());
  EXPECT_EQ(op.phases(0).name(), "restore");
  runtime::StartArgs args = runtime_.last_start();
  EXPECT_EQ(args.restore_dir, ActorDir() + "/local-checkpoint/g1");
  EXPECT_TRUE(args.preserve_restore);
  EXPECT_EQ(runtime_.prepared(), 1);

  auto stop = Make<StopWorkloadRequest>(3);
  ASSERT_OK(service_->StopWorkload(stop).status());
  request = MakeStart(4);
  request.mutable_dirs()->set_restore(request.dirs().root() + "/local-checkpoint/g1");
  request.set_restore(torpor::v1::FIDELITY_MEMORY);
  request.add_files()->set_name("memory.img");
  request.mutable_files(0)->set_logical_bytes(6);
  ASSERT_OK_AND_ASSIGN(op, service_->StartWorkload(request));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_ran"], "false");
  EXPECT_EQ(reason, "SNAPSHOT_CORRUPT");
}

TEST_F(WorkerServiceTest, FailedStartsTearDownAndSayWhy) {
  struct {
    Script script;
    const char* reason;
    const char* guest_ran;
    const char* message;
  } cases[] = {
      {{.start_error = Error(Code::kInternal, "RUNTIME_FAILED", "runsc said no")},
       "RUNTIME_FAILED",
       "false",
       "runsc said no"},
      {{.start_error = Error(Code::kInternal, "RUNTIME_FAILED", "late"), .guest_ran = true},
       "RUNTIME_FAILED",
       "true",
       "late"},
      {{.status = 500}, "WORKLOAD_NOT_READY", "true", "status 500"},
      {{.listens = false}, "WORKLOAD_NOT_READY", "true", "Connection refused"},
      {{.exits_at_start = true}, "WORKLOAD_EXITED", "true", "no such file: model.bin"},
  };
  int64_t generation = 1;
  for (const auto& c : cases) {
    runtime_.script() = c.script;
    StartWorkloadRequest request = MakeStart(generation++);
    request.mutable_spec()->mutable_containers(0)->mutable_wakeup_probe()->set_timeout_seconds(1);
    ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(request));
    EXPECT_EQ(op.state(), Operation::STATE_FAILED);
    std::string reason;
    EXPECT_EQ(ErrorOf(op, &reason)["guest_ran"], c.guest_ran) << c.message;
    EXPECT_EQ(reason, c.reason);
    EXPECT_NE(op.error().message().find(c.message), std::string::npos) << op.error().message();
    EXPECT_EQ(service_->ListWorkloads().residents_size(), 0);
  }
  runtime_.script() = {};
  StartOk(generation);
  EXPECT_EQ(exits_.count(), 0u);
}

TEST_F(WorkerServiceTest, FailedCaptureWithALivingGuestChangesNothing) {
  runtime_.script().capture_error = Error(Code::kResourceExhausted, "DISK_FULL", "disk is full");
  runtime_.script().alive_after_capture_error = true;
  StartOk(3);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(MakeCapture(4)));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "true");
  EXPECT_EQ(reason, "DISK_FULL");
  EXPECT_EQ(Ask(3), "2");
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 1);
}

TEST_F(WorkerServiceTest, FailedCaptureWithADeadGuestRemovesIt) {
  runtime_.script().capture_error = Error(Code::kInternal, "RUNTIME_FAILED", "sentry died");
  StartOk(3);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(MakeCapture(4)));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "false");
  EXPECT_EQ(reason, "RUNTIME_FAILED");
  EXPECT_EQ(Ask(3), "NOT_HERE");
  EXPECT_EQ(exits_.count(), 0u);  // the outcome has told it
}

TEST_F(WorkerServiceTest, CapturesThatCannotBegin) {
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(MakeCapture(4)));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "false");
  EXPECT_EQ(reason, "ACTOR_NOT_FOUND");
  CaptureWorkloadRequest volumes = MakeCapture(4);
  volumes.set_fidelity(torpor::v1::FIDELITY_ROOTFS);
  EXPECT_THAT(service_->CaptureWorkload(volumes),
              HasReason(Code::kInvalidArgument, "FIDELITY_UNSUPPORTED"));
}

TEST_F(WorkerServiceTest, D9_ARequestInFlightCallsACaptureForIdlenessOff) {
  StartOk(3);
  // The router r1, which always has one request in flight.
  UniqueFd control = Connect();
  std::string hello =
      "GET /torpor/control HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: torpor-control/1\r\n"
      "torpor-router: r1\r\n\r\n";
  ASSERT_GT(send(control.get(), hello.data(), hello.size(), MSG_NOSIGNAL), 0);
  char buffer[4096];
  ASSERT_GT(recv(control.get(), buffer, sizeof(buffer), 0), 0);
  std::string answer;
  UniqueFd open = Open(3, 8080, &answer);
  std::thread router([&] {
    std::string text;
    for (ssize_t n = 0; (n = recv(control.get(), buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
      for (size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        StatusOr<torpor::v1::DoorLine> line = ParseDoorLine(text.substr(0, end));
        if (!line.ok() || !line->has_drain()) continue;
        torpor::v1::DoorLine busy;
        busy.mutable_busy()->set_uid(line->drain().uid());
        busy.mutable_busy()->set_gen(line->drain().gen());
        busy.mutable_busy()->set_seq(line->drain().seq());
        busy.mutable_busy()->set_inflight(1);
        std::string out = FormatDoorLine(busy);
        EXPECT_GT(send(control.get(), out.data(), out.size(), MSG_NOSIGNAL), 0);
      }
    }
  });
  CaptureWorkloadRequest request = MakeCapture(4);
  request.set_reason(torpor::v1::CAPTURE_REASON_IDLE);
  request.set_refuse_if_busy(true);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(request));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "true");
  EXPECT_EQ(reason, "ACTOR_BUSY");
  EXPECT_EQ(Ask(3), "2") << "it goes on";
  // Any other capture gives it its grace, and then ends it.
  request = MakeCapture(5);
  request.set_reason(torpor::v1::CAPTURE_REASON_API);
  *request.mutable_drain_grace() = ToProto(std::chrono::milliseconds(10));
  ASSERT_OK_AND_ASSIGN(op, service_->CaptureWorkload(request));
  EXPECT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  char byte;
  EXPECT_LE(recv(open.get(), &byte, 1, 0), 0);
  shutdown(control.get(), SHUT_RDWR);
  router.join();
}

TEST_F(WorkerServiceTest, LeaveRunningGoesOn) {
  StartOk(3);
  CaptureWorkloadRequest request = MakeCapture(4);
  request.set_leave_running(true);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(request));
  EXPECT_TRUE(op.capture().left_running());
  EXPECT_EQ(Ask(3), "2");
}

TEST_F(WorkerServiceTest, AnExitIsReportedOnceAndCleanedUp) {
  StartOk(3);
  runtime_.EndGuest(kUid, 7);
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.actor_uid(), kUid);
  EXPECT_EQ(report.generation(), 3);
  EXPECT_EQ(report.exit_code(), 7);
  EXPECT_EQ(report.reason(), "WORKLOAD_EXITED");
  EXPECT_EQ(report.container(), "app");
  EXPECT_NE(report.message().find("guest starts"), std::string::npos);
  EXPECT_TRUE(IsUuid(report.event_id()));
  EXPECT_EQ(Ask(3), "NOT_HERE");
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 0);
  StartOk(4);
  EXPECT_EQ(exits_.count(), 1u);
}

TEST_F(WorkerServiceTest, AnExitNamesTheContainerOfSeveral) {
  StartWorkloadRequest request = MakeStart(3);
  request.mutable_spec()->add_containers()->set_name("side");
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(request));
  ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  runtime_.EndGuest(kUid, 7, "side");
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.container(), "side");
  EXPECT_EQ(report.exit_code(), 7);
  EXPECT_EQ(report.message().rfind("container side exited with code 7", 0), 0u) << report.message();
}

TEST_F(WorkerServiceTest, StopIsIdempotent) {
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StopWorkload(Make<StopWorkloadRequest>(1)));
  EXPECT_EQ(op.state(), Operation::STATE_SUCCEEDED);
  StartOk(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(op, service_->StopWorkload(Make<StopWorkloadRequest>(2)));
    EXPECT_EQ(op.state(), Operation::STATE_SUCCEEDED);
  }
  EXPECT_EQ(exits_.count(), 0u);
}

TEST_F(WorkerServiceTest, OperationsAreFencedAndRepeatable) {
  StartWorkloadRequest request = MakeStart(5);
  ASSERT_OK_AND_ASSIGN(Operation first, service_->StartWorkload(request));
  request.mutable_op()->set_traceparent("another");
  request.mutable_op()->mutable_timeout()->set_seconds(1);
  ASSERT_OK_AND_ASSIGN(Operation again, service_->StartWorkload(request));
  EXPECT_EQ(first.SerializeAsString(), again.SerializeAsString());
  EXPECT_EQ(Ask(5), "2");  // not started twice

  request.mutable_spec()->set_memory_bytes(1);
  EXPECT_THAT(service_->StartWorkload(request),
              HasReason(Code::kInvalidArgument, "REQUEST_ID_REUSED"));
  auto stop = Make<StopWorkloadRequest>(5);
  stop.mutable_op()->set_op_id(request.op().op_id());
  EXPECT_THAT(service_->StopWorkload(stop), HasReason(Code::kInvalidArgument, "REQUEST_ID_REUSED"));
  EXPECT_THAT(service_->StopWorkload(Make<StopWorkloadRequest>(4)),
              HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));

  torpor::v1::GetOperationRequest get;
  get.set_op_id(request.op().op_id());
  ASSERT_OK_AND_ASSIGN(Operation asked, service_->GetOperation(get));
  EXPECT_EQ(asked.SerializeAsString(), first.SerializeAsString());

  StopWorkloadRequest late = Make<StopWorkloadRequest>(5);
  get.set_op_id(late.op().op_id());
  get.set_refuse_if_unknown(true);
  EXPECT_THAT(service_->GetOperation(get), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_THAT(service_->StopWorkload(late), HasReason(Code::kAborted, "SUPERSEDED"));
}

TEST_F(WorkerServiceTest, AHigherGenerationEndsAWaitingStart) {
  runtime_.script().status = 503;  // never ready
  StartWorkloadRequest start = MakeStart(1);
  start.mutable_spec()->mutable_containers(0)->mutable_wakeup_probe()->set_timeout_seconds(3600);
  start.mutable_op()->mutable_timeout()->set_seconds(3600);
  Operation outcome, joined;
  auto run = [&](Operation* into) {
    StatusOr<Operation> op = service_->StartWorkload(start);
    ASSERT_OK(op);
    *into = *op;
  };
  std::thread starter(run, &outcome);
  torpor::v1::GetOperationRequest get;
  get.set_op_id(start.op().op_id());
  while (service_->ListWorkloads().residents_size() == 0) std::this_thread::yield();
  EXPECT_THAT(service_->StopWorkload(Make<StopWorkloadRequest>(1)),
              HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  ASSERT_OK_AND_ASSIGN(Operation running, service_->GetOperation(get));
  EXPECT_EQ(running.state(), Operation::STATE_RUNNING);
  std::thread joiner(run, &joined);  // the same op id: the same operation
  ASSERT_OK_AND_ASSIGN(Operation stop, service_->StopWorkload(Make<StopWorkloadRequest>(2)));
  EXPECT_EQ(stop.state(), Operation::STATE_SUCCEEDED);
  starter.join();
  joiner.join();
  EXPECT_EQ(joined.SerializeAsString(), outcome.SerializeAsString());
  std::string reason;
  ErrorOf(outcome, &reason);
  EXPECT_EQ(reason, "SUPERSEDED");
}

TEST_F(WorkerServiceTest, CapacityIsKept) {
  StartOk(1);
  for (const char* uid :
       {"22222222-2222-4333-8444-555555555555", "33333333-2222-4333-8444-555555555555"}) {
    for (const char* part : {"bundles", "state", "logs"}) {
      std::filesystem::create_directories(fmt::format("{}/actors/{}/{}", dir_, uid, part));
    }
  }
  ASSERT_OK_AND_ASSIGN(Operation second, service_->StartWorkload(
                                             MakeStart(1, "22222222-2222-4333-8444-555555555555")));
  EXPECT_EQ(second.state(), Operation::STATE_SUCCEEDED) << second.ShortDebugString();
  ASSERT_OK_AND_ASSIGN(Operation third, service_->StartWorkload(
                                            MakeStart(1, "33333333-2222-4333-8444-555555555555")));
  std::string reason;
  ErrorOf(third, &reason);
  EXPECT_EQ(reason, "NO_CAPACITY");
  ASSERT_OK_AND_ASSIGN(Operation again, service_->StartWorkload(MakeStart(2)));
  ErrorOf(again, &reason);
  EXPECT_EQ(reason, "WRONG_STATE");
}

TEST_F(WorkerServiceTest, HostileNamesAndPathsAreRefused) {
  auto refused = [&](const std::function<void(StartWorkloadRequest*)>& change) {
    StartWorkloadRequest request = MakeStart(1);
    change(&request);
    StatusOr<Operation> op = service_->StartWorkload(request);
    return op.status().code() == Code::kInvalidArgument;
  };
  const std::string root = fmt::format("actors/{}", kUid);
  const std::vector<std::string> paths = {"",
                                          "/etc",
                                          "../x",
                                          root,
                                          root + "/",
                                          root + "/../other",
                                          root + "/./state",
                                          root + "//state",
                                          root + "x/state",
                                          "actors/other/state",
                                          root + "/state" + std::string(1, '\0'),
                                          "state"};
  for (const std::string& path : paths) {
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_dirs()->set_state(path); })) << path;
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_dirs()->set_bundles(path); })) << path;
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_dirs()->set_logs(path); })) << path;
    EXPECT_TRUE(refused([&](auto* r) {
      r->set_restore(torpor::v1::FIDELITY_MEMORY);
      r->mutable_dirs()->set_restore(path);
    })) << path;
    CaptureWorkloadRequest capture = MakeCapture(1);
    capture.mutable_dirs()->set_capture(path);
    EXPECT_THAT(service_->CaptureWorkload(capture), HasCode(Code::kInvalidArgument)) << path;
  }
  for (const char* bad_root : {"", "/", "actors", "actors/..", "actors/someone-else"}) {
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_dirs()->set_root(bad_root); })) << bad_root;
  }
  for (const char* name : {"", "..", "a/b", "../app", "A", "a\n", "-a", "app.log"}) {
    EXPECT_TRUE(refused([&](auto* r) { r->mutable_spec()->mutable_containers(0)->set_name(name); }))
        << name;
  }
  for (const char* name : {"", "..", "../../etc/passwd", "/x", "a/../b", ".hidden", "a//b"}) {
    EXPECT_TRUE(refused([&](auto* r) {
      r->set_restore(torpor::v1::FIDELITY_MEMORY);
      r->add_files()->set_name(name);
    })) << name;
  }
  for (const char* path : {"x", "/a b", "/a\r\nX: y", "/\x7f"}) {
    EXPECT_TRUE(refused([&](auto* r) {
      r->mutable_spec()
          ->mutable_containers(0)
          ->mutable_wakeup_probe()
          ->mutable_http_get()
          ->set_path(path);
    })) << path;
  }
  EXPECT_TRUE(refused([](auto* r) { r->mutable_op()->set_actor_uid("../../x"); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_op()->set_op_id("x"); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_op()->set_generation(0); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_actor()->set_uid(""); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_spec()->clear_containers(); }));
  EXPECT_TRUE(refused([](auto* r) { r->mutable_spec()->set_http_port(70000); }));
}

TEST_F(WorkerServiceTest, LinksInTheNodeDirectoryAreNotFollowed) {
  std::string outside = dir_ + "-outside";
  std::filesystem::create_directories(outside);
  for (const char* part : {"bundles", "state", "logs"}) {
    std::string path = ActorDir() + "/" + part;
    std::string kept = path + "-kept";
    std::filesystem::rename(path, kept);
    std::filesystem::create_directory_symlink(outside, path);
    static int64_t generation = 1;
    ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(MakeStart(generation++)));
    EXPECT_EQ(op.state(), Operation::STATE_FAILED) << part;
    std::filesystem::remove(path);
    std::filesystem::rename(kept, path);
  }
  EXPECT_TRUE(std::filesystem::is_empty(outside));
  std::filesystem::remove_all(outside);
}

TEST_F(WorkerServiceTest, LogsOfTheGuestAreWritten) {
  StartOk(3);
  ASSERT_OK(service_->StopWorkload(Make<StopWorkloadRequest>(3)).status());
  std::stringstream text;
  text << std::ifstream(ActorDir() + "/logs/app.log").rdbuf();
  EXPECT_NE(text.str().find("\"line\":\"guest starts\""), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("\"generation\":3"), std::string::npos);
}

TEST_F(WorkerServiceTest, RegistrationMakesItReadyAndShutdownStopsAll) {
  EXPECT_FALSE(service_->GetInfo().ready());
  torpor::v1::RegisterWorkerResponse registration;
  registration.set_worker_uid("w");
  registration.set_epoch(4);
  service_->SetRegistration(registration);
  EXPECT_TRUE(service_->GetInfo().ready());
  StartOk(1);
  EXPECT_EQ(service_->ListWorkloads().residents(0).worker_uid(), "w");
  service_->Shutdown();
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 0);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(MakeStart(2)));
  std::string reason;
  ErrorOf(op, &reason);
  EXPECT_EQ(reason, "SHUTTING_DOWN");
}

}  // namespace
}  // namespace torpor::worker
