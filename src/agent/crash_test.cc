// Kills the agent before and after every journal record of every operation, starts a new one over
// what is left and checks that nothing acknowledged is lost and nothing hangs.

#include <thread>

#include <fmt/format.h>

#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

using torpor::v1::JournalRecord;
using torpor::v1::Operation;

// Parks the agent's thread at the chosen append, as a process that was killed there.
class CrashPoint : public JournalObserver {
 public:
  // Counted from when it is armed: 2n is before the nth record, 2n + 1 after it.
  void Arm(int at) {
    MutexLock lock(&mu_);
    at_ = at;
    count_ = 0;
  }
  void BeforeAppend(const JournalRecord&) override { Pass(); }
  void AfterAppend(const JournalRecord&) override { Pass(); }

  void Finished() {
    MutexLock lock(&mu_);
    finished_ = true;
    changed_.SignalAll();
  }
  // True when the agent was killed, false when the operation ended before.
  bool WaitForCrash() {
    MutexLock lock(&mu_);
    while (!crashed_ && !finished_) changed_.Wait(&mu_);
    return crashed_;
  }
  // Lets the dead thread go, after everything was checked.
  void Release() {
    MutexLock lock(&mu_);
    released_ = true;
    changed_.SignalAll();
  }

 private:
  void Pass() {
    MutexLock lock(&mu_);
    if (at_ < 0 || crashed_ || count_++ != at_) return;
    crashed_ = true;
    changed_.SignalAll();
    while (!released_) changed_.Wait(&mu_);
  }

  Mutex mu_;
  CondVar changed_;
  int at_ GUARDED_BY(mu_) = -1;
  int count_ GUARDED_BY(mu_) = 0;
  bool crashed_ GUARDED_BY(mu_) = false;
  bool finished_ GUARDED_BY(mu_) = false;
  bool released_ GUARDED_BY(mu_) = false;
};

// The outcome of the id after the crash: what was accepted has one; what was not is unknown.
std::optional<Operation> AskAgain(TestNode& node, const std::string& op_id) {
  torpor::v1::GetOperationRequest get;
  get.set_op_id(op_id);
  get.mutable_wait()->set_seconds(20);
  get.set_refuse_if_unknown(true);
  auto operation = node.agent().GetOperation(get);
  if (!operation.ok()) {
    EXPECT_THAT(operation, HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
    return std::nullopt;
  }
  EXPECT_NE(operation->state(), Operation::STATE_RUNNING) << operation->ShortDebugString();
  return *operation;
}

bool Succeeded(const std::optional<Operation>& operation) {
  return operation && operation->state() == Operation::STATE_SUCCEEDED;
}

// Crashes `run` at every point in turn; `check` gets the outcome after recovery.
void CrashEverywhere(const std::function<void(TestNode&)>& prepare,
                     const std::function<std::string(TestNode&, std::function<void()>*)>& make,
                     const std::function<void(TestNode&, const std::optional<Operation>&)>& check,
                     bool worker_dies) {
  int points = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(fmt::format("crash point {}", at));
    CrashPoint crash;
    TestNode node(&crash);
    prepare(node);
    std::function<void()> run;
    std::string op_id = make(node, &run);
    crash.Arm(at);
    std::thread thread([&] {
      run();
      crash.Finished();
    });
    bool crashed = crash.WaitForCrash();
    if (crashed) {
      ++points;
      if (worker_dies) {
        node.worker().Kill();
        node.worker().Restart();
      }
      node.NewAgent();
      if (worker_dies) node.RegisterWorker();
      std::optional<Operation> outcome = AskAgain(node, op_id);
      check(node, outcome);
    }
    crash.Release();
    thread.join();
    if (!crashed) break;
    ASSERT_LT(at, 100);
  }
  // Every operation has at least ACCEPTED, a step and OUTCOME, each with two sides.
  EXPECT_GE(points, 6);
}

class CrashTest : public testing::TestWithParam<bool> {};

TEST_P(CrashTest, Start) {
  CrashEverywhere(
      StartAndPause,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.StartLocal(3, "s2", 2);
        *run = [&agent = node.agent(), request] { (void)agent.StartActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        if (Succeeded(outcome) && !GetParam()) {
          EXPECT_TRUE(node.worker().Hosts(kActorUid));
          EXPECT_EQ(node.agent().GetInventory().residents_size(), 1);
        } else {
          EXPECT_FALSE(node.worker().Hosts(kActorUid));
        }
        ExpectResumes(node, "s2", 2, "boot+");
      },
      GetParam());
}

