#include "os/cgroup/cgroup_tree.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/cgroup/testing/fake_cgroup_fs.h"
#include "os/process/process.h"

namespace torpor::os {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }
MonotonicTime Past() { return std::chrono::steady_clock::now() - std::chrono::seconds(1); }

TEST(CgroupMounts, FindsBothVersions) {
  CgroupMounts mounts = ParseCgroupMounts(
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /cg/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
      "40 31 0:37 / /cg/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n"
      "41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n"
      "garbage\n");
  EXPECT_EQ(mounts.v2, "/cg/unified");
  EXPECT_THAT(mounts.v1, testing::ElementsAre(testing::Pair("cpu", "/cg/cpu,cpuacct"),
                                              testing::Pair("cpuacct", "/cg/cpu,cpuacct"),
                                              testing::Pair("memory", "/cg/memory")));
}

TEST(CgroupLimits, SandboxGetsItsOverhead) {
  EXPECT_EQ(LimitsForSandbox(512 * kMiB, 500), (CgroupLimits{576 * kMiB, 500, 4096}));
  EXPECT_EQ(LimitsForSandbox(0, 0), (CgroupLimits{0, 0, 4096}));
}

// ---- What holds for both versions ----

struct Kernel {
  const char* name;
  bool v2;
  CgroupMounts mounts;
  std::set<std::string> directories;
  std::string memory;  // the directory with the memory files of leaf "a"
};

const Kernel kV1 = {
    "V1",
    false,
    {"", {{"memory", "/m"}, {"cpu", "/c"}, {"cpuacct", "/c"}, {"pids", "/p"}, {"freezer", "/f"}}},
    {"/m", "/c", "/p", "/f"},
    "/m/torpor/w0/a"};
const Kernel kV2 = {"V2", true, {"/u", {}}, {"/u"}, "/u/torpor/w0/a"};

class CgroupTreeTest : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    fs_ = std::make_shared<FakeCgroupFs>(GetParam().v2, GetParam().directories);
    auto tree = OpenCgroupTree(GetParam().mounts, "torpor/w0", fs_);
    ASSERT_OK(tree);
    tree_ = std::move(*tree);
  }
  std::string File(const std::string& path) {
    auto content = fs_->Read(path);
    return content.ok() ? *content : content.status().ToString();
  }
  std::shared_ptr<FakeCgroupFs> fs_;
  std::unique_ptr<CgroupTree> tree_;
};

INSTANTIATE_TEST_SUITE_P(, CgroupTreeTest, testing::Values(kV1, kV2),
                         [](const auto& info) { return info.param.name; });

TEST_P(CgroupTreeTest, CreateListRemove) {
  EXPECT_EQ(tree_->version(), GetParam().v2 ? 2 : 1);
  ASSERT_OK(tree_->Create("a", {}));
  ASSERT_OK(tree_->Create("b", {}));
  ASSERT_OK(tree_->Create("a", {})) << "an empty leaf is taken over";
  ASSERT_OK_AND_ASSIGN(auto leaves, tree_->Leaves());
  EXPECT_THAT(leaves, testing::ElementsAre("a", "b"));
  for (const std::string& file : tree_->ProcsFiles("a")) EXPECT_OK(fs_->Read(file));
  EXPECT_OK(tree_->Remove("a"));
  EXPECT_OK(tree_->Remove("a")) << "removing is idempotent";
  EXPECT_OK(tree_->KillAll("a", Soon()));
  EXPECT_OK(tree_->Freeze("a", false));
  ASSERT_OK_AND_ASSIGN(leaves, tree_->Leaves());
  EXPECT_THAT(leaves, testing::ElementsAre("b"));
  EXPECT_THAT(tree_->SetLimits("a", {}), HasCode(Code::kNotFound));
}

TEST_P(CgroupTreeTest, RefusesNamesThatLeaveTheTree) {
  for (const char* name : {"", ".", "..", "a/b", "../x", "a b", "a\n"}) {
    EXPECT_THAT(tree_->Create(name, {}), HasCode(Code::kInvalidArgument)) << name;
    EXPECT_THAT(tree_->Remove(name), HasCode(Code::kInvalidArgument)) << name;
    EXPECT_THAT(tree_->KillAll(name, Soon()), HasCode(Code::kInvalidArgument)) << name;
  }
  for (const char* parent : {"", "/torpor", "torpor/../x", "a//b"}) {
    EXPECT_THAT(OpenCgroupTree(GetParam().mounts, parent, fs_), HasCode(Code::kInvalidArgument));
  }
}

