// The warm pool over a scripted runtime and a simulated cgroup tree.

#include <sys/eventfd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/cgroup/testing/fake_cgroup_fs.h"
#include "worker/pool/warm_pool.h"
#include "worker/testing/scripted_runtime.h"
#include "worker/workload.h"

namespace torpor::worker {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr char kUid[] = "11111111-2222-4333-8444-555555555555";
constexpr os::CgroupLimits kLimits = {
    .memory_bytes = int64_t{576} << 20, .cpu_milli = 500, .processes_max = 100};

MonotonicTime Soon() { return Clock::Real()->Now() + seconds(30); }

TEST(PoolPlan, Table) {
  const MonotonicTime now = MonotonicTime() + std::chrono::hours(9);
  auto at = [&](int minutes_ago) { return now - minutes(minutes_ago); };
  struct Case {
    const char* name;
    std::vector<PoolLine> lines;
    int slots_max;
    std::vector<std::string> make, drop, forget;
    int per_key = 1;
  };
  const Case cases[] = {
      {"nothing known", {}, 8, {}, {}, {}},
      {"a first wake", {{"a", at(1)}}, 8, {"a"}, {}, {}},
      {"one is ready", {{"a", at(1), 1}}, 8, {}, {}, {}},
      {"one is being made", {{"a", at(1), 0, 1}}, 8, {}, {}, {}},
      {"too many", {{"a", at(1), 2}}, 8, {}, {"a"}, {}},
      {"not woken lately", {{"a", at(11), 1}}, 8, {}, {"a"}, {}},
      {"nothing left of it", {{"a", at(11)}}, 8, {}, {}, {"a"}},
      {"still being made", {{"a", at(11), 0, 1}}, 8, {}, {}, {}},
      {"the latest win", {{"a", at(3), 1}, {"b", at(1)}, {"c", at(2), 1}}, 2, {}, {"a"}, {}},
      {"room after the drop", {{"a", at(3)}, {"b", at(1)}, {"c", at(2), 1}}, 2, {"b"}, {}, {"a"}},
      {"no pool", {{"a", at(1)}}, 0, {}, {}, {"a"}},
      {"taken, and nobody woke since", {{"a", at(1), 0, 0, now, false}}, 8, {}, {}, {}},
      {"failed just now", {{"a", at(1), 0, 0, now + seconds(1)}}, 8, {}, {}, {}},
      {"several of each", {{"a", at(2), 1}, {"b", at(1)}}, 3, {"b", "b"}, {}, {}, 2},
      {"fewer of the older", {{"a", at(2), 2}, {"b", at(1), 2}}, 3, {}, {"a"}, {}, 2},
      {"none of it is wanted", {{"a", at(11), 2}}, 8, {}, {"a", "a"}, {}, 2},
      {"failed long ago", {{"a", at(1), 0, 0, now}}, 8, {"a"}, {}, {}},
  };
  for (const Case& c : cases) {
    PoolPlan plan = PlanPool(
        c.lines, now, {.slots_max = c.slots_max, .per_key = c.per_key, .recent = minutes(10)});
    EXPECT_EQ(plan.make, c.make) << c.name;
    EXPECT_EQ(plan.drop, c.drop) << c.name;
    EXPECT_EQ(plan.forget, c.forget) << c.name;
  }
}

class WarmPoolTest : public testing::Test {
 protected:
  WarmPoolTest() : dir_("/tmp/torpor-pool-" + RandomHex(6)) {
    std::filesystem::create_directories(dir_);
    fs_ = std::make_shared<os::FakeCgroupFs>(true, std::set<std::string>{"/u"});
    fs_->SetFile("/u/cgroup.controllers", "cpu memory pids");
    cgroups_ = std::move(os::OpenCgroupTree({.v2 = "/u", .v1 = {}}, "torpor/w0", fs_)).value();
    runtime_.SetPreparation({.key = "k"});
    options_.directory = dir_ + "/pool";
    options_.make_after = Duration::zero();
    args_.spec.add_containers()->set_name("app");
  }
  ~WarmPoolTest() override {
    pool_.reset();
    EXPECT_EQ(runtime_.networks(), 0);
    EXPECT_THAT(cgroups_->Leaves().value(), testing::IsEmpty());
    EXPECT_TRUE(!std::filesystem::exists(options_.directory) ||
                std::filesystem::is_empty(options_.directory));
    std::filesystem::remove_all(dir_);
  }
  void Start() {
    ASSERT_OK_AND_ASSIGN(pool_, WarmPool::Start({.runtime = &runtime_,
                                                 .network = &runtime_,
                                                 .cgroups = cgroups_.get(),
                                                 .ids = IdSource::Real(),
                                                 .clock = Clock::Real()},
                                                options_));
  }
  void Fill(const std::string& key = "k", int count = 1) {
    pool_->NoteWake(key, args_);
    ASSERT_TRUE(pool_->WaitReady(count, Soon()));
  }
  std::string File(const PoolSlot& slot, const std::string& name) {
    return fs_->Read("/u/torpor/w0/" + slot.leaf + "/" + name).value_or("missing");
  }

