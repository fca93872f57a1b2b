// The memory groups of both versions, as files that the test writes.
#include "bench/memory_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/uuid.h"

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;

class MemoryWatchTest : public ::testing::Test {
 protected:
  MemoryWatchTest() : root_(::testing::TempDir() + "/memory-watch-" + RandomHex(6)) {}
  ~MemoryWatchTest() override { fs::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    const fs::path path = fs::path(root_) / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string root_;
};

TEST_F(MemoryWatchTest, ReadsVersion1) {
  Write("torpor/w/u1-_box/memory.stat", "cache 5000\nrss 10\nshmem 3000\n");
  Write("torpor/w/u1-_box/memory.failcnt", "7\n");
  Write("torpor/w/u1-_box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  const MemoryCharge charge = ReadMemoryCharge(FindMemoryGroup(root_, "u1"));
  EXPECT_TRUE(charge.exists);
  EXPECT_EQ(charge.limit_hits, 7);
  EXPECT_EQ(charge.oom_kills, 2);
  EXPECT_EQ(charge.file_cache, 2000);  // the guest's memory is a shared file
}

TEST_F(MemoryWatchTest, ReadsVersion2) {
  Write("torpor/u2-_box/memory.stat", "anon 1\nfile 9000\nshmem 4000\n");
  Write("torpor/u2-_box/memory.events", "low 0\nhigh 0\nmax 3\noom 0\noom_kill 1\n");
  const MemoryCharge charge = ReadMemoryCharge(FindMemoryGroup(root_, "u2"));
  EXPECT_EQ(charge.limit_hits, 3);
  EXPECT_EQ(charge.oom_kills, 1);
  EXPECT_EQ(charge.file_cache, 5000);
}

TEST_F(MemoryWatchTest, SiblingOfACaptureIsNotTheActor) {
  Write("torpor/u3-_box_ckpt/memory.stat", "cache 1\n");
  EXPECT_EQ(FindMemoryGroup(root_, "u3"), "");
  EXPECT_EQ(FindMemoryGroup(root_, ""), "");
  EXPECT_FALSE(ReadMemoryCharge("").exists);
}

TEST_F(MemoryWatchTest, ReportsWhatHibernationsCost) {
  FakeClock clock;
  Recorder recorder(&clock);
  MemoryWatch watch(root_);
  Write("torpor/u4-_box/memory.stat", "cache 0\nshmem 0\n");
  Write("torpor/u4-_box/memory.failcnt", "1\n");
  watch.BeforeHibernation("u4");
  Write("torpor/u4-_box/memory.failcnt", "4\n");
  Write("torpor/u4-_box/memory.stat", "cache 2097152\nshmem 0\n");
  watch.AfterHibernation("u4");
  watch.AddResumed("u4");
  watch.BeforeHibernation("unknown");
  watch.AfterHibernation("unknown");
  watch.Report(&recorder);
  std::map<std::string, Figure> figures;
  for (const Figure& figure : recorder.Finish().figures) figures[figure.name] = figure;
  EXPECT_EQ(figures["reclaim failures in captures"].value, 3);
  EXPECT_FALSE(figures["reclaim failures in captures"].met());
  EXPECT_EQ(figures["OOM kills"].value, 0);
  EXPECT_TRUE(figures["OOM kills"].met());
  EXPECT_EQ(figures["file cache charged to the actor after a hibernation"].value, 2);
  EXPECT_EQ(figures["file cache charged to the actor 5 s after a resume"].value, 2);
}

}  // namespace
}  // namespace torpor::bench