TEST_P(CrashTest, StartCold) {
  CrashEverywhere([](TestNode&) {},
                  [](TestNode& node, std::function<void()>* run) {
                    auto request = node.StartRequest(1);
                    *run = [&agent = node.agent(), request] {
                      (void)agent.StartActor(request).ok();
                    };
                    return request.op().op_id();
                  },
                  [](TestNode& node, const std::optional<Operation>& outcome) {
                    EXPECT_EQ(node.worker().Hosts(kActorUid), Succeeded(outcome) && !GetParam());
                    ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(20))));
                    EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot");
                  },
                  GetParam());
}

TEST_P(CrashTest, StartDurable) {
  CrashEverywhere(
      [](TestNode& node) {
        StartAndPause(node);
        ASSERT_OK(TestNode::Outcome(
            node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
      },
      [](TestNode& node, std::function<void()>* run) {
        auto request = StartDurable(node, 3);
        *run = [&agent = node.agent(), request] { (void)agent.StartActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        EXPECT_EQ(node.worker().Hosts(kActorUid), Succeeded(outcome) && !GetParam());
        ASSERT_OK(TestNode::Outcome(node.agent().StartActor(StartDurable(node, 20))));
        EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
        EXPECT_TRUE(node.HasLocal("s2", 2));
      },
      GetParam());
}

TEST_P(CrashTest, CaptureThatLeavesTheGuestRunning) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.CaptureRequest(4, "s4");
        request.set_leave_running(true);
        *run = [&agent = node.agent(), request] { (void)agent.CaptureActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        EXPECT_TRUE(node.HasLocal("s2", 2));
        EXPECT_EQ(node.HasLocal("s4", 4), Succeeded(outcome));
        // Whatever became of the capture: a guest whose worker lives goes on.
        EXPECT_EQ(node.worker().Hosts(kActorUid), !GetParam());
        EXPECT_EQ(node.agent().GetInventory().residents_size(), GetParam() ? 0 : 1);
      },
      GetParam());
}

TEST_P(CrashTest, A4_CaptureOverAnOlderGeneration) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.CaptureRequest(4, "s4");
        *run = [&agent = node.agent(), request] {
          auto operation = agent.CaptureActor(request);
          if (operation.ok()) agent.Acknowledged(*operation);
        };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>&) {
        bool older = node.HasLocal("s2", 2);
        bool newer = node.HasLocal("s4", 4);
        EXPECT_TRUE(older || newer) << "never neither";
        if (node.worker().Hosts(kActorUid)) return;
        if (newer) return ExpectResumes(node, "s4", 4, "boot++");
        ExpectResumes(node, "s2", 2, "boot+");
      },
      GetParam());
}

TEST_P(CrashTest, Capture) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.CaptureRequest(4, "s4");
        *run = [&agent = node.agent(), request] { (void)agent.CaptureActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        EXPECT_TRUE(node.HasLocal("s2", 2));
        if (Succeeded(outcome)) {
          EXPECT_EQ(outcome->capture().snapshot_name(), "s4");
          EXPECT_FALSE(node.worker().Hosts(kActorUid));
          ExpectResumes(node, "s4", 4, "boot++");
          return;
        }
        // Not captured: the guest goes on, or the earlier generation is current. The outcome says
        // which.
        if (outcome) {
          bool alive = MetadataOf(OutcomeStatus(*outcome))[kGuestAlive] == "true";
          EXPECT_EQ(alive, node.worker().Hosts(kActorUid));
        }
        EXPECT_FALSE(node.HasLocal("s4", 4));
        if (node.worker().Hosts(kActorUid)) {
          ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(6, "s6"))));
          ExpectResumes(node, "s6", 6, "boot++");
        } else {
          ExpectResumes(node, "s2", 2, "boot+");
        }
      },
      GetParam());
}

TEST_P(CrashTest, Upload) {
  CrashEverywhere(
      StartAndPause,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.UploadRequest(2, "s2", "file:///x/s2");
        *run = [&agent = node.agent(), request] { (void)agent.UploadSnapshot(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        if (outcome) {
          EXPECT_TRUE(Succeeded(outcome)) << outcome->ShortDebugString();
          EXPECT_TRUE(node.mover().Has("file:///x/s2"));
        }
        ExpectResumes(node, "s2", 2, "boot+");
      },
      GetParam());
}

TEST_P(CrashTest, Stop) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.StopRequest(4);
        *run = [&agent = node.agent(), request] { (void)agent.StopActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        if (outcome) {
          EXPECT_TRUE(Succeeded(outcome)) << outcome->ShortDebugString();
          EXPECT_FALSE(node.worker().Hosts(kActorUid));
        }
        ExpectResumes(node, "s2", 2, "boot+");
      },
      GetParam());
}