  const std::string dir_;
  std::shared_ptr<os::FakeCgroupFs> fs_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  ScriptedRuntime runtime_;
  WarmPool::Options options_;
  runtime::StartArgs args_;
  std::unique_ptr<WarmPool> pool_;
};

TEST_F(WarmPoolTest, AWaitingSandboxIsFrozenAndTakenWithTheActorsLimits) {
  Start();
  EXPECT_EQ(pool_->Take("k", kUid, kLimits), nullptr) << "nobody woke yet";
  Fill();
  ASSERT_OK_AND_ASSIGN(auto leaves, cgroups_->Leaves());
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(fs_->Read("/u/torpor/w0/" + leaves[0] + "/cgroup.freeze").value_or(""), "1");
  EXPECT_EQ(pool_->Take("other", kUid, kLimits), nullptr);
  EXPECT_EQ(pool_->Take("", kUid, kLimits), nullptr);
  std::unique_ptr<PoolSlot> slot = pool_->Take("k", kUid, kLimits);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->leaf, leaves[0]);
  EXPECT_EQ(File(*slot, "cgroup.freeze"), "0");
  EXPECT_EQ(File(*slot, "memory.max"), std::to_string(kLimits.memory_bytes));
  EXPECT_EQ(pool_->Take("k", kUid, kLimits), nullptr) << "each is used once";
  EXPECT_EQ(ActorOfLeaf(slot->leaf), slot->name) << "whoever finds the leaf knows the network";
  EXPECT_EQ(ActorOfSlot(options_.directory, slot->name), kUid) << "and whose it is";
  EXPECT_OK(pool_->Remove(*slot));
}

TEST_F(WarmPoolTest, ASandboxThatDiedIsDropped) {
  Start();
  Fill();
  runtime_.KillPrepared();
  EXPECT_EQ(pool_->Take("k", kUid, kLimits), nullptr);
  EXPECT_EQ(runtime_.discarded(), 1);
  EXPECT_EQ(runtime_.networks(), 0);
  Fill();
  auto slot = pool_->Take("k", kUid, kLimits);
  ASSERT_NE(slot, nullptr);
  EXPECT_OK(pool_->Remove(*slot));
}

TEST_F(WarmPoolTest, ASlotThatCannotBeThawedIsDropped) {
  Start();
  Fill();
  ASSERT_OK_AND_ASSIGN(auto leaves, cgroups_->Leaves());
  fs_->RemoveFile("/u/torpor/w0/" + leaves[0] + "/memory.max");
  EXPECT_EQ(pool_->Take("k", kUid, kLimits), nullptr);
  EXPECT_EQ(runtime_.discarded(), 1);
}

TEST_F(WarmPoolTest, AFailureToMakeOneLeavesNothingAndIsNotRepeatedAtOnce) {
  std::promise<void> tried;
  std::atomic<int> tries{0};
  runtime_.SetPreparation(
      {.key = "k", .prepare_error = Error(Code::kInternal, "RUNTIME_FAILED", "no"), .on_make = [&] {
         if (++tries == 1) tried.set_value();
       }});
  Start();
  pool_->NoteWake("k", args_);
  ASSERT_EQ(tried.get_future().wait_for(seconds(30)), std::future_status::ready);
  // Waits for the thread's work on the failure, by way of its join.
  pool_->Shutdown();
  EXPECT_EQ(tries, 1);
}

TEST_F(WarmPoolTest, OnlyTheLatestTemplatesHaveOne) {
  options_.slots_max = 1;
  Start();
  Fill("k");
  pool_->NoteWake("newer", args_);
  MonotonicTime deadline = Soon();
  std::unique_ptr<PoolSlot> slot;
  while (slot == nullptr && Clock::Real()->Now() < deadline) {
    (void)pool_->WaitReady(1, deadline);
    slot = pool_->Take("newer", kUid, kLimits);
  }
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(runtime_.discarded(), 1) << "the older one";
  EXPECT_OK(pool_->Remove(*slot));
}

TEST_F(WarmPoolTest, NobodyWaitsForASandboxThatIsBeingMade) {
  std::promise<void> making, go_on;
  runtime_.SetPreparation({.key = "k", .on_make = [&, waits = go_on.get_future().share()] {
                             making.set_value();
                             waits.wait();
                           }});
  Start();
  pool_->NoteWake("k", args_);
  making.get_future().wait();
  EXPECT_EQ(pool_->Take("k", kUid, kLimits), nullptr);
  go_on.set_value();
  EXPECT_TRUE(pool_->WaitReady(1, Soon()));
}

