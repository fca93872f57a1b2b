// Every row of the isolation's table, over a simulated cgroup tree and a scripted runsc with real
// processes. Whatever happens, no process is left in a sibling and no sibling is left.

#include "runtime/gvisor/isolation.h"

#include <errno.h>

#include <set>

#include "os/cgroup/testing/fake_cgroup_fs.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/testing/faults_fixture.h"

namespace torpor::gvisor {
namespace {

using os::CgroupSide;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

constexpr pid_t kStub = 1 << 22;  // no such process, like a stub it has no command line

struct Kernel {
  friend void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }
  const char* name;
  bool v2;
  os::CgroupMounts mounts;
  std::set<std::string> directories;
  std::string leaf;
};
const Kernel kV1 = {
    "V1",
    false,
    {"", {{"memory", "/m"}, {"cpu", "/c"}, {"cpuacct", "/c"}, {"pids", "/p"}, {"freezer", "/f"}}},
    {"/m", "/c", "/p", "/f"},
    "/m/w/a"};
const Kernel kV2 = {"V2", true, {"/u", {}}, {"/u"}, "/u/w/a"};

// A zombie is in no group's list.
bool IsAlive(pid_t pid) {
  if (pid == kStub) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  size_t end = stat.rfind(')');
  return end != std::string::npos && stat.size() > end + 2 && stat[end + 2] != 'Z' &&
         stat[end + 2] != 'X';
}

class IsolationTest : public FaultsTest, public testing::WithParamInterface<Kernel> {
 protected:
  IsolationTest() : fs_(std::make_shared<os::FakeCgroupFs>(GetParam().v2, GetParam().directories)) {
    fs_->SetLiveness(IsAlive);
    auto tree = os::OpenCgroupTree(GetParam().mounts, "w", fs_);
    EXPECT_OK(tree);
    tree_ = std::move(*tree);
    EXPECT_OK(tree_->Create("a", os::LimitsForSandbox(int64_t{64} << 20, 0)));
    args_.cgroups = tree_.get();
    args_.cgroup_leaf = "a";
    args_.cgroup_procs_files = tree_->ProcsFiles("a");
  }
  ~IsolationTest() override {
    fs_->DropProcess(kStub);
    if (sandbox_ != nullptr) {
      EXPECT_OK(sandbox_->Stop(Duration::zero()));
    }
    EXPECT_THAT(InSibling(), IsEmpty());
    EXPECT_FALSE(SiblingExists());
    sandbox_.reset();  // before the tree
  }

  int Counted(const std::string& isolated) {
    const std::string line = "captures{isolated=\"" + isolated + "\"} ";
    const std::string text = metrics_.Render();
    size_t at = text.find(line);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + line.size()));
  }
  // A process of this name that does nothing.
  os::Process Sleeper(const std::string& name) {
    std::error_code exists;
    std::filesystem::create_symlink("/bin/sh", directory_ + "/bin/" + name, exists);
    auto process = os::Spawn(
        {"/bin/sh", "-c",
         "cd " + directory_ + "/bin && PATH=$PWD:$PATH exec " + name + " -c 'read x < fifo; :'"});
    EXPECT_OK(process);
    while (ProgramOf(process->pid()) != name) usleep(500);
    fs_->AddProcess(leaf_, process->pid());
    return std::move(*process);
  }
  void End(os::Process& process) {
    EXPECT_OK(process.Signal(SIGKILL));
    EXPECT_OK(process.Wait(In(std::chrono::seconds(20))));
  }

  // The scripted sandbox and, as in every sandbox, a stub beside it.
  void StartInLeaf() {
    ASSERT_OK(Start());
    fs_->AddProcess(leaf_, sentry());
    fs_->AddProcess(leaf_, kStub);
  }
  pid_t sentry() const { return sandbox_->main_pid(); }
  std::vector<pid_t> InLeaf() { return tree_->ProcessesOf("a", CgroupSide::kLeaf).value(); }
  std::vector<pid_t> InSibling() { return tree_->ProcessesOf("a", CgroupSide::kSibling).value(); }
  bool SiblingExists() { return fs_->ListDirs(sibling_).ok(); }
  void KillSentryAndWait() {
    EXPECT_EQ(kill(sentry(), SIGKILL), 0);
    while (IsAlive(sentry())) usleep(500);
  }
  bool MovedOut() {
    for (const auto& [pid, to] : fs_->Moves()) {
      if (pid == sentry() && to == sibling_) return true;
    }
    return false;
  }
  // A failed capture after which the guest must be dead, and everything gone with Stop.
  void ExpectEnded() {
    EXPECT_FALSE(failure_.guest_alive);
    EXPECT_FALSE(IsAlive(sentry()));
    EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  }
  void ExpectGoesOn() {
    EXPECT_TRUE(failure_.guest_alive);
    EXPECT_TRUE(IsAlive(sentry()));
    EXPECT_THAT(InLeaf(), testing::Contains(sentry())) << "with its limits";
    EXPECT_FALSE(SiblingExists());
    EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  }

  const std::string leaf_ = GetParam().leaf, sibling_ = GetParam().leaf + "_ckpt";
  std::shared_ptr<os::FakeCgroupFs> fs_;
  std::unique_ptr<os::CgroupTree> tree_;
};

