#include "worker/freeze/freeze.h"

#include <future>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/cgroup/testing/fake_cgroup_fs.h"

namespace torpor::worker {
namespace {

using std::chrono::seconds;

class FreezeTest : public testing::Test {
 protected:
  FreezeTest() {
    fs_ = std::make_shared<os::FakeCgroupFs>(true, std::set<std::string>{"/u"});
    fs_->SetFile("/u/cgroup.controllers", "cpu memory pids");
    cgroups_ = std::move(os::OpenCgroupTree({.v2 = "/u", .v1 = {}}, "w", fs_)).value();
    EXPECT_OK(cgroups_->Create("a", {}));
    guest_ = std::make_shared<FreezableGuest>(cgroups_.get(), "a", &clock_);
    freezer_ = std::make_unique<IdleFreezer>(&clock_);
    freezer_->Add("a", guest_, seconds(10), [this] { return busy_; });
  }
  // Both what the object believes and what the kernel was told.
  bool Frozen() {
    bool told = fs_->Read("/u/w/a/cgroup.freeze").value_or("") == "1";
    EXPECT_EQ(told, guest_->frozen());
    return told;
  }
  bool FrozenAfter(int elapsed) {
    clock_.Advance(seconds(elapsed));
    (void)freezer_->Look();
    return Frozen();
  }

  FakeClock clock_;
  std::shared_ptr<os::FakeCgroupFs> fs_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::shared_ptr<FreezableGuest> guest_;
  std::unique_ptr<IdleFreezer> freezer_;
  bool busy_ = false;
};

TEST_F(FreezeTest, AnIdleGuestIsFrozenAndThawedByTheNextConnection) {
  EXPECT_FALSE(FrozenAfter(9));
  EXPECT_TRUE(FrozenAfter(1));
  EXPECT_OK(guest_->Touch());
  EXPECT_FALSE(Frozen());
  EXPECT_FALSE(FrozenAfter(10)) << "seen to be idle only now";
  EXPECT_TRUE(FrozenAfter(10));
}

TEST_F(FreezeTest, AnOpenConnectionKeepsItAwake) {
  busy_ = true;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(FrozenAfter(10));
  busy_ = false;
  EXPECT_TRUE(FrozenAfter(10));
}

TEST_F(FreezeTest, AShortConnectionBetweenTwoLooksCounts) {
  clock_.Advance(seconds(9));
  EXPECT_OK(guest_->Touch());
  EXPECT_FALSE(FrozenAfter(1));
  EXPECT_FALSE(FrozenAfter(9));
  EXPECT_TRUE(FrozenAfter(1));
}

TEST_F(FreezeTest, WhoeverHoldsItIsNotFrozen) {
  EXPECT_TRUE(FrozenAfter(10));
  EXPECT_OK(guest_->Hold());
  EXPECT_FALSE(Frozen()) << "a capture needs a living sandbox";
  EXPECT_FALSE(FrozenAfter(20));
  guest_->Release();
  EXPECT_TRUE(FrozenAfter(10));
}

TEST_F(FreezeTest, AConnectionThatComesWhileItFreezesThawsIt) {
  // Counted by the door just after the freezer asked for it.
  std::promise<void> connect;
  std::thread door;
  guest_->FreezeUnlessUsed(clock_.Now(), [&] {
    door = std::thread([&] {
      connect.get_future().wait();
      EXPECT_OK(guest_->Touch());
    });
    connect.set_value();
    return false;
  });
  door.join();
  EXPECT_FALSE(Frozen());
}

TEST_F(FreezeTest, WithoutAFreezerTheGuestStaysReachable) {
  auto fs = std::make_shared<os::FakeCgroupFs>(false, std::set<std::string>{"/m", "/c", "/p"});
  ASSERT_OK_AND_ASSIGN(
      auto tree, os::OpenCgroupTree(
                     {.v2 = "", .v1 = {{"memory", "/m"}, {"cpu", "/c"}, {"pids", "/p"}}}, "w", fs));
  ASSERT_OK(tree->Create("a", {}));
  FreezableGuest guest(tree.get(), "a", &clock_);
  guest.FreezeUnlessUsed(clock_.Now(), [] { return false; });
  EXPECT_FALSE(guest.frozen());
  EXPECT_OK(guest.Touch());
  EXPECT_OK(guest.Hold());
}

TEST_F(FreezeTest, RemovedGuestsAreLeftAlone) {
  freezer_->Remove("a");
  freezer_->Remove("never");
  EXPECT_FALSE(FrozenAfter(100));
  EXPECT_EQ(freezer_->Look(), MonotonicTime::max());
}

TEST_F(FreezeTest, TheThreadLooks) {
  freezer_.reset();
  freezer_ = std::make_unique<IdleFreezer>(Clock::Real());
  guest_ = std::make_shared<FreezableGuest>(cgroups_.get(), "a", Clock::Real());
  std::promise<void> asked;
  std::atomic<bool> once{false};
  freezer_->Start();
  freezer_->Add("a", guest_, std::chrono::milliseconds(1), [&] {
    if (!once.exchange(true)) asked.set_value();
    return true;
  });
  EXPECT_EQ(asked.get_future().wait_for(seconds(30)), std::future_status::ready);
  freezer_.reset();
}

}  // namespace
}  // namespace torpor::worker
