// Several containers in real sandboxes: what the contract suite, which talks to the first of them,
// does not see.

#include <signal.h>
#include <fstream>
#include <thread>

#include <filesystem>
#include <future>

#include <gmock/gmock.h>

#include "os/process/process.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/leftovers.h"
#include "runtime/gvisor/testing/gvisor_subject.h"

namespace torpor::runtime {
namespace {

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(120); }

class GvisorContainers : public testing::Test {
 protected:
  static constexpr int kPorts[] = {GvisorSubject::kPort, GvisorSubject::kPort + 1,
                                   GvisorSubject::kPort + 2};

  void SetUp() override {
    Status prepared = subject_.Prepare();
    if (prepared.code() == Code::kNotFound) GTEST_SKIP() << std::string(prepared.message());
    ASSERT_OK(prepared);
  }
  void TearDown() override {
    if (sandbox_ != nullptr) {
      EXPECT_OK(sandbox_->Stop(Duration::zero()));
    }
    if (args_.state_dir.empty()) return;
    EXPECT_TRUE(std::filesystem::is_empty(args_.state_dir));
    EXPECT_THAT(gvisor::FindByRoot(gvisor::StatePaths(args_.state_dir).root), testing::IsEmpty());
    ASSERT_OK_AND_ASSIGN(auto processes, subject_.cgroups().Processes("app"));
    EXPECT_THAT(processes, testing::IsEmpty());
  }

  Status Start(const std::string& sandbox_id, const std::string& image = "",
               const CaptureOutcome& captured = {}) {
    args_ = {};
    args_.sandbox_id = sandbox_id;
    args_.bundles_dir = subject_.directory() + "/bundles";
    args_.state_dir = NewDirectory();
    args_.spec.add_containers()->set_name("app");
    args_.deadline = Soon();
    if (!image.empty()) {
      args_.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
      args_.restore_dir = image;
      args_.files = captured.files;
      args_.preserve_restore = true;
    }
    subject_.Surround(&args_);
    exit_ = std::make_shared<std::promise<SandboxExit>>();
    bool guest_ran = false;
    auto sandbox = subject_.runtime().Start(
        args_, [exit = exit_](SandboxExit how) { exit->set_value(how); }, &guest_ran);
    if (!sandbox.ok()) return sandbox.status();
    sandbox_ = std::move(*sandbox);
    return OkStatus();
  }
  StatusOr<CaptureOutcome> Capture(const std::string& image) {
    CaptureArgs args;
    args.capture_dir = image;
    args.deadline = Soon();
    CaptureFailure failure;
    ASSIGN_OR_RETURN(CaptureOutcome outcome, sandbox_->Capture(args, &failure));
    RETURN_IF_ERROR(sandbox_->Stop(Duration::zero()));
    sandbox_.reset();
    return outcome;
  }
  std::string NewDirectory() {
    std::string path = subject_.directory() + "/dir" + std::to_string(++directories_);
    std::filesystem::create_directories(path);
    return path;
  }
  std::string Ask(const std::string& line, int port) {
    auto answer = subject_.Ask(line, port);
    return answer.ok() ? *answer : answer.status().ToString();
  }
  SandboxExit AwaitExit() {
    auto exit = exit_->get_future();
    if (exit.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "no exit was reported";
      return {};
    }
    return exit.get();
  }
  void Kill(const std::string& container) {
    gvisor::RunscTarget target;
    target.binary = "/usr/bin/runsc";
    target.platform = subject_.runtime().capabilities().platform;
    auto killed =
        os::RunCommand(gvisor::KillCommand(
                           target, gvisor::StatePaths(args_.state_dir),
                           gvisor::AppId(gvisor::ContainerId(args_.sandbox_id), container), "KILL"),
                       {.deadline = Soon()});
    ASSERT_OK(killed);
    EXPECT_TRUE(killed->status.ok()) << killed->err;
  }