INSTANTIATE_TEST_SUITE_P(, IsolationTest, testing::Values(kV1, kV2),
                         [](const auto& info) { return info.param.name; });

// ---- IDLE: find the sentry ----

TEST_P(IsolationTest, E3_OnlyTheSentryMoves) {
  StartInLeaf();
  os::Process gofer = Sleeper("runsc-gofer");
  ASSERT_OK(Capture());
  EXPECT_THAT(fs_->Moves(), ElementsAre(testing::Pair(sentry(), sibling_)));
  End(gofer);
}

TEST_P(IsolationTest, E3_NoSentryIsPlain) {
  ASSERT_OK(Start());
  fs_->AddProcess(leaf_, kStub);
  ASSERT_OK(Capture());
  EXPECT_THAT(fs_->Moves(), IsEmpty());
}

TEST_P(IsolationTest, E3_TwoSentriesArePlain) {
  StartInLeaf();
  os::Process second = Sleeper("runsc-sandbox");
  ASSERT_OK(Capture());
  EXPECT_THAT(fs_->Moves(), IsEmpty());
  End(second);
}

// ---- FOUND: make the sibling ----

TEST_P(IsolationTest, AnEmptySiblingThatExistsIsUsed) {
  StartInLeaf();
  ASSERT_OK(tree_->CreateSibling("a"));
  ASSERT_OK(Capture());
  EXPECT_TRUE(MovedOut());
}

TEST_P(IsolationTest, ASiblingWithAForeignProcessIsPlain) {
  StartInLeaf();
  ASSERT_OK(tree_->CreateSibling("a"));
  fs_->AddProcess(sibling_, getpid());
  ASSERT_OK(Capture());
  EXPECT_FALSE(MovedOut());
  fs_->DropProcess(getpid());
}

TEST_P(IsolationTest, ASiblingThatCannotBeMadeIsPlain) {
  StartInLeaf();
  fs_->Hook("mkdir", sibling_, [] { return ENOMEM; });
  ASSERT_OK(Capture());
  EXPECT_FALSE(MovedOut());
  EXPECT_EQ(Counted("no"), 1);
}

// ---- PREPARED: move ----

TEST_P(IsolationTest, E3_AReusedPidIsNeverMoved) {
  StartInLeaf();
  fs_->Hook("mkdir", sibling_, [&] {  // between the first and the second look
    fs_->DropProcess(sentry());
    return 0;
  });
  ASSERT_OK(Capture());
  EXPECT_THAT(fs_->Moves(), IsEmpty());
  EXPECT_FALSE(SiblingExists()) << "it was not needed";
}

TEST_P(IsolationTest, AMoveThatFailsIsPlain) {
  StartInLeaf();
  fs_->Hook("join", sibling_, [] { return EIO; });
  ASSERT_OK(Capture());
  EXPECT_FALSE(MovedOut());
  EXPECT_FALSE(SiblingExists());
}

