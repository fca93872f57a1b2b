// A worker that is killed at any point of a capture's isolation, with real processes and the real
// cgroups: the next one leaves no sandbox without its limit, and no group beside a leaf.

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "os/cgroup/cgroup_fs.h"
#include "os/process/process.h"
#include "runtime/gvisor/isolation.h"
#include "worker/leaf_names.h"
#include "worker/orphans.h"

namespace torpor::worker {
namespace {

using gvisor::CaptureIsolation;
using gvisor::IsolationState;

// What the killed process leaves for the test to read.
struct Shared {
  std::atomic<pid_t> sentry{0};
  std::atomic<int> killed_in{-1};  // IsolationState
};

// The process ends at the chosen step, as by SIGKILL from outside.
class KillPoint {
 public:
  KillPoint(int at, Shared* shared) : at_(at), shared_(shared) {}
  void Watch(const CaptureIsolation* isolation) { isolation_ = isolation; }
  void Pass() {
    if (isolation_ == nullptr || count_++ != at_) return;
    shared_->killed_in = static_cast<int>(isolation_->state());
    raise(SIGKILL);
  }

 private:
  const int at_;
  Shared* const shared_;
  const CaptureIsolation* isolation_ = nullptr;
  int count_ = 0;
};

// The kernel's files; a step before and after each change.
class KillingFs : public os::CgroupFs {
  template <typename Change>
  auto Around(const Change& change) {
    point_->Pass();
    auto result = change();
    point_->Pass();
    return result;
  }

 public:
  explicit KillingFs(KillPoint* point) : point_(point) {}
  Status MakeDir(const std::string& path) override {
    return Around([&] { return real_->MakeDir(path); });
  }
  Status RemoveDir(const std::string& path) override {
    return Around([&] { return real_->RemoveDir(path); });
  }
  Status Write(const std::string& path, const std::string& value) override {
    return Around([&] { return real_->Write(path, value); });
  }
  int Join(const std::string& procs_file, pid_t pid) override {
    return Around([&] { return real_->Join(procs_file, pid); });
  }
  StatusOr<std::string> Read(const std::string& path) override { return real_->Read(path); }
  StatusOr<std::vector<std::string>> ListDirs(const std::string& path) override {
    return real_->ListDirs(path);
  }
  Status KillListed(const std::string& procs_file) override {
    return real_->KillListed(procs_file);
  }
  void Pause() override { real_->Pause(); }

 private:
  const std::shared_ptr<os::CgroupFs> real_ = os::CgroupFs::Real();
  KillPoint* const point_;
};

// A process of this name, born in the leaf.
pid_t SpawnIn(const os::CgroupTree& cgroups, const std::string& leaf, const char* name) {
  pid_t pid = fork();  // no other thread is there
  if (pid != 0) return pid;
  for (const std::string& file : cgroups.ProcsFiles(leaf)) {
    std::ofstream(file) << "0" << std::flush;
  }
  execl("/bin/sleep", name, "1000", nullptr);
  _exit(1);
}

class Sentry : public gvisor::IsolatedSentry {
 public:
  Sentry(pid_t pid, bool alive, KillPoint* point) : pid_(pid), alive_(alive), point_(point) {}
  pid_t pid() const override { return pid_; }
  std::shared_ptr<void> HoldPid() const override {
    point_->Pass();
    return Ended() ? nullptr : std::make_shared<int>();
  }
  bool Ended() const override {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }
  bool ProveAlive() override {
    point_->Pass();
    return alive_;
  }
  Status Kill() override {
    point_->Pass();
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    point_->Pass();
    return OkStatus();
  }

