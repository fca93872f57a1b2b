#include "snapshot/save/scan.h"

#include "base/testing/matchers.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kKiB = 1 << 10;

class ScanTest : public testing::Test {
 protected:
  // A file with data at the given offsets, each of `length`.
  void Make(int64_t bytes, const std::vector<FileRange>& data) {
    fd_ = UniqueFd(open((dir_ / "f").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
    ASSERT_EQ(ftruncate(fd_.get(), bytes), 0);
    bytes_ = bytes;
    for (const FileRange& range : data) {
      const std::string text(static_cast<size_t>(range.length), 'x');
      ASSERT_EQ(pwrite(fd_.get(), text.data(), text.size(), range.offset),
                static_cast<ssize_t>(text.size()));
    }
  }
  std::vector<std::pair<int64_t, int64_t>> Ranges() {
    std::vector<std::pair<int64_t, int64_t>> out;
    Scanner scanner(fd_.get(), bytes_);
    for (;;) {
      auto range = scanner.Next();
      EXPECT_OK(range);
      if (range->length == 0) return out;
      out.emplace_back(range->offset, range->length);
    }
  }

  using Found = std::vector<std::pair<int64_t, int64_t>>;
  TempDir dir_;
  UniqueFd fd_;
  int64_t bytes_ = 0;
};

TEST_F(ScanTest, Table) {
  Make(0, {});
  EXPECT_EQ(Ranges(), Found{});
  Make(1 << 30, {});
  EXPECT_EQ(Ranges(), Found{});
  Make(5000, {{0, 5000}});
  EXPECT_EQ(Ranges(), (Found{{0, 5000}}));
  Make(1 << 30, {{0, 4096}, {1 << 29, 8192}, {(1 << 30) - 4096, 4096}});
  EXPECT_EQ(Ranges(), (Found{{0, 4096}, {1 << 29, 8192}, {(1 << 30) - 4096, 4096}}));
  // Closer than 64 KiB is one range; as far as that is two.
  Make(1 << 20, {{0, 4096}, {64 * kKiB, 4096}, {256 * kKiB, 4096}, {324 * kKiB, 4096}});
  EXPECT_EQ(Ranges(), (Found{{0, 68 * kKiB}, {256 * kKiB, 4096}, {324 * kKiB, 4096}}));
}

TEST_F(ScanTest, TotalsAndCancel) {
  Make(1 << 30, {{0, 4096}, {1 << 29, 8192}});
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  ASSERT_OK_AND_ASSIGN(ScanTotals totals, ScanFile(fd_.get(), bytes_, transfer));
  EXPECT_EQ(totals.bytes, 12288);
  EXPECT_EQ(totals.ranges, 2);
  transfer.Cancel();
  EXPECT_THAT(ScanFile(fd_.get(), bytes_, transfer), HasCode(Code::kCancelled));
}

}  // namespace
}  // namespace torpor::snapshot
