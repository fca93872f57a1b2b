// os/cgroup and the capture's isolation on a real cgroup v2, which few development machines have:
// this program is the init of a user-mode-linux whose root is the host's, read-only. It mounts what
// it needs, runs its tests and halts. Called as `runsc-sandbox` it is the stand-in for a sentry.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/cgroup/cgroup_tree.h"
#include "os/process/process.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/isolation.h"

namespace torpor::gvisor {
namespace {

using os::CgroupSide;
using testing::Contains;
using testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kSentry[] = "runsc-sandbox";
constexpr char kCgroups[] = "/tmp/cgroup";

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

// ---- The stand-in ----

// Guest memory of a sandbox is a memfd, charged as shmem.
bool Fill(int64_t bytes) {
  int fd = memfd_create("guest", 0);
  if (fd < 0 || ftruncate(fd, bytes) != 0) return false;
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  memset(memory, 1, static_cast<size_t>(bytes));
  return true;
}

bool WriteImage(const std::string& path, int64_t bytes) {
  std::ofstream file(path, std::ios::binary);
  const std::string block(1 << 20, 'x');
  for (int64_t at = 0; at < bytes; at += kMiB) file << block;
  file.close();
  return static_cast<bool>(file);
}

// One command a line, one answer a line, until the input ends.
int SentryMain(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::ofstream(argv[i]) << 0;  // born in its cgroup
  std::cout << "up" << std::endl;
  std::string line, verb, path;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    int64_t mib = 0;
    words >> verb >> mib >> path;
    bool ok = verb == "fill" ? Fill(mib * kMiB) : WriteImage(path, mib * kMiB);
    std::cout << (ok ? "ok" : "failed") << std::endl;
  }
  return 0;
}

// ---- The tests ----

class Sentry : public IsolatedSentry {
 public:
  Sentry(os::Reaper* reaper, const std::vector<std::string>& procs_files) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    UniqueFd child_in(in[0]), child_out(out[1]);
    to_ = UniqueFd(in[1]);
    from_ = UniqueFd(out[0]);
    std::vector<std::string> argv = {kSentry};
    argv.insert(argv.end(), procs_files.begin(), procs_files.end());
    const MonotonicTime start = std::chrono::steady_clock::now();
    auto spawned = os::Spawn(argv, {.stdin_fd = child_in.get(), .stdout_fd = child_out.get()});
    EXPECT_OK(spawned);
    watched_ = reaper->Watch(spawned->pid(), start, nullptr).value();
    child_out.Reset();
    EXPECT_EQ(Answer(), "up");
  }
  ~Sentry() override { EXPECT_OK(Kill()); }

  // Its answer; empty when it died.
  std::string Ask(const std::string& command) {
    std::string line = command + "\n";
    if (write(to_.get(), line.data(), line.size()) < 0) return "";
    return Answer();
  }
  pid_t pid() const override { return watched_->pid(); }
  std::shared_ptr<void> HoldPid() const override { return watched_->HoldPid(); }
  bool Ended() const override { return os::WaitPidfd(watched_->pidfd(), MonotonicTime()); }
  bool ProveAlive() override { return Ask("fill 0") == "ok" || !Ended(); }
  Status Kill() override {
    RETURN_IF_ERROR(watched_->Signal(SIGKILL));
    return watched_->Wait(Soon()).status();
  }
  os::ExitStatus Wait() { return watched_->Wait(Soon()).value_or(os::ExitStatus{-1, 0}); }

 private:
  std::string Answer() {
    std::string line;
    char c;
    while (read(from_.get(), &c, 1) == 1 && c != '\n') line.push_back(c);
    return line;
  }

  UniqueFd to_, from_;
  std::unique_ptr<os::Reaper::Watched> watched_;
};