  GvisorSubject subject_{true, {"second", "third"}};
  StartArgs args_;
  std::unique_ptr<Sandbox> sandbox_;
  std::shared_ptr<std::promise<SandboxExit>> exit_;
  int directories_ = 0;
};

TEST_F(GvisorContainers, EveryOneGoesOnAtLastPlusOne) {
  ASSERT_OK(Start("actor-1"));
  for (int port : kPorts) {
    EXPECT_EQ(Ask("next", port), "1");
    EXPECT_EQ(Ask("write note of " + std::to_string(port), port), "ok");
  }
  EXPECT_EQ(Ask("next", kPorts[2]), "2") << "each has its own memory";
  int last = 1;
  for (const char* id : {"actor-1", "actor-2", "actor-1"}) {
    const std::string image = NewDirectory();
    ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(image));
    ASSERT_OK(Start(id, image, captured));
    ++last;
    EXPECT_EQ(Ask("next", kPorts[0]), std::to_string(last));
    EXPECT_EQ(Ask("next", kPorts[1]), std::to_string(last));
    EXPECT_EQ(Ask("next", kPorts[2]), std::to_string(last + 1));
    for (int port : kPorts) {
      EXPECT_EQ(Ask("read note", port), "of " + std::to_string(port)) << "and its own files";
    }
  }
}

TEST_F(GvisorContainers, AnExitNamesTheContainer) {
  ASSERT_OK(Start("actor-1"));
  EXPECT_EQ(Ask("next", kPorts[1]), "1");
  Ask("exit 7", kPorts[1]);
  SandboxExit exit = AwaitExit();
  EXPECT_EQ(exit.container, "second");
  EXPECT_EQ(exit.exit_code, 7);
  CaptureArgs args;
  args.capture_dir = NewDirectory();
  args.deadline = Soon();
  CaptureFailure failure;
  EXPECT_THAT(sandbox_->Capture(args, &failure), HasReason(Code::kInternal, "WORKLOAD_EXITED"));
  EXPECT_FALSE(failure.guest_alive);
}

bool HoldsALock(pid_t pid) {
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (line.find(" " + std::to_string(pid) + " ") != std::string::npos) return true;
  }
  return false;
}

// One that has just begun holds the lock of the container's state: halted there, it would halt
// every later command as well.
void Halt(pid_t pid) {
  for (kill(pid, SIGSTOP); HoldsALock(pid); kill(pid, SIGSTOP)) {
    kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Such an image could not be restored. Nobody tells of the end here, as if it had just happened.
TEST_F(GvisorContainers, AnImageWithoutOneOfThemIsNeverMade) {
  ASSERT_OK(Start("actor-1"));
  for (int port : kPorts) EXPECT_EQ(Ask("next", port), "1");
  for (pid_t pid : gvisor::FindByRoot(gvisor::StatePaths(args_.state_dir).root)) {
    if (gvisor::ProgramOf(pid) == "/usr/bin/runsc") Halt(pid);  // waits
  }
  Ask("exit 0", kPorts[1]);
  CaptureArgs args;
  args.capture_dir = NewDirectory();
  args.deadline = Soon();
  CaptureFailure failure;
  Status status = sandbox_->Capture(args, &failure).status();
  EXPECT_THAT(status, HasReason(Code::kInternal, "WORKLOAD_EXITED"));
  EXPECT_THAT(status, MessageHas("container second"));
  EXPECT_TRUE(failure.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(args.capture_dir));
  EXPECT_EQ(Ask("next", kPorts[2]), "2") << "the others go on until they are stopped";
}

TEST_F(GvisorContainers, AKillAfterARestoreNamesTheContainer) {
  ASSERT_OK(Start("actor-1"));
  for (int port : kPorts) EXPECT_EQ(Ask("next", port), "1");
  const std::string image = NewDirectory();
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(image));
  ASSERT_OK(Start("actor-1", image, captured));
  EXPECT_EQ(Ask("next", kPorts[2]), "2");
  Kill("third");
  SandboxExit exit = AwaitExit();
  EXPECT_EQ(exit.container, "third");
  EXPECT_EQ(exit.exit_code, 128 + SIGKILL);
}

TEST_F(GvisorContainers, StopWithGraceEndsTheContainersFirst) {
  ASSERT_OK(Start("actor-1"));
  for (int port : kPorts) EXPECT_EQ(Ask("next", port), "1");
  ASSERT_OK(sandbox_->Stop(std::chrono::seconds(60)));
  EXPECT_EQ(exit_->get_future().wait_for(std::chrono::milliseconds(0)),
            std::future_status::timeout);
}

}  // namespace
}  // namespace torpor::runtime
