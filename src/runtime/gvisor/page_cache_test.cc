#include "runtime/gvisor/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/staged.h"

namespace torpor::gvisor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

MonotonicTime Soon() { return std::chrono::steady_clock::now() + seconds(30); }

TEST(Eviction, Decision) {
  struct Case {
    std::optional<CachedPages> pages;
    Duration age;
    Eviction want;
  };
  const Case kCases[] = {
      {CachedPages{0, 0, 0}, seconds(0), Eviction::kFinished},
      {CachedPages{0, 0, 0}, seconds(60), Eviction::kFinished},
      {CachedPages{10, 1, 0}, seconds(60), Eviction::kLater},
      {CachedPages{10, 0, 1}, seconds(60), Eviction::kLater},
      {CachedPages{10, 10, 10}, seconds(60), Eviction::kLater},
      {CachedPages{10, 0, 0}, seconds(0), Eviction::kEvict},
      {std::nullopt, seconds(4), Eviction::kLater},
      {std::nullopt, seconds(5), Eviction::kEvict},
  };
  for (const Case& c : kCases) EXPECT_EQ(DecideEviction(c.pages, c.age), c.want);
}

TEST(Staged, Decision) {
  struct Case {
    bool preserve;
    uint64_t links;
    int64_t bytes;
    Staged want;
  };
  const Case kCases[] = {
      {true, 1, kBigImageBytes + 1, Staged::kKeep},
      {true, 2, kBigImageBytes + 1, Staged::kKeep},
      {true, 1, kBigImageBytes, Staged::kKeep},
      {true, 2, kBigImageBytes, Staged::kKeep},
      {false, 1, kBigImageBytes, Staged::kKeep},
      {false, 2, kBigImageBytes, Staged::kKeep},
      {false, 1, kBigImageBytes + 1, Staged::kTruncate},
      {false, 2, kBigImageBytes + 1, Staged::kUnlink},
      {false, 12, kBigImageBytes + 1, Staged::kUnlink},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(DecideStaged(c.preserve, c.links, c.bytes), c.want)
        << c.preserve << " " << c.links << " " << c.bytes;
  }
}

// What the kernel would say of each file, by inode.
class SimulatedFileCache : public FileCache {
 public:
  std::optional<CachedPages> Query(int fd) override { return pages[InodeOf(fd)]; }
  void Drop(int fd) override {
    ino_t inode = InodeOf(fd);
    dropped.push_back(inode);
    pages[inode] = CachedPages{};
  }
  static ino_t InodeOf(int fd) {
    struct stat st;
    fstat(fd, &st);
    return st.st_ino;
  }
  std::map<ino_t, std::optional<CachedPages>> pages;
  std::vector<ino_t> dropped;
};

class PageCacheTest : public testing::Test {
 protected:
  PageCacheTest() : directory_(std::filesystem::current_path() / ("page-cache-" + RandomHex(6))) {
    std::filesystem::create_directories(directory_ + "/image");
    std::filesystem::create_directories(directory_ + "/store");
  }
  ~PageCacheTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) { return directory_ + "/image/" + name; }
  // A file of this size, as far as anybody looks; nothing of it is cached yet.
  ino_t Make(const std::string& name, int64_t bytes = 4 * kBigImageBytes) {
    std::ofstream(Path(name)).put('x');
    std::filesystem::resize_file(Path(name), static_cast<uintmax_t>(bytes));
    return Inode(Path(name));
  }
  ino_t Inode(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
  }
  std::unique_ptr<PageCache::Use> Load(bool preserve = true) {
    return cache_.Load(directory_ + "/image", preserve, Soon()).value();
  }
  // Delay until the next pass, in ms; -1 when there is none.
  int64_t RunDue() {
    auto next = cache_.RunDue();
    return next.has_value() ? (*next - clock_.Now()) / milliseconds(1) : -1;
  }

  const std::string directory_;
  FakeClock clock_;
  SimulatedFileCache files_;
  PageCache cache_{&clock_, &files_};
};

TEST_F(PageCacheTest, CleanPagesGoAtOnceAndThenItIsFinished) {
  ino_t pages = Make("pages.img"), state = Make("checkpoint.img", 100), tar = Make("v.tar");
  Make("manifest.json");
  for (ino_t inode : {pages, state, tar}) files_.pages[inode] = CachedPages{5, 0, 0};
  auto use = Load();
  EXPECT_EQ(RunDue(), -1) << "nothing happens before it is loaded";
  use->Loaded();
  EXPECT_EQ(RunDue(), 500);
  EXPECT_THAT(files_.dropped, testing::UnorderedElementsAre(pages, state, tar));
  clock_.Advance(milliseconds(500));
  EXPECT_EQ(RunDue(), -1) << "nothing is cached any more";
  EXPECT_TRUE(std::filesystem::exists(Path("pages.img"))) << "a preserved file stays";
}