class CgroupV2Guest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(reaper_, os::Reaper::Start());
    ASSERT_OK_AND_ASSIGN(tree_, os::CgroupTree::Open("torpor/w0"));
    ASSERT_EQ(tree_->version(), 2);
  }
  void TearDown() override {
    ASSERT_OK_AND_ASSIGN(std::vector<std::string> leaves, tree_->Leaves());
    for (const std::string& leaf : leaves) {
      EXPECT_OK(tree_->KillAll(leaf, Soon()));
      EXPECT_OK(tree_->Remove(leaf));
    }
    EXPECT_OK(tree_->RemoveParent());
  }

  std::unique_ptr<Sentry> Start(const std::string& leaf, int64_t memory) {
    EXPECT_OK(tree_->Create(leaf, {memory, 500, 64}));
    return std::make_unique<Sentry>(reaper_.get(), tree_->ProcsFiles(leaf));
  }
  static std::string File(const std::string& name) {
    std::ifstream file(std::string(kCgroups) + "/torpor/w0/" + name);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  int64_t Charged(const std::string& group) {
    return std::stoll("0" + File(group + "/memory.current"));
  }
  std::vector<pid_t> In(const std::string& leaf, CgroupSide side) {
    return tree_->ProcessesOf(leaf, side).value();
  }

  std::unique_ptr<os::Reaper> reaper_;
  std::unique_ptr<os::CgroupTree> tree_;
};

TEST_F(CgroupV2Guest, LimitsAreTheKernels) {
  auto sentry = Start("a", 64 * kMiB);
  EXPECT_EQ(File("a/memory.max"), "67108864\n");
  EXPECT_EQ(File("a/cpu.max"), "50000 100000\n");
  EXPECT_EQ(File("a/pids.max"), "64\n");
  EXPECT_THAT(In("a", CgroupSide::kLeaf), ElementsAre(sentry->pid()));
  std::ifstream file("/proc/" + std::to_string(sentry->pid()) + "/cgroup");
  std::string group;
  std::getline(file, group);
  EXPECT_EQ(group, "0::/torpor/w0/a");
}

TEST_F(CgroupV2Guest, E12_OnlyTheGreedyOneIsKilled) {
  auto a = Start("a", 16 * kMiB), b = Start("b", 16 * kMiB), c = Start("c", 16 * kMiB);
  for (Sentry* sentry : {a.get(), b.get(), c.get()}) EXPECT_EQ(sentry->Ask("fill 8"), "ok");
  EXPECT_EQ(b->Ask("fill 16"), "");
  EXPECT_EQ(b->Wait().signal, SIGKILL);
  ASSERT_OK_AND_ASSIGN(os::CgroupUsage usage, tree_->Usage("b"));
  EXPECT_GE(usage.oom_kills, 1);
  EXPECT_GT(usage.limit_hits, 0);
  EXPECT_GT(usage.memory_peak_bytes, 14 * kMiB);
  EXPECT_LE(usage.memory_peak_bytes, 16 * kMiB);
  for (const char* other : {"a", "c"}) {
    ASSERT_OK_AND_ASSIGN(usage, tree_->Usage(other));
    EXPECT_EQ(usage.oom_kills, 0) << other;
    EXPECT_GE(usage.memory_current_bytes, 8 * kMiB) << other;
  }
  EXPECT_EQ(a->Ask("fill 1"), "ok");
  EXPECT_EQ(c->Ask("fill 1"), "ok");
}

TEST_F(CgroupV2Guest, FrozenProcessesWaitAndDie) {
  auto sentry = Start("a", 64 * kMiB);
  ASSERT_OK(tree_->Freeze("a", true));
  while (File("a/cgroup.events").find("frozen 1") == std::string::npos) usleep(1000);
  ASSERT_OK(tree_->Freeze("a", false));
  EXPECT_EQ(sentry->Ask("fill 1"), "ok");
  ASSERT_OK(tree_->Freeze("a", true));
  EXPECT_OK(tree_->KillAll("a", Soon()));
  EXPECT_EQ(sentry->Wait().signal, SIGKILL);
}

// Without isolation the image does not fit beside the guest: the control for the test below.
TEST_F(CgroupV2Guest, AnImageBesideItsGuestReachesTheLimit) {
  auto sentry = Start("a", 24 * kMiB);
  EXPECT_EQ(sentry->Ask("fill 16"), "ok");
  EXPECT_NE(sentry->Ask("write 16 /tmp/image"), "ok");
  EXPECT_GT(tree_->Usage("a")->limit_hits, 0);
  unlink("/tmp/image");
}