TEST_P(CgroupTreeTest, ALeafWithProcessesIsNeitherTakenOverNorRemoved) {
  ASSERT_OK(tree_->Create("a", {}));
  fs_->AddProcess(GetParam().memory, 42);
  EXPECT_THAT(tree_->Create("a", {}), HasCode(Code::kFailedPrecondition));
  EXPECT_THAT(tree_->Remove("a"), HasCode(Code::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(auto processes, tree_->Processes("a"));
  EXPECT_THAT(processes, testing::ElementsAre(42));
  EXPECT_OK(tree_->KillAll("a", Soon()));
  EXPECT_OK(tree_->Remove("a"));
}

TEST_P(CgroupTreeTest, KillGoesOnUntilTheLeafIsEmpty) {
  ASSERT_OK(tree_->Create("a", {}));
  fs_->AddProcess(GetParam().memory, 42);
  fs_->AddProcess(GetParam().memory, 43);
  fs_->MakeStubborn(43, 5);
  EXPECT_THAT(tree_->KillAll("a", Past()), HasCode(Code::kDeadlineExceeded));
  EXPECT_OK(tree_->KillAll("a", Soon()));
  ASSERT_OK_AND_ASSIGN(auto processes, tree_->Processes("a"));
  EXPECT_TRUE(processes.empty());
}

TEST_P(CgroupTreeTest, ASiblingTakesOneProcessAndGivesItBack) {
  const std::string leaf = GetParam().memory, sibling = GetParam().memory + "_ckpt";
  auto in = [&](CgroupSide side) { return tree_->ProcessesOf("a", side).value(); };
  ASSERT_OK(tree_->Create("a", {576 * kMiB, 500, 4096}));
  fs_->AddProcess(leaf, 42);
  fs_->AddProcess(leaf, 43);
  EXPECT_THAT(tree_->Move("a", 42, CgroupSide::kSibling), HasCode(Code::kNotFound)) << "not there";
  ASSERT_OK(tree_->CreateSibling("a"));
  ASSERT_OK(tree_->CreateSibling("a")) << "an empty one is taken over";
  EXPECT_TRUE(tree_->Move("a", 42, CgroupSide::kSibling).value_or(false));
  EXPECT_THAT(in(CgroupSide::kLeaf), testing::ElementsAre(43));
  EXPECT_THAT(in(CgroupSide::kSibling), testing::ElementsAre(42));
  EXPECT_THAT(tree_->CreateSibling("a"), HasCode(Code::kFailedPrecondition));
  EXPECT_THAT(tree_->RemoveSibling("a"), HasCode(Code::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(auto processes, tree_->Processes("a"));
  EXPECT_THAT(processes, testing::UnorderedElementsAre(42, 43)) << "it still belongs to the leaf";
  EXPECT_TRUE(tree_->Move("a", 42, CgroupSide::kLeaf).value_or(false));
  EXPECT_FALSE(tree_->Move("a", 99, CgroupSide::kLeaf).value_or(true)) << "no such process";
  EXPECT_OK(tree_->RemoveSibling("a"));
  EXPECT_OK(tree_->RemoveSibling("a")) << "removing is idempotent";
  EXPECT_THAT(in(CgroupSide::kLeaf), testing::ElementsAre(42, 43));
}

TEST_P(CgroupTreeTest, ALeafIsKilledFoundAndRemovedWithItsSibling) {
  const std::string leaf = GetParam().memory, sibling = GetParam().memory + "_ckpt";
  ASSERT_OK(tree_->Create("a", {}));
  ASSERT_OK(tree_->CreateSibling("a"));
  fs_->AddProcess(sibling, 42);
  EXPECT_THAT(tree_->Create("a", {}), HasCode(Code::kFailedPrecondition)) << "it is in use";
  ASSERT_OK_AND_ASSIGN(auto leaves, tree_->Leaves());
  EXPECT_THAT(leaves, testing::ElementsAre("a"));
  EXPECT_OK(tree_->KillAll("a", Soon()));
  ASSERT_OK(fs_->RemoveDir(leaf));
  ASSERT_OK_AND_ASSIGN(leaves, tree_->Leaves());
  EXPECT_THAT(leaves, testing::ElementsAre("a")) << "known by its sibling";
  EXPECT_OK(tree_->Remove("a"));
  ASSERT_OK_AND_ASSIGN(leaves, tree_->Leaves());
  EXPECT_THAT(leaves, testing::IsEmpty());
  EXPECT_THAT(tree_->Create("a_ckpt", {}), HasCode(Code::kInvalidArgument)) << "a sibling's name";
}

TEST_P(CgroupTreeTest, AMoveThatIsRefusedIsAnError) {
  ASSERT_OK(tree_->Create("a", {}));
  ASSERT_OK(tree_->CreateSibling("a"));
  fs_->AddProcess(GetParam().memory, 42);
  for (auto [error, code] : {std::pair(EIO, Code::kInternal), std::pair(ENODEV, Code::kNotFound),
                             std::pair(ENOENT, Code::kNotFound)}) {
    fs_->Hook("join", GetParam().memory + "_ckpt", [error = error] { return error; });
    EXPECT_THAT(tree_->Move("a", 42, CgroupSide::kSibling), HasCode(code));
  }
}

TEST_P(CgroupTreeTest, RemoveWaitsForABusyKernel) {
  ASSERT_OK(tree_->Create("a", {}));
  fs_->MakeBusy(GetParam().memory, 10);
  EXPECT_OK(tree_->Remove("a"));
  ASSERT_OK(tree_->Create("a", {}));
  fs_->MakeBusy(GetParam().memory, 100000);
  EXPECT_THAT(tree_->Remove("a"), HasCode(Code::kFailedPrecondition)) << "but not for ever";
}

TEST_P(CgroupTreeTest, UsageOfAMissingLeafIsZero) {
  ASSERT_OK_AND_ASSIGN(CgroupUsage usage, tree_->Usage("a"));
  EXPECT_EQ(usage.memory_current_bytes, 0);
  EXPECT_EQ(usage.oom_kills, 0);
}

TEST_P(CgroupTreeTest, MissingControllerIsNamed) {
  CgroupMounts mounts = kV1.mounts;
  mounts.v1.erase(mounts.v1.begin());
  EXPECT_THAT(OpenCgroupTree(mounts, "torpor", fs_), MessageHas("controller memory"));
}

// ---- The files of each version ----

using CgroupV1Test = CgroupTreeTest;
INSTANTIATE_TEST_SUITE_P(, CgroupV1Test, testing::Values(kV1));

TEST_P(CgroupV1Test, WritesLimits) {
  ASSERT_OK(tree_->Create("a", {576 * kMiB, 500, 4096}));
  EXPECT_EQ(File("/m/torpor/w0/a/memory.limit_in_bytes"), "603979776");
  EXPECT_EQ(File("/m/torpor/w0/a/memory.swappiness"), "0");
  EXPECT_EQ(File("/c/torpor/w0/a/cpu.cfs_quota_us"), "50000");
  EXPECT_EQ(File("/c/torpor/w0/a/cpu.cfs_period_us"), "100000");
  EXPECT_EQ(File("/p/torpor/w0/a/pids.max"), "4096");
  ASSERT_OK(tree_->SetLimits("a", {}));
  EXPECT_EQ(File("/m/torpor/w0/a/memory.limit_in_bytes"), "-1");
  EXPECT_EQ(File("/c/torpor/w0/a/cpu.cfs_quota_us"), "-1");
  EXPECT_EQ(File("/p/torpor/w0/a/pids.max"), "max");
  fs_->RemoveFile("/m/torpor/w0/a/memory.swappiness");
  EXPECT_OK(tree_->SetLimits("a", {kMiB, 0, 0})) << "a kernel without swap";
  EXPECT_THAT(tree_->ProcsFiles("a"),
              testing::ElementsAre("/m/torpor/w0/a/tasks", "/c/torpor/w0/a/tasks",
                                   "/p/torpor/w0/a/tasks", "/f/torpor/w0/a/tasks"));
}

TEST_P(CgroupV1Test, FreezesAndReadsUsage) {
  ASSERT_OK(tree_->Create("a", {}));
  ASSERT_OK(tree_->Freeze("a", true));
  EXPECT_EQ(File("/f/torpor/w0/a/freezer.state"), "FROZEN");
  fs_->AddProcess("/p/torpor/w0/a", 42);
  EXPECT_OK(tree_->KillAll("a", Soon())) << "a frozen group is thawed to die";
  EXPECT_EQ(File("/f/torpor/w0/a/freezer.state"), "THAWED");
  fs_->SetFile("/m/torpor/w0/a/memory.usage_in_bytes", "1000\n");
  fs_->SetFile("/m/torpor/w0/a/memory.max_usage_in_bytes", "2000\n");
  fs_->SetFile("/m/torpor/w0/a/memory.stat", "cache 5\ninactive_file 1\ntotal_inactive_file 300\n");
  fs_->SetFile("/m/torpor/w0/a/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  fs_->SetFile("/m/torpor/w0/a/memory.failcnt", "7\n");
  fs_->SetFile("/c/torpor/w0/a/cpuacct.usage", "5000999\n");
  ASSERT_OK_AND_ASSIGN(CgroupUsage usage, tree_->Usage("a"));
  EXPECT_EQ(usage.memory_current_bytes, 1000);
  EXPECT_EQ(usage.memory_peak_bytes, 2000);
  EXPECT_EQ(usage.memory_working_set_bytes, 700);
  EXPECT_EQ(usage.oom_kills, 3);
  EXPECT_EQ(usage.limit_hits, 7);
  EXPECT_EQ(usage.cpu_usage_us, 5000);
}

TEST_P(CgroupV1Test, ASiblingHasNoLimitAndTakesNoCharges) {
  ASSERT_OK(tree_->Create("a", {576 * kMiB, 500, 4096}));
  ASSERT_OK(tree_->CreateSibling("a"));
  EXPECT_EQ(File("/m/torpor/w0/a_ckpt/memory.limit_in_bytes"), "-1");
  EXPECT_THAT(fs_->Read("/c/torpor/w0/a_ckpt/cpu.cfs_quota_us"), HasCode(Code::kNotFound))
      << "the other limits go on";
  fs_->SetFile("/m/torpor/w0/a_ckpt/memory.move_charge_at_immigrate", "1\n");
  ASSERT_OK(tree_->CreateSibling("a"));
  EXPECT_EQ(File("/m/torpor/w0/a_ckpt/memory.move_charge_at_immigrate"), "0");
}

using CgroupV2Test = CgroupTreeTest;
INSTANTIATE_TEST_SUITE_P(, CgroupV2Test, testing::Values(kV2));

TEST_P(CgroupV2Test, HandsControllersDown) {
  for (const char* level : {"/u", "/u/torpor", "/u/torpor/w0"}) {
    EXPECT_EQ(File(std::string(level) + "/cgroup.subtree_control"), "+memory +cpu +pids");
  }
}

TEST_P(CgroupV2Test, WritesLimits) {
  ASSERT_OK(tree_->Create("a", {576 * kMiB, 500, 4096}));
  EXPECT_EQ(File("/u/torpor/w0/a/memory.max"), "603979776");
  EXPECT_EQ(File("/u/torpor/w0/a/memory.swap.max"), "0");
  EXPECT_EQ(File("/u/torpor/w0/a/cpu.max"), "50000 100000");
  EXPECT_EQ(File("/u/torpor/w0/a/pids.max"), "4096");
  ASSERT_OK(tree_->SetLimits("a", {}));
  EXPECT_EQ(File("/u/torpor/w0/a/memory.max"), "max");
  EXPECT_EQ(File("/u/torpor/w0/a/cpu.max"), "max 100000");
  EXPECT_THAT(tree_->ProcsFiles("a"), testing::ElementsAre("/u/torpor/w0/a/cgroup.procs"));
}

TEST_P(CgroupV2Test, ASiblingHasNoLimitAndIsFrozenToo) {
  ASSERT_OK(tree_->Create("a", {576 * kMiB, 500, 4096}));
  ASSERT_OK(tree_->CreateSibling("a"));
  EXPECT_EQ(File("/u/torpor/w0/a_ckpt/memory.max"), "max");
  ASSERT_OK(tree_->Freeze("a", true));
  EXPECT_EQ(File("/u/torpor/w0/a_ckpt/cgroup.freeze"), "1");
}

TEST_P(CgroupV2Test, FreezesKillsAndReadsUsage) {
  ASSERT_OK(tree_->Create("a", {}));
  ASSERT_OK(tree_->Freeze("a", true));
  EXPECT_EQ(File("/u/torpor/w0/a/cgroup.freeze"), "1");
  fs_->AddProcess("/u/torpor/w0/a", 42);
  fs_->RemoveFile("/u/torpor/w0/a/cgroup.kill");
  EXPECT_OK(tree_->KillAll("a", Soon())) << "one by one where the kernel has no cgroup.kill";
  EXPECT_EQ(File("/u/torpor/w0/a/cgroup.freeze"), "0") << "the leaf can be used again";
  fs_->SetFile("/u/torpor/w0/a/memory.current", "1000\n");
  fs_->SetFile("/u/torpor/w0/a/memory.stat", "anon 5\ninactive_file 300\n");
  fs_->SetFile("/u/torpor/w0/a/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n");
  fs_->SetFile("/u/torpor/w0/a/cpu.stat", "usage_usec 5000\nuser_usec 1\n");
  ASSERT_OK_AND_ASSIGN(CgroupUsage usage, tree_->Usage("a"));
  EXPECT_EQ(usage.memory_current_bytes, 1000);
  EXPECT_EQ(usage.memory_peak_bytes, 1000) << "no memory.peak";
  EXPECT_EQ(usage.memory_working_set_bytes, 700);
  EXPECT_EQ(usage.oom_kills, 2);
  EXPECT_EQ(usage.limit_hits, 7);
  EXPECT_EQ(usage.cpu_usage_us, 5000);
  EXPECT_FALSE(usage.memory_full_percent.has_value()) << "no memory.pressure";
  fs_->SetFile("/u/torpor/w0/a/memory.pressure",
               "some avg10=80.00 avg60=1.00 avg300=0.00 total=5\n"
               "full avg10=61.25 avg60=0.00 avg300=0.00 total=3\n");
  ASSERT_OK_AND_ASSIGN(usage, tree_->Usage("a"));
  EXPECT_EQ(usage.memory_full_percent, 61.25);
  ASSERT_OK_AND_ASSIGN(bool frozen, tree_->IsFrozen("a"));
  EXPECT_FALSE(frozen) << "asked for, but not done yet";
  fs_->SetFile("/u/torpor/w0/a/cgroup.events", "populated 1\nfrozen 1\n");
  ASSERT_OK_AND_ASSIGN(frozen, tree_->IsFrozen("a"));
  EXPECT_TRUE(frozen);
}

// ---- The kernel of this machine ----

TEST(RealCgroup, LimitsKillsAndLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string parent = "torpor-test-" + std::to_string(getpid());
  auto opened = CgroupTree::Open(parent);
  if (opened.status().code() == Code::kFailedPrecondition)
    GTEST_SKIP() << opened.status().ToString();
  ASSERT_OK(opened);
  auto tree = std::move(*opened);
  ASSERT_OK(tree->Create("a", LimitsForSandbox(32 * kMiB, 500)));
  std::string join;
  for (const std::string& file : tree->ProcsFiles("a")) join += "echo 0 > " + file + " && ";
  ASSERT_OK_AND_ASSIGN(Process born, Spawn({"/bin/sh", "-c", join + "exec sleep 100"}));
  while (true) {  // until it has joined the last one
    std::ifstream comm("/proc/" + std::to_string(born.pid()) + "/comm");
    std::string name;
    comm >> name;
    if (name == "sleep") break;
    ASSERT_FALSE(WaitPidfd(born.pidfd(), Past())) << "could not join";
  }
  ASSERT_OK_AND_ASSIGN(auto processes, tree->Processes("a"));
  EXPECT_THAT(processes, testing::ElementsAre(born.pid()));
  ASSERT_OK_AND_ASSIGN(CgroupUsage usage, tree->Usage("a"));
  EXPECT_GT(usage.memory_current_bytes, 0);
  EXPECT_GE(usage.memory_peak_bytes, usage.memory_current_bytes);
  EXPECT_EQ(usage.oom_kills, 0);
  EXPECT_THAT(tree->Remove("a"), HasCode(Code::kFailedPrecondition));
  EXPECT_OK(tree->Freeze("a", true));
  EXPECT_OK(tree->KillAll("a", Soon()));
  ASSERT_OK_AND_ASSIGN(ExitStatus status, born.Wait(Soon()));
  EXPECT_EQ(status.signal, SIGKILL);

  // 96 MiB are the limit: a process that wants more is killed.
  ASSERT_OK_AND_ASSIGN(Process greedy,
                       Spawn({"/bin/sh", "-c", join + "exec head -c 400M /dev/zero | tail"}));
  ASSERT_OK(greedy.Wait(Soon()));
  ASSERT_OK(tree->KillAll("a", Soon()));
  ASSERT_OK_AND_ASSIGN(usage, tree->Usage("a"));
  EXPECT_GE(usage.oom_kills, 1);
  EXPECT_GT(usage.limit_hits, 0);
  EXPECT_OK(tree->Remove("a"));
  ASSERT_OK_AND_ASSIGN(auto leaves, tree->Leaves());
  EXPECT_TRUE(leaves.empty());
  EXPECT_OK(tree->RemoveParent());
}

}  // namespace
}  // namespace torpor::os