TEST_F(PageCacheTest, E6_DirtyPagesAreLeftForLaterPasses) {
  ino_t inode = Make("pages.img");
  files_.pages[inode] = CachedPages{5, 5, 0};
  auto use = Load();
  use->Loaded();
  EXPECT_EQ(RunDue(), 500);
  clock_.Advance(milliseconds(499));
  EXPECT_EQ(RunDue(), 1);
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(RunDue(), 1500);
  files_.pages[inode] = CachedPages{5, 0, 2};  // being written
  clock_.Advance(milliseconds(1500));
  EXPECT_EQ(RunDue(), 3000);
  EXPECT_THAT(files_.dropped, IsEmpty());
  files_.pages[inode] = CachedPages{5, 0, 0};
  clock_.Advance(milliseconds(3000));
  EXPECT_EQ(RunDue(), -1) << "the last pass";
  EXPECT_THAT(files_.dropped, ElementsAre(inode));
}

TEST_F(PageCacheTest, E6_NothingIsForcedInTheLastPassEither) {
  files_.pages[Make("pages.img")] = CachedPages{5, 5, 0};
  auto use = Load();
  use->Loaded();
  for (int64_t next = RunDue(); next > 0; next = RunDue()) clock_.Advance(milliseconds(next));
  EXPECT_THAT(files_.dropped, IsEmpty());
}

TEST_F(PageCacheTest, E7_ANewerFileIsNotTouched) {
  ino_t old = Make("pages.img"), rewritten = Make("checkpoint.img");
  for (ino_t inode : {old, rewritten}) files_.pages[inode] = CachedPages{5, 5, 0};
  auto use = Load(/*preserve=*/false);
  std::filesystem::create_hard_link(Path("pages.img"), directory_ + "/store/pages.img");
  std::filesystem::create_hard_link(Path("checkpoint.img"), directory_ + "/store/checkpoint.img");
  use->Loaded();
  EXPECT_EQ(RunDue(), 500);
  std::filesystem::remove(Path("pages.img"));
  ino_t newer = Make("pages.img");
  std::ofstream(Path("checkpoint.img"), std::ios::app) << "more";
  for (ino_t inode : {old, newer, rewritten}) files_.pages[inode] = CachedPages{5, 0, 0};
  clock_.Advance(milliseconds(500));
  EXPECT_EQ(RunDue(), -1);
  EXPECT_THAT(files_.dropped, IsEmpty());
  EXPECT_EQ(Inode(Path("pages.img")), newer);
  EXPECT_EQ(Inode(Path("checkpoint.img")), rewritten);
}

TEST_F(PageCacheTest, ASharedFileStaysWhileAnotherRestoreLoadsIt) {
  ino_t inode = Make("pages.img");
  std::filesystem::create_hard_link(Path("pages.img"), directory_ + "/store/pages.img");
  files_.pages[inode] = CachedPages{5, 0, 0};
  auto use = Load();
  auto other = cache_.Load(directory_ + "/store", true, Soon()).value();
  use->Loaded();
  EXPECT_EQ(RunDue(), 500);
  EXPECT_THAT(files_.dropped, IsEmpty());
  other.reset();
  clock_.Advance(milliseconds(500));
  EXPECT_EQ(RunDue(), 1500);
  EXPECT_THAT(files_.dropped, ElementsAre(inode));
}

TEST_F(PageCacheTest, TwoNamesOfOneFileAreOneFile) {
  ino_t inode = Make("pages.img");
  std::filesystem::create_hard_link(Path("pages.img"), Path("again.img"));
  std::filesystem::create_symlink(Path("pages.img"), Path("link.img"));
  files_.pages[inode] = CachedPages{5, 0, 0};
  auto use = Load();
  use->Loaded();
  RunDue();
  EXPECT_THAT(files_.dropped, ElementsAre(inode));
}

TEST_F(PageCacheTest, NothingIsTouchedAfterTheActorLeft) {
  files_.pages[Make("pages.img")] = CachedPages{5, 0, 0};
  auto use = Load(/*preserve=*/false);
  use->Loaded();
  use.reset();
  EXPECT_EQ(RunDue(), -1);
  EXPECT_THAT(files_.dropped, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(Path("pages.img")));
}