TEST_P(IsolationTest, ASentryThatDiesDuringTheMoveIsACrash) {
  StartInLeaf();
  fs_->Hook("join", sibling_, [&] {
    KillSentryAndWait();
    return 0;
  });
  EXPECT_THAT(Capture(), HasReason(Code::kInternal, "WORKLOAD_EXITED"));
  ExpectEnded();
}

// ---- PLAIN and ISOLATED ----

TEST_P(IsolationTest, APlainCaptureBypassesThePageCacheWherePossible) {
  StartInLeaf();
  const bool possible = SupportsDirect(capture_.capture_dir, /*writable=*/true);
  fs_->Hook("mkdir", sibling_, [] { return EPERM; });
  ASSERT_OK(Capture());
  std::ifstream file(directory_ + "/bin/checkpoint.arguments");
  std::string arguments;
  std::getline(file, arguments);
  EXPECT_EQ(arguments.find(" -direct ") != std::string::npos, possible) << arguments;
}

// ---- CAPTURING ----

TEST_P(IsolationTest, ASavedGuestEndsInTheSiblingWhichGoes) {
  StartInLeaf();
  ASSERT_OK(Capture());
  EXPECT_TRUE(MovedOut());
  EXPECT_EQ(Counted("yes"), 1);
  fs_->DropProcess(kStub);
  ASSERT_OK(sandbox_->Stop(Duration::zero()));
  EXPECT_FALSE(SiblingExists());
  EXPECT_THAT(InLeaf(), IsEmpty());
}

TEST_P(IsolationTest, ACheckpointThatFailsGoesBack) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_THAT(fs_->Moves(),
              ElementsAre(testing::Pair(sentry(), sibling_), testing::Pair(sentry(), leaf_)));
  ExpectGoesOn();
  Mode("checkpoint", "");
  ASSERT_OK(Capture()) << "and can be captured later";
}

TEST_P(IsolationTest, ACheckpointThatHangsGoesBack) {
  StartInLeaf();
  Mode("checkpoint", "hang");
  capture_.deadline = In(std::chrono::milliseconds(200));
  EXPECT_THAT(Capture(), HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  ExpectGoesOn();
}

TEST_P(IsolationTest, ACheckpointWithoutFilesGoesBack) {
  StartInLeaf();
  Mode("checkpoint", "nothing");
  EXPECT_THAT(Capture(), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  ExpectGoesOn();
}

// ---- RETURNING ----

TEST_P(IsolationTest, ASentryThatWasNeverMovedNeedsNoWayBack) {
  StartInLeaf();
  fs_->Hook("join", sibling_, [] { return EIO; });
  Mode("checkpoint", "partial");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_THAT(fs_->Moves(), IsEmpty());
  ExpectGoesOn();
}

TEST_P(IsolationTest, ASentryThatIsDeadNeedsNoWayBack) {
  StartInLeaf();
  Mode("checkpoint", "die");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_THAT(fs_->Moves(), ElementsAre(testing::Pair(sentry(), sibling_)));
  ExpectEnded();
}

TEST_P(IsolationTest, NoSuchProcessOnTheWayBackIsFine) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  fs_->Hook("join", leaf_, [&] {
    KillSentryAndWait();
    return ESRCH;
  });
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  ExpectEnded();
}

TEST_P(IsolationTest, E2_LeftUnlimited) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  fs_->Hook("join", leaf_, [] { return ENOENT; });  // not the same as ESRCH
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  ExpectEnded();
  fs_->DropProcess(kStub);
  ASSERT_OK(sandbox_->Stop(Duration::zero()));
  EXPECT_FALSE(SiblingExists());
}

TEST_P(IsolationTest, AnyOtherErrorOnTheWayBackEndsTheSandbox) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  fs_->Hook("join", leaf_, [] { return EIO; });
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  ExpectEnded();
}

TEST_P(IsolationTest, AMoveBackWithoutEffectEndsTheSandbox) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  fs_->Hook("join", leaf_, [] { return -1; });
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  ExpectEnded();
}

// ---- RETURNED ----

TEST_P(IsolationTest, AGuestThatDoesNotAnswerIsEnded) {
  StartInLeaf();
  Mode("checkpoint", "partial");
  Mode("ps", "fail");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_THAT(fs_->Moves(),
              ElementsAre(testing::Pair(sentry(), sibling_), testing::Pair(sentry(), leaf_)));
  ExpectEnded();
}

