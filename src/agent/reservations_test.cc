#include "agent/reservations.h"

#include <gtest/gtest.h>

#include "agent/local_snapshots.h"
#include "base/testing/matchers.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::agent {
namespace {

TEST(ReservationsTest, Arithmetic) {
  struct Case {
    int64_t free_bytes, free_inodes, reserved_bytes, reserved_inodes, need_bytes, need_inodes;
    bool fits;
  };
  const Case cases[] = {{100, 10, 0, 0, 100, 10, true},  {100, 10, 1, 0, 100, 10, false},
                        {100, 10, 0, 1, 100, 10, false}, {99, 10, 0, 0, 100, 10, false},
                        {100, 9, 0, 0, 100, 10, false},  {100, 10, 50, 5, 50, 5, true},
                        {10, 10, 50, 0, 1, 1, false}};
  for (const Case& c : cases) {
    os::DiskSpace space{c.free_bytes, 1000, c.free_inodes};
    Status status = CheckRoom(space, {c.reserved_bytes, c.reserved_inodes},
                              {c.need_bytes, c.need_inodes}, "/node");
    EXPECT_EQ(status.ok(), c.fits) << c.free_bytes << " " << c.need_bytes;
    if (!c.fits) {
      EXPECT_THAT(status, HasReason(Code::kResourceExhausted, "DISK_FULL"));
      EXPECT_THAT(status, MessageHas("/node"));
    }
  }
  EXPECT_EQ(CaptureNeed(100 << 20, 0).bytes, (105 << 20) + (16 << 20));
  EXPECT_EQ(CaptureNeed(60 << 20, 40 << 20).bytes, (105 << 20) + (16 << 20));
}

TEST(ReservationsTest, HeldRoomIsNotGivenTwice) {
  os::TempDir temp;
  Reservations reservations;
  int64_t most = temp.dir().Space()->free_bytes / 10 * 8;
  {
    auto hold = reservations.Reserve(temp.dir(), "/x", {most, 1});
    ASSERT_OK(hold);
    EXPECT_THAT(reservations.Reserve(temp.dir(), "/x", {most, 1}),
                HasReason(Code::kResourceExhausted, "DISK_FULL"));
  }
  EXPECT_OK(reservations.Reserve(temp.dir(), "/x", {most, 1}));
}

TEST(PruneTest, EverythingOlderThanTheAcknowledgedOneGoes) {
  std::vector<torpor::v1::LocalCopy> copies(3);
  for (int i = 0; i < 3; ++i) {
    copies[static_cast<size_t>(i)].set_generation(2 * (i + 1));
    copies[static_cast<size_t>(i)].set_snapshot_name("s" + std::to_string(2 * (i + 1)));
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(ChoosePrune(copies, 1), Names{});
  EXPECT_EQ(ChoosePrune(copies, 4), Names{"s2"});
  EXPECT_EQ(ChoosePrune(copies, 6), (Names{"s2", "s4"}));
  EXPECT_EQ(ChoosePrune({}, 6), Names{});
}

}  // namespace
}  // namespace torpor::agent