TEST_F(CgroupV2Guest, E1_AnIsolatedCaptureIsChargedToTheSibling) {
  auto sentry = Start("a", 24 * kMiB);
  EXPECT_EQ(sentry->Ask("fill 16"), "ok");
  const int64_t guest = Charged("a");
  EXPECT_GE(guest, 16 * kMiB);
  CaptureIsolation isolation(tree_.get(), "a", sentry.get());
  {
    CaptureIsolation::Guard guard(&isolation);
    ASSERT_OK(isolation.Begin());
    EXPECT_THAT(In("a", CgroupSide::kSibling), ElementsAre(sentry->pid()));
    EXPECT_EQ(File("a_ckpt/memory.max"), "max\n");
    EXPECT_EQ(sentry->Ask("write 16 /tmp/image"), "ok");
    EXPECT_GE(Charged("a_ckpt"), 16 * kMiB) << "the image";
    EXPECT_GE(Charged("a"), 16 * kMiB) << "what was charged stays";
    EXPECT_LE(Charged("a"), guest + kMiB);
  }
  EXPECT_EQ(isolation.state(), IsolationState::kIdle);
  EXPECT_THAT(In("a", CgroupSide::kLeaf), ElementsAre(sentry->pid()));
  EXPECT_EQ(access((std::string(kCgroups) + "/torpor/w0/a_ckpt").c_str(), F_OK), -1);
  EXPECT_EQ(tree_->Usage("a")->limit_hits, 0);
  EXPECT_EQ(sentry->Ask("fill 16"), "") << "the limit counts again";
  EXPECT_EQ(sentry->Wait().signal, SIGKILL);
  EXPECT_EQ(tree_->Usage("a")->oom_kills, 1);
  unlink("/tmp/image");
}

TEST_F(CgroupV2Guest, E2_LeftUnlimited) {
  auto sentry = Start("a", 24 * kMiB);
  auto foreign = Start("b", 24 * kMiB);
  CaptureIsolation isolation(tree_.get(), "a", sentry.get());
  ASSERT_OK(isolation.Begin());
  ASSERT_EQ(rmdir((std::string(kCgroups) + "/torpor/w0/a").c_str()), 0);
  EXPECT_FALSE(isolation.GoOn(/*saved=*/false)) << "there is no leaf to go back to";
  EXPECT_TRUE(sentry->Ended());
  EXPECT_OK(isolation.TornDown());
  EXPECT_FALSE(foreign->Ended());
  EXPECT_THAT(tree_->Leaves().value(), ElementsAre("b"));
}

TEST_F(CgroupV2Guest, AnEndedCaptureIsKilledInTheSiblingAndRemoved) {
  auto sentry = Start("a", 24 * kMiB);
  CaptureIsolation isolation(tree_.get(), "a", sentry.get());
  ASSERT_OK(isolation.Begin());
  isolation.SavedToEnd();
  EXPECT_THAT(tree_->Processes("a").value(), ElementsAre(sentry->pid()));
  EXPECT_OK(tree_->KillAll("a", Soon()));
  EXPECT_EQ(sentry->Wait().signal, SIGKILL);
  EXPECT_OK(isolation.TornDown());
  EXPECT_OK(tree_->Remove("a"));
  EXPECT_THAT(tree_->Leaves().value(), testing::IsEmpty());
}

int InitMain() {
  mount("proc", "/proc", "proc", 0, nullptr);
  mount("tmpfs", "/tmp", "tmpfs", 0, nullptr);
  mkdir(kCgroups, 0755);
  mount("cgroup2", kCgroups, "cgroup2", 0, nullptr);
  mkdir("/tmp/bin", 0755);
  // A copy, as the path of this program may lie below what is mounted over now.
  const std::string sentry = std::string("/tmp/bin/") + kSentry;
  std::ofstream(sentry, std::ios::binary) << std::ifstream("/proc/self/exe").rdbuf();
  if (chmod(sentry.c_str(), 0755) != 0) perror("copy of this program");
  setenv("PATH", "/tmp/bin:/usr/bin:/bin", 1);
  signal(SIGPIPE, SIG_IGN);
  int result = RUN_ALL_TESTS();
  std::cout << "GUEST EXIT " << result << std::endl;
  sync();
  return reboot(RB_POWER_OFF);
}

}  // namespace
}  // namespace torpor::gvisor

int main(int argc, char** argv) {
  std::string name = argv[0];
  name = name.substr(name.rfind('/') + 1);
  if (name == torpor::gvisor::kSentry) return torpor::gvisor::SentryMain(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (getpid() != 1) {
    std::cerr << "this is the init of a user-mode-linux; see tests/uml/run\n";
    return 2;
  }
  return torpor::gvisor::InitMain();
}