// ---- REMOVING ----

TEST_P(IsolationTest, ASiblingThatIsBusyForAWhileIsRemoved) {
  StartInLeaf();
  ASSERT_OK(Capture());
  fs_->DropProcess(kStub);
  fs_->MakeBusy(sibling_, 300);
  EXPECT_OK(sandbox_->Stop(Duration::zero()));
  EXPECT_FALSE(SiblingExists());
}

TEST_P(IsolationTest, ASiblingThatStaysBusyIsReportedAndRemovedLater) {
  StartInLeaf();
  ASSERT_OK(Capture());
  fs_->DropProcess(kStub);
  fs_->MakeBusy(sibling_, 1000000);
  EXPECT_THAT(sandbox_->Stop(Duration::zero()), HasCode(Code::kFailedPrecondition));
  fs_->MakeBusy(sibling_, 0);
  EXPECT_OK(sandbox_->Stop(Duration::zero()));
}

// ---- What no real process does: it survives SIGKILL, or goes on after a capture ----

class SimulatedSentry : public IsolatedSentry {
 public:
  pid_t pid() const override { return getpid(); }
  std::shared_ptr<void> HoldPid() const override { return std::make_shared<int>(); }
  bool Ended() const override { return ended; }
  bool ProveAlive() override { return alive; }
  Status Kill() override {
    ++kills;
    return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", "it does not end");
  }
  bool ended = false, alive = true;
  int kills = 0;
};

// The test itself plays the sentry.
class SimulatedIsolationTest : public testing::TestWithParam<Kernel> {
 protected:
  SimulatedIsolationTest()
      : fs_(std::make_shared<os::FakeCgroupFs>(GetParam().v2, GetParam().directories)),
        tree_(os::OpenCgroupTree(GetParam().mounts, "w", fs_).value()),
        isolation_(tree_.get(), "a", &sentry_, [](pid_t) { return std::string("runsc-sandbox"); }) {
    EXPECT_OK(tree_->Create("a", {}));
    fs_->AddProcess(leaf_, getpid());
  }
  std::vector<pid_t> In(CgroupSide side) { return tree_->ProcessesOf("a", side).value(); }
  bool SiblingExists() { return fs_->ListDirs(sibling_).ok(); }

  const std::string leaf_ = GetParam().leaf, sibling_ = GetParam().leaf + "_ckpt";
  std::shared_ptr<os::FakeCgroupFs> fs_;
  std::unique_ptr<os::CgroupTree> tree_;
  SimulatedSentry sentry_;
  CaptureIsolation isolation_;
};

INSTANTIATE_TEST_SUITE_P(, SimulatedIsolationTest, testing::Values(kV1, kV2),
                         [](const auto& info) { return info.param.name; });

TEST_P(SimulatedIsolationTest, AGuestLeftRunningGoesBack) {
  ASSERT_OK(isolation_.Begin());
  EXPECT_THAT(In(CgroupSide::kSibling), ElementsAre(getpid()));
  EXPECT_TRUE(isolation_.GoOn(/*saved=*/true));
  EXPECT_EQ(isolation_.state(), IsolationState::kIdle);
  EXPECT_THAT(In(CgroupSide::kLeaf), ElementsAre(getpid()));
  EXPECT_FALSE(SiblingExists());
  EXPECT_EQ(sentry_.kills, 0);
}

TEST_P(SimulatedIsolationTest, TheGuardBringsBackWhatNobodyBroughtBack) {
  {
    CaptureIsolation::Guard guard(&isolation_);
    ASSERT_OK(isolation_.Begin());
  }
  EXPECT_EQ(isolation_.state(), IsolationState::kIdle);
  EXPECT_THAT(In(CgroupSide::kLeaf), ElementsAre(getpid()));
}