TEST_F(PageCacheTest, StagedFilesGoAsTheTableSays) {
  ino_t single = Make("single.img"), linked = Make("linked.img"), small = Make("small.img", 1000);
  std::filesystem::create_hard_link(Path("linked.img"), directory_ + "/store/linked.img");
  files_.pages[single] = CachedPages{5, 5, 0};
  files_.pages[linked] = CachedPages{5, 0, 0};
  files_.pages[small] = CachedPages{1, 0, 0};
  auto use = Load(/*preserve=*/false);
  use->Loaded();
  RunDue();
  EXPECT_FALSE(std::filesystem::exists(Path("single.img"))) << "its dirty pages with it";
  EXPECT_TRUE(std::filesystem::exists(Path("linked.img"))) << "first its page cache goes";
  EXPECT_THAT(files_.dropped, ElementsAre(linked, small));
  clock_.Advance(milliseconds(500));
  EXPECT_EQ(RunDue(), -1);
  EXPECT_FALSE(std::filesystem::exists(Path("linked.img")));
  EXPECT_EQ(std::filesystem::file_size(directory_ + "/store/linked.img"),
            static_cast<uintmax_t>(4 * kBigImageBytes))
      << "never truncated";
  EXPECT_TRUE(std::filesystem::exists(Path("small.img")));
}

TEST_F(PageCacheTest, ALinkThatStaysDirtyIsUnlinkedInTheLastPass) {
  ino_t inode = Make("linked.img");
  std::filesystem::create_hard_link(Path("linked.img"), directory_ + "/store/linked.img");
  files_.pages[inode] = CachedPages{5, 5, 0};
  auto use = Load(/*preserve=*/false);
  use->Loaded();
  for (int64_t next = RunDue(); next > 0; next = RunDue()) clock_.Advance(milliseconds(next));
  EXPECT_THAT(files_.dropped, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(Path("linked.img")));
}

TEST_F(PageCacheTest, ALinkMadeAfterTheDecisionKeepsItsContent) {
  Make("pages.img");
  struct stat pin;
  ASSERT_EQ(stat(Path("pages.img").c_str(), &pin), 0);
  std::filesystem::create_hard_link(Path("pages.img"), directory_ + "/store/pages.img");
  RemoveStaged(Path("pages.img"), pin, Staged::kTruncate);
  EXPECT_FALSE(std::filesystem::exists(Path("pages.img")));
  EXPECT_EQ(std::filesystem::file_size(directory_ + "/store/pages.img"),
            static_cast<uintmax_t>(4 * kBigImageBytes));
}

TEST_F(PageCacheTest, OnlySoManyLoadOneFileAtATime) {
  Make("pages.img");
  PageCache cache(Clock::Real(), &files_);
  const MonotonicTime past = std::chrono::steady_clock::now() - seconds(1);
  auto load = [&](MonotonicTime deadline) {
    return cache.Load(directory_ + "/image", true, deadline);
  };
  std::vector<std::unique_ptr<PageCache::Use>> uses;
  for (int i = 0; i < PageCache::kLoadersMax; ++i) uses.push_back(load(past).value());
  EXPECT_THAT(load(past), HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  std::thread ends([&] { uses.front()->Loaded(); });
  EXPECT_OK(load(Soon()));
  ends.join();
}

TEST_F(PageCacheTest, ThePassesRunInTheirThread) {
  ino_t inode = Make("pages.img");
  files_.pages[inode] = CachedPages{5, 0, 0};
  PageCache cache(Clock::Real(), &files_);
  std::thread thread([&] { cache.Run(); });
  auto use = cache.Load(directory_ + "/image", /*preserve=*/false, Soon()).value();
  use->Loaded();
  for (const MonotonicTime deadline = Soon(); std::filesystem::exists(Path("pages.img"));) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(milliseconds(1));
  }
  use.reset();
  cache.Stop();
  thread.join();
}

// ---- The kernel of this machine ----

class RealFileCacheTest : public PageCacheTest {
 protected:
  void SetUp() override {
    std::ofstream(Path("pages.img")) << std::string(8 << 20, 'x');
    fd_ = UniqueFd(open(Path("pages.img").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd_.valid());
    ASSERT_EQ(fsync(fd_.get()), 0);
  }
  UniqueFd fd_;
};

TEST_F(RealFileCacheTest, CleanPagesAreSeenDroppedAndReadAhead) {
  FileCache* real = FileCache::Real();
  auto pages = real->Query(fd_.get());
  if (!pages.has_value()) return;  // before Linux 6.5
  EXPECT_GT(pages->cached, 0u);
  EXPECT_EQ(pages->dirty, 0u);
  EXPECT_EQ(pages->writeback, 0u);
  real->Drop(fd_.get());
  if (real->Query(fd_.get())->cached > 0) return;  // a file system that is all page cache
  // The kernel may leave out pages when it is busy, so it is asked again.
  for (const MonotonicTime deadline = Soon(); CachedFraction(Path("pages.img")) < 1;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    ReadAhead(Path("pages.img"));
    std::this_thread::sleep_for(milliseconds(5));
  }
}

}  // namespace
}  // namespace torpor::gvisor
