// Damaged, truncated, hostile or interrupted: a named error, and nothing left behind.

#include <sys/mount.h>
#include <zstd.h>

#include <thread>

#include "snapshot/format/sha256.h"
#include "snapshot/testing/fixture.h"

namespace torpor::snapshot {
namespace {

namespace fs = std::filesystem;

class DamageTest : public SnapshotFixture {
 protected:
  // Whatever the damage: an error by name, and the target as empty as before.
  void ExpectLoss(const std::string& sha256, const std::string& what) {
    auto loaded = Load(target_, sha256);
    EXPECT_EQ(loaded.status().code(), Code::kDataLoss) << what << loaded.status().ToString();
    EXPECT_EQ(target_.Entries(), 0u) << what;
  }

  TempDir target_{"/dev/shm"};
};

TEST_F(DamageTest, EveryFlippedBitIsFound) {
  Capture("a", RandomBytes(600, 1) + std::string(70000, '\0') + "tail");
  Capture("dir/b", "");
  ASSERT_OK_AND_ASSIGN(auto saved, Save());
  for (const char* key : {"snap/a.zst", "snap/dir/b.zst", "snap/manifest.json"}) {
    const std::string good = Object(key);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      ASSERT_OK(store_.Put(key, bad));
      ExpectLoss(saved.manifest_sha256(), fmt::format("{} byte {}", key, i));
    }
    ASSERT_OK(store_.Put(key, good));
  }
  EXPECT_OK(Load(target_, saved.manifest_sha256()));
}

TEST_F(DamageTest, EveryTruncationAndExtensionIsFound) {
  Capture("a", RandomBytes(500, 1));
  ASSERT_OK_AND_ASSIGN(auto saved, Save());
  for (const char* key : {"snap/a.zst", "snap/manifest.json"}) {
    const std::string good = Object(key);
    for (size_t size = 0; size < good.size(); ++size) {
      ASSERT_OK(store_.Put(key, good.substr(0, size)));
      ExpectLoss(saved.manifest_sha256(), fmt::format("{} cut at {}", key, size));
    }
    ASSERT_OK(store_.Put(key, good + "x"));
    ExpectLoss(saved.manifest_sha256(), fmt::format("{} extended", key));
    ASSERT_OK(store_.Put(key, good));
  }
}

TEST_F(DamageTest, MissingObjectsAreLoss) {
  Capture("a", "x");
  ASSERT_OK(Save());
  ASSERT_OK(store_.Delete("snap/a.zst"));
  EXPECT_THAT(Load(target_), HasReason(Code::kDataLoss, "FAILED_GET_EXTERNAL_OBJECT"));
  ASSERT_OK(store_.Delete("snap/manifest.json"));
  EXPECT_THAT(Load(target_), HasReason(Code::kDataLoss, "FAILED_GET_EXTERNAL_OBJECT"));
  EXPECT_EQ(target_.Entries(), 0u);
}

TEST_F(DamageTest, AnOldManifestPutBackIsFound) {
  Capture("a", "x");
  ASSERT_OK_AND_ASSIGN(auto old, Save());
  std::string old_text = Object("snap/manifest.json");
  ASSERT_OK(store_.Delete("snap/manifest.json"));
  manifest_.meta.set_generation(8);
  ASSERT_OK_AND_ASSIGN(auto fresh, Save());
  ASSERT_NE(old.manifest_sha256(), fresh.manifest_sha256());
  ASSERT_OK(store_.Put("snap/manifest.json", old_text));
  EXPECT_THAT(Load(target_, fresh.manifest_sha256()),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
}

// Streams that are valid zstd but lie about the file, with a manifest that names their true hash.
class BombTest : public DamageTest {
 protected:
  void Plant(const std::string& object, int64_t logical) {
    manifest_.files = {SampleFile("a", logical)};
    manifest_.files[0].object =
        ManifestObject{"a.zst", static_cast<int64_t>(object.size()), Sha256Hex(object)};
    ASSERT_OK(store_.Put("snap/a.zst", object));
    auto text = SerializeManifest(manifest_);
    ASSERT_OK(text);
    ASSERT_OK(store_.Put("snap/manifest.json", *text));
  }
  static std::string Compress(const std::string& bytes, int window_log = 0) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    if (window_log > 0) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    std::string out(ZSTD_compressBound(bytes.size()), '\0');
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    ZSTD_outBuffer buffer{out.data(), out.size(), 0};
    // As a stream of unknown length, so that the window is as large as asked.
    size_t left = ZSTD_compressStream2(context, &buffer, &in, ZSTD_e_continue);
    while ((left = ZSTD_compressStream2(context, &buffer, &in, ZSTD_e_end)) != 0) {
      CHECK(!ZSTD_isError(left));
    }
    ZSTD_freeCCtx(context);
    out.resize(buffer.pos);
    return out;
  }
};

TEST_F(BombTest, MoreBytesThanDeclared) {
  Plant(Compress(std::string(100 << 20, 'x')), 1000);
  ExpectLoss("", "bomb");
  Plant(Compress(std::string(1001, '\0')), 1000);
  ExpectLoss("", "one zero too many");
}

TEST_F(BombTest, FewerBytesThanDeclared) {
  Plant(Compress("short"), 1000);
  ExpectLoss("", "short");
  Plant("", 0);
  ExpectLoss("", "no frame");
}

TEST_F(BombTest, AWindowAboveTheLimit) {
  const std::string bytes(3000, 'x');
  Plant(Compress(bytes, 23), 3000);
  ASSERT_OK(Load(target_));
  fs::remove(target_ / "a");
  Plant(Compress(bytes, 27), 3000);
  ExpectLoss("", "window");
}

TEST_F(BombTest, SeveralFramesAreOneStream) {
  Plant(Compress("one") + Compress("two"), 6);
  ASSERT_OK(Load(target_));
  EXPECT_EQ(ReadFileFrom(target_ / "a"), "onetwo");
}

TEST_F(DamageTest, WhateverWaitsAtTheTargetStays) {
  Capture("a", "secret");
  Capture("dir/b", "secret");
  ASSERT_OK(Save());
  TempDir outside;
  WriteFileTo(outside / "file", "old");
  auto expect_refused = [&](const std::string& what) {
    EXPECT_FALSE(Load(target_).ok()) << what;
    EXPECT_EQ(target_.Entries(), 1u) << what;
    EXPECT_EQ(ReadFileFrom(outside / "file"), "old") << what;
    EXPECT_EQ(outside.Entries(), 1u) << what;
    fs::remove_all(target_ / "a");
    fs::remove_all(target_ / "dir");
  };
  fs::create_symlink(outside / "file", target_ / "a");
  expect_refused("link");
  fs::create_symlink(outside / "none", target_ / "a");
  expect_refused("dangling link");
  fs::create_symlink(outside.path(), target_ / "dir");
  expect_refused("link to a directory");
  ASSERT_EQ(mkfifo((target_ / "a").c_str(), 0600), 0);
  expect_refused("fifo");
  fs::create_directory(target_ / "a");
  expect_refused("directory");
  WriteFileTo(target_ / "a", "mine");
  expect_refused("file");
  ASSERT_OK(Load(target_));
}

TEST_F(DamageTest, AFullDiskLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to mount a small tmpfs";
  // Compresses to nothing but is not zero, so the store holds it and the target cannot.
  Capture("a", std::string(3 << 20, 'x'));
  Capture("b", std::string(3 << 20, 'y'));
  ASSERT_OK(Save());
  TempDir mount_point;
  ASSERT_EQ(mount("torpor-test", mount_point.path().c_str(), "tmpfs", 0, "size=4m"), 0);
  {
    auto small = os::DirFd::OpenPath(mount_point.path());
    ASSERT_OK(small);
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    LoadArgs args = ArgsOfLoad(mount_point, &transfer);
    args.target = &*small;
    EXPECT_THAT(LoadSnapshot(args), HasReason(Code::kResourceExhausted, "DISK_FULL"));
    EXPECT_EQ(mount_point.Entries(), 0u);
    // The declared need was too small to be refused at once: the write itself fails.
    std::string text = Object("snap/manifest.json");
    for (size_t at; (at = text.find("\"populated_bytes\": 3145728")) != std::string::npos;) {
      text.replace(at, 26, "\"populated_bytes\": 1");
    }
    ASSERT_OK(store_.Put("snap/manifest.json", text));
    Transfer again(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    args.transfer = &again;
    EXPECT_THAT(LoadSnapshot(args), HasReason(Code::kResourceExhausted, "DISK_FULL"));
    EXPECT_EQ(mount_point.Entries(), 0u);
  }
  EXPECT_EQ(umount2(mount_point.path().c_str(), MNT_DETACH), 0);
}

TEST_F(DamageTest, CancelledAndLateTransfersLeaveNothing) {
  Capture("a", RandomBytes(1 << 20, 1));
  FakeClock clock;
  Transfer cancelled(&clock, clock.Now() + std::chrono::seconds(1));
  cancelled.Cancel();
  EXPECT_THAT(Save(&cancelled), HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_THAT(objstore::ListAll(store_, "", 10).value().size(), 0u);
  ASSERT_OK(Save());
  Transfer late(&clock, clock.Now());
  EXPECT_THAT(LoadSnapshot(ArgsOfLoad(target_, &late)),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_EQ(target_.Entries(), 0u);
}

TEST_F(DamageTest, ASourceThatDiffersFromItsManifest) {
  Capture("good", "x");
  Capture("a", "12345");
  WriteFileTo(source_ / "a", "1234");
  EXPECT_THAT(Save(), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  fs::remove(source_ / "a");
  EXPECT_THAT(Save(), HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
  fs::create_symlink("/etc/passwd", source_ / "a");
  EXPECT_THAT(Save(), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  fs::remove(source_ / "a");
  ASSERT_EQ(mkfifo((source_ / "a").c_str(), 0600), 0);
  EXPECT_THAT(Save(), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  // The good file was uploaded each time and is gone again.
  EXPECT_EQ(objstore::ListAll(store_, "", 10).value().size(), 0u);
}

TEST_F(DamageTest, HostileNamesAreRefusedBeforeAnythingIsWritten) {
  Capture("a", "x");
  ASSERT_OK(Save());
  const std::string good = Object("snap/manifest.json");
  for (const char* name : {"../a", "/a", "", ".", "..", "a//b", "a/", "a/../b", "x/.hidden",
                           "a\\u0000", "a/b/c", "a\\n"}) {
    std::string text = good;
    text.replace(text.find("\"name\": \"a\""), 11, fmt::format("\"name\": \"{}\"", name));
    ASSERT_OK(store_.Put("snap/manifest.json", text));
    ExpectLoss("", name);
  }
}

}  // namespace
}  // namespace torpor::snapshot