TEST_P(SimulatedIsolationTest, ASurvivorIsFrozenWithItsLimits) {
  ASSERT_OK(isolation_.Begin());
  isolation_.SavedToEnd();
  EXPECT_THAT(isolation_.TornDown(), HasReason(Code::kInternal, "INTERNAL"));
  EXPECT_EQ(isolation_.state(), IsolationState::kError);
  EXPECT_THAT(In(CgroupSide::kLeaf), ElementsAre(getpid()));
  EXPECT_FALSE(SiblingExists());
  const std::string file = GetParam().v2 ? "/u/w/a/cgroup.freeze" : "/f/w/a/freezer.state";
  EXPECT_EQ(fs_->Read(file).value(), GetParam().v2 ? "1" : "FROZEN");
  sentry_.ended = true;
  fs_->DropProcess(getpid());
  EXPECT_OK(isolation_.TornDown()) << "asked again, when it has ended at last";
}

TEST_P(SimulatedIsolationTest, AProcessThatEndsLateIsNoSurvivor) {
  ASSERT_OK(isolation_.Begin());
  isolation_.SavedToEnd();
  fs_->Hook("join", leaf_, [&] {
    sentry_.ended = true;
    fs_->DropProcess(getpid());
    return ESRCH;
  });
  EXPECT_OK(isolation_.TornDown());
  EXPECT_EQ(isolation_.state(), IsolationState::kDone);
  EXPECT_FALSE(SiblingExists());
}

TEST_P(SimulatedIsolationTest, AMissingLeafMakesItKillEvenWhenThatFails) {
  ASSERT_OK(isolation_.Begin());
  fs_->Hook("join", leaf_, [] { return ENOENT; });
  EXPECT_FALSE(isolation_.GoOn(/*saved=*/false));
  EXPECT_EQ(sentry_.kills, 1);
  EXPECT_EQ(isolation_.state(), IsolationState::kTeardown);
  EXPECT_THAT(isolation_.TornDown(), testing::Not(IsOk())) << "reported, and frozen where it is";
  const std::string file = GetParam().v2 ? "/u/w/a_ckpt/cgroup.freeze" : "/f/w/a/freezer.state";
  EXPECT_EQ(fs_->Read(file).value(), GetParam().v2 ? "1" : "FROZEN");
}

// ---- The table itself ----

TEST(IsolationTable, EveryRowAndNothingElse) {
  using S = IsolationState;
  using E = IsolationEvent;
  const std::set<std::tuple<S, E, S>> rows = {
      {S::kIdle, E::kSentryFound, S::kFound},
      {S::kIdle, E::kSentryUnclear, S::kPlain},
      {S::kFound, E::kSiblingReady, S::kPrepared},
      {S::kFound, E::kSiblingRefused, S::kPlain},
      {S::kPrepared, E::kMoved, S::kIsolated},
      {S::kPrepared, E::kNotMoved, S::kPlain},
      {S::kPrepared, E::kSentryDead, S::kTeardown},
      {S::kPlain, E::kCaptureBegins, S::kCapturing},
      {S::kIsolated, E::kCaptureBegins, S::kCapturing},
      {S::kCapturing, E::kSavedToEnd, S::kTeardown},
      {S::kCapturing, E::kSavedToGoOn, S::kReturning},
      {S::kCapturing, E::kNotSaved, S::kReturning},
      {S::kReturning, E::kBack, S::kReturned},
      {S::kReturning, E::kStuck, S::kMustKill},
      {S::kReturned, E::kProven, S::kIdle},
      {S::kReturned, E::kNotProven, S::kMustKill},
      {S::kMustKill, E::kKilled, S::kTeardown},
      {S::kTeardown, E::kTornDown, S::kRemoving},
      {S::kIdle, E::kTornDown, S::kRemoving},
      {S::kDone, E::kTornDown, S::kRemoving},
      {S::kError, E::kTornDown, S::kRemoving},
      {S::kRemoving, E::kRemoved, S::kDone},
      {S::kRemoving, E::kSurvived, S::kError},
  };
  std::set<std::tuple<S, E, S>> found;
  for (int state = 0; state <= static_cast<int>(S::kError); ++state) {
    for (int event = 0; event <= static_cast<int>(E::kSurvived); ++event) {
      auto next = NextIsolationState(static_cast<S>(state), static_cast<E>(event));
      if (next.has_value()) found.insert({static_cast<S>(state), static_cast<E>(event), *next});
    }
  }
  EXPECT_EQ(found, rows);
}

}  // namespace
}  // namespace torpor::gvisor