 private:
  const pid_t pid_;
  const bool alive_;
  KillPoint* const point_;
};

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

struct Capture {
  const char* name;
  bool recognised;  // the sentry, as one
  bool proven;      // it answers afterwards
  std::function<void(CaptureIsolation&, Sentry&)> end;
};

const Capture kCaptures[] = {
    {"SavedAndEnded", true, true,
     [](CaptureIsolation& isolation, Sentry& sentry) {
       isolation.SavedToEnd();
       (void)sentry.Kill();
       (void)isolation.TornDown();
     }},
    {"LeftRunning", true, true,
     [](CaptureIsolation& isolation, Sentry&) { isolation.GoOn(/*saved=*/true); }},
    {"NotSaved", true, true,
     [](CaptureIsolation& isolation, Sentry&) { isolation.GoOn(/*saved=*/false); }},
    {"NotSavedAndDumb", true, false,
     [](CaptureIsolation& isolation, Sentry&) {
       isolation.GoOn(/*saved=*/false);
       (void)isolation.TornDown();
     }},
    {"NotIsolated", false, true,
     [](CaptureIsolation& isolation, Sentry&) { isolation.GoOn(/*saved=*/false); }},
};

class IsolationCrash : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    // What a killed worker leaves becomes ours, so that its end is seen.
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    parent_ = "torpor-isolation-" + RandomHex(6);
    mounts_ = os::ParseCgroupMounts(ReadWhole("/proc/self/mountinfo"));
    ASSERT_OK_AND_ASSIGN(cgroups_, os::CgroupTree::Open(parent_));
  }
  void TearDown() override {
    if (cgroups_ != nullptr) {
      EXPECT_OK(cgroups_->RemoveParent());
    }
    if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
  }

  // The worker: one capture, in which it dies at step `at` unless it has fewer. Exit 0 if so.
  void RunWorker(const Capture& capture, int at) {
    KillPoint point(at, shared_);
    auto tree = os::OpenCgroupTree(mounts_, parent_, std::make_shared<KillingFs>(&point));
    if (!tree.ok() || !(*tree)->Create(leaf_, os::LimitsForSandbox(64 << 20, 1000)).ok()) _exit(2);
    const pid_t pid = SpawnIn(**tree, leaf_, "runsc-sandbox");
    const pid_t gofer = SpawnIn(**tree, leaf_, "runsc-gofer");
    shared_->sentry = pid;
    while (gvisor::ProgramOf(pid) != "runsc-sandbox") usleep(500);
    while (gvisor::ProgramOf(gofer) != "runsc-gofer") usleep(500);
    Sentry sentry(pid, capture.proven, &point);
    CaptureIsolation isolation(tree->get(), leaf_, &sentry, [&](pid_t of) {
      point.Pass();
      return capture.recognised ? gvisor::ProgramOf(of) : std::string("?");
    });
    point.Watch(&isolation);
    if (!isolation.Begin().ok() || isolation.isolated() != capture.recognised) _exit(3);
    point.Pass();  // while the image is written
    capture.end(isolation, sentry);
    point.Pass();
    _exit(0);
  }

  // False when the capture has fewer steps.
  bool Crash(const Capture& capture, int at) {
    shared_->sentry = 0;
    const pid_t worker = fork();  // no other thread is there
    if (worker == 0) RunWorker(capture, at);
    int status = 0;
    EXPECT_EQ(waitpid(worker, &status, 0), worker);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    if (killed) seen_.insert(Name(static_cast<IsolationState>(shared_->killed_in.load())));
    return killed;
  }

  void NextWorker() {
    auto cgroups = os::CgroupTree::Open(parent_);
    ASSERT_OK(cgroups);
    ASSERT_OK(RemoveOrphans(cgroups->get(), "/nonexistent", Clock::Real()));
    if (auto sentry = os::OpenPidfd(shared_->sentry); sentry.ok()) {
      EXPECT_TRUE(os::WaitPidfd(sentry->get(), Clock::Real()->Now() + std::chrono::seconds(10)))
          << "the sentry lives on";
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    auto left = (*cgroups)->Leaves();
    ASSERT_OK(left);
    EXPECT_THAT(*left, testing::IsEmpty());
  }

  const std::string leaf_ = LeafOf("a");
  Shared* shared_ = nullptr;
  std::string parent_;
  os::CgroupMounts mounts_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::set<std::string_view> seen_;  // states in which a worker was killed
};

TEST_F(IsolationCrash, E2_E5_WorkerKilledInEachState) {
  for (const Capture& capture : kCaptures) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} step {}", capture.name, at));
      const bool killed = Crash(capture, at);
      ASSERT_NO_FATAL_FAILURE(NextWorker());
      if (HasFailure()) return;
      if (!killed) break;
      ASSERT_LT(at, 200);
    }
  }
  EXPECT_THAT(seen_,
              testing::IsSupersetOf({"IDLE", "FOUND", "PREPARED", "CAPTURING", "RETURNING",
                                     "RETURNED", "MUST_KILL", "TEARDOWN", "REMOVING", "DONE"}))
      << "the others last for no step";
}

}  // namespace
}  // namespace torpor::worker