TEST_F(WarmPoolTest, WhatAnEarlierProcessLeftIsCleanedUp) {
  std::filesystem::create_directories(options_.directory + "/0123456789ab/s");
  Start();
  EXPECT_THAT(runtime_.cleaned_up(), testing::ElementsAre("0123456789ab"));
  EXPECT_TRUE(std::filesystem::is_empty(options_.directory));
}

// One actor that wakes.
class WakeTest : public WarmPoolTest {
 protected:
  WakeTest() {
    for (const char* part : {"bundles/app", "state", "logs", "local"}) {
      std::filesystem::create_directories(fmt::format("{}/actors/{}/{}", dir_, kUid, part));
    }
    Start();
    node_dir_ = std::move(os::DirFd::OpenPath(dir_)).value();
    logs_ = std::move(LogPump::Start(Clock::Real())).value();
    tools_.runtime = &runtime_;
    tools_.network = &runtime_;
    tools_.cgroups = cgroups_.get();
    tools_.pool = pool_.get();
    tools_.logs = logs_.get();
    tools_.node_dir = &node_dir_;
    tools_.node_path = dir_;
    tools_.clock = Clock::Real();
    wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  }
  std::shared_ptr<Workload> Make() {
    torpor::v1::StartWorkloadRequest request;
    request.mutable_op()->set_actor_uid(kUid);
    request.mutable_op()->set_generation(1);
    *request.mutable_spec() = args_.spec;
    request.mutable_spec()
        ->mutable_containers(0)
        ->mutable_wakeup_probe()
        ->mutable_http_get()
        ->set_port(8080);
    request.mutable_spec()->set_memory_bytes(int64_t{512} << 20);
    const std::string root = std::string("actors/") + kUid;
    request.mutable_dirs()->set_root(root);
    request.mutable_dirs()->set_bundles(root + "/bundles");
    request.mutable_dirs()->set_state(root + "/state");
    request.mutable_dirs()->set_logs(root + "/logs");
    request.mutable_dirs()->set_restore(root + "/local");
    request.set_restore(torpor::v1::FIDELITY_MEMORY);
    return std::make_shared<Workload>(&tools_, request, [] {});
  }
  Status Wake(Workload& workload) {
    PhaseRecorder phases("worker", Clock::Real());
    return workload.Start(Soon(), wake_.get(), [] { return OkStatus(); }, &phases);
  }
  void End(Workload& workload) {
    EXPECT_OK(workload.Stop(Duration::zero()));
    EXPECT_OK(workload.Release());
  }

  os::DirFd node_dir_;
  std::unique_ptr<LogPump> logs_;
  WorkloadTools tools_;
  UniqueFd wake_;
};

TEST_F(WakeTest, TheFirstWakeMakesItsSandboxTheNextOneTakesOne) {
  auto first = Make();
  ASSERT_OK(Wake(*first));
  EXPECT_EQ(runtime_.starts(), 1);
  ASSERT_TRUE(pool_->WaitReady(1, Soon()));
  End(*first);
  auto second = Make();
  ASSERT_OK(Wake(*second));
  EXPECT_EQ(runtime_.starts(), 1) << "it came from the pool";
  EXPECT_OK(second->Dial(8080).status()) << "through the slot's network";
  ASSERT_TRUE(pool_->WaitReady(1, Soon())) << "and there is a next one";
  End(*second);
  std::ifstream log(fmt::format("{}/actors/{}/logs/app.log", dir_, kUid));
  std::string text{std::istreambuf_iterator<char>(log), {}};
  EXPECT_NE(text.find("guest wakes in"), std::string::npos) << text;
}

TEST_F(WakeTest, AFaultBeforeTheGuestRanFallsBack) {
  Fill();
  runtime_.SetPreparation({.key = "k", .restore_error = Error(Code::kInternal, "X", "broken")});
  auto workload = Make();
  ASSERT_OK(Wake(*workload));
  EXPECT_EQ(runtime_.starts(), 1);
  EXPECT_EQ(runtime_.last_start().cgroup_leaf, LeafOf(kUid)) << "with surroundings of its own";
  End(*workload);
}

TEST_F(WakeTest, AGuestThatMayHaveRunIsNeverStartedTwice) {
  Fill();
  runtime_.SetPreparation(
      {.key = "k", .restore_error = Error(Code::kInternal, "X", "fell silent"), .guest_ran = true});
  auto workload = Make();
  Status status = Wake(*workload);
  EXPECT_THAT(status, MessageHas("fell silent"));
  EXPECT_EQ(MetadataOf(status)["guest_ran"], "true");
  EXPECT_EQ(runtime_.starts(), 0);
  End(*workload);
}

TEST_F(WakeTest, ADeadSandboxOfThePoolIsNoProblem) {
  Fill();
  runtime_.KillPrepared();
  auto workload = Make();
  ASSERT_OK(Wake(*workload));
  EXPECT_EQ(runtime_.starts(), 1);
  End(*workload);
}

}  // namespace
}  // namespace torpor::worker