TEST_P(CrashTest, StopAndDelete) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        auto request = node.StopRequest(4);
        request.set_delete_local_snapshots(true);
        *run = [&agent = node.agent(), request] { (void)agent.StopActor(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        if (outcome) {
          EXPECT_TRUE(Succeeded(outcome)) << outcome->ShortDebugString();
        }
        auto again = node.StopRequest(5);
        again.set_delete_local_snapshots(true);
        ASSERT_OK(TestNode::Outcome(node.agent().StopActor(again)));
        EXPECT_FALSE(node.worker().Hosts(kActorUid));
        EXPECT_FALSE(node.dirs().OpenActor(kActorUid).ok());
      },
      GetParam());
}

TEST_P(CrashTest, DeleteLocalSnapshots) {
  CrashEverywhere(
      StartPauseResume,
      [](TestNode& node, std::function<void()>* run) {
        torpor::v1::DeleteLocalSnapshotsRequest request;
        *request.mutable_op() = node.Header(4);
        request.add_snapshot_names("s2");
        *run = [&agent = node.agent(), request] { (void)agent.DeleteLocalSnapshots(request).ok(); };
        return request.op().op_id();
      },
      [](TestNode& node, const std::optional<Operation>& outcome) {
        if (outcome) {
          EXPECT_TRUE(Succeeded(outcome)) << outcome->ShortDebugString();
          EXPECT_FALSE(node.HasLocal("s2", 2));
        }
        // The guest is none of its business.
        EXPECT_EQ(node.worker().Hosts(kActorUid), !GetParam());
      },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(, CrashTest, testing::Bool(), [](const auto& info) {
  return info.param ? "WorkerDiesToo" : "WorkerLives";
});

TEST(AgentRestartTest, LivingSandboxesAreAdoptedAndOrphansStopped) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  const std::string stray = "33333333-3333-4333-8333-333333333333";
  node.worker().AddSandbox(stray);
  node.NewAgent();
  EXPECT_TRUE(node.worker().Hosts(kActorUid));
  EXPECT_FALSE(node.worker().Hosts(stray));
  ASSERT_EQ(node.agent().GetInventory().residents_size(), 1);
  EXPECT_EQ(node.agent().GetInventory().residents(0).worker_uid(), node.worker().worker_uid);
  ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
}

// Killed between the manifest and the rename, and the worker is gone too: the files alone count.
TEST(AgentRestartTest, ACaptureWithItsManifestInsideIsCommitted) {
  CrashPoint crash;
  TestNode node(&crash);
  StartPauseResume(node);
  auto request = node.CaptureRequest(4, "s4");
  crash.Arm(11);  // after the sixth record: ACCEPTED, RESERVE, MKDIR, INTENT, CHECK, COMMIT
  std::thread thread([&agent = node.agent(), request, &crash] {
    (void)agent.CaptureActor(request).ok();
    crash.Finished();
  });
  ASSERT_TRUE(crash.WaitForCrash());
  snapshot::Manifest manifest;
  manifest.actor = TestNode::Identity();
  manifest.meta.set_generation(4);
  manifest.meta.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  manifest.meta.set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  manifest.meta.set_runtime("fake");
  manifest.meta.set_runtime_version("1");
  manifest.meta.set_architecture("amd64");
  *manifest.meta.mutable_capture_time() = ToProto(Clock::Real()->WallNow());
  manifest.boot_id = node.agent().options().boot_id;
  torpor::v1::SnapshotFile file;
  file.set_name("memory.img");
  file.set_logical_bytes(6);  // "boot++"
  file.set_populated_bytes(6);
  file.set_needed_from(torpor::v1::FIDELITY_MEMORY);
  manifest.files.push_back({file, 0440, {}});
  auto json = snapshot::SerializeManifest(manifest);
  ASSERT_OK(json);
  ASSERT_OK(node.dirs().root().WriteFile(
      NodeDirs::ActorPath(kActorUid, kCaptureDir) + "/manifest.json", *json, 0440));
  node.worker().Kill();
  node.worker().Restart();
  node.NewAgent();
  node.RegisterWorker();
  auto outcome = AskAgain(node, request.op().op_id());
  EXPECT_TRUE(Succeeded(outcome)) << outcome->ShortDebugString();
  ExpectResumes(node, "s4", 4, "boot++");
  crash.Release();
  thread.join();
}

TEST(AgentRestartTest, OutcomesAreAnsweredByTheNextAgent) {
  TestNode node;
  auto start = node.StartRequest(1);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(start)));
  auto capture = node.CaptureRequest(2, "s2");
  ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(capture)));
  node.NewAgent();
  auto again = node.agent().CaptureActor(capture);
  ASSERT_OK(TestNode::Outcome(again));
  EXPECT_EQ(again->capture().snapshot_name(), "s2");
  EXPECT_EQ(node.agent().operations().Unacknowledged().size(), 2U);
  // And the fence holds.
  EXPECT_THAT(node.agent().StartActor(node.StartRequest(1)),
              HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));
}

}  // namespace
}  // namespace torpor::agent
