// The limits are taken from the real machine; here only that each comes with what it must have.
#include "bench/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/uuid.h"

namespace torpor::bench {
namespace {

TEST(LimitsTest, StoreAndZstdAreMeasuredAndLeaveNothing) {
  const std::string dir = ::testing::TempDir() + "/limits-" + RandomHex(6);
  auto never = [] { return false; };
  auto store = MeasureStore(dir + "/store", never);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ(store->size(), 2u);
  for (const Limit& limit : *store) {
    EXPECT_EQ(limit.name, "L8");
    EXPECT_EQ(limit.ms.n, 200);
    EXPECT_FALSE(limit.command.empty());
  }
  std::filesystem::create_directories(dir + "/image/deep");
  std::ofstream(dir + "/image/deep/pages") << std::string(1 << 20, 'p');
  std::ofstream(dir + "/image/small") << "s";
  auto zstd = MeasureZstd(dir + "/image", dir + "/zstd", never);
  ASSERT_TRUE(zstd.ok()) << zstd.status();
  for (const Limit& limit : *zstd) {
    EXPECT_EQ(limit.bytes, 1 << 20) << limit.what << ": the largest file is the image";
    EXPECT_GT(limit.ms.p50, 0) << limit.what;
  }
  EXPECT_FALSE(std::filesystem::exists(dir + "/store"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/zstd"));
  EXPECT_FALSE(MeasureZstd(dir + "/none", dir + "/zstd", never).ok());
  std::filesystem::remove_all(dir);
}

TEST(LimitsTest, StopsWhenToldTo) {
  const std::string dir = ::testing::TempDir() + "/limits-" + RandomHex(6);
  auto disk = MeasureDisk(dir, [] { return true; });
  ASSERT_TRUE(disk.ok()) << disk.status();
  EXPECT_EQ(disk->size(), 6u);
  for (const Limit& limit : *disk) EXPECT_EQ(limit.ms.n, 0);
  EXPECT_FALSE(std::filesystem::exists(dir));
}

}  // namespace
}  // namespace torpor::bench
