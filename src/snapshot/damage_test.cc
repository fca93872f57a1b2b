// Damaged, truncated, hostile or interrupted: a named error, and nothing left behind.

#include <sys/mount.h>

#include <thread>

#include "snapshot/format/sha256.h"
#include "snapshot/testing/fixture.h"
#include "snapshot/testing/hooked_store.h"
#include "snapshot/testing/tsz_sample.h"

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
  for (const char* key : {"snap/a.tsz", "snap/dir/b.tsz", "snap/manifest.json"}) {
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
  for (const char* key : {"snap/a.tsz", "snap/manifest.json"}) {
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
  ASSERT_OK(store_.Delete("snap/a.tsz"));
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

// Objects whose hashes are all right and whose content is not.
class HostileTest : public DamageTest {
 protected:
  void Plant(const TszObject& object, int64_t logical) {
    manifest_.files = {SampleFile("a", logical)};
    manifest_.files[0].object =
        ManifestObject{"a.tsz", static_cast<int64_t>(object.bytes.size()), object.index_sha256};
    ASSERT_OK(store_.Put("snap/a.tsz", object.bytes));
    auto text = SerializeManifest(manifest_);
    ASSERT_OK(text);
    ASSERT_OK(store_.Put("snap/manifest.json", *text));
  }
  // One block that the index says has `raw_bytes`.
  static TszObject OneBlock(const std::string& frame, int64_t raw_bytes) {
    TszIndexWriter index;
    index.AddBlock(static_cast<int64_t>(frame.size()), raw_bytes, TszHashOf(frame));
    index.AddExtent(0, raw_bytes);
    return CloseTsz(frame, *index.Finish(raw_bytes, kTszBlockBytesDefault));
  }
  static std::string FrameOf(const std::string& raw) {
    TszBlockEncoder encoder(2);
    std::string frame(static_cast<size_t>(TszBlockBound(static_cast<int64_t>(raw.size()))), '\0');
    frame.resize(static_cast<size_t>(*encoder.Encode(raw, frame.data())));
    return frame;
  }
  void ExpectLossThatSays(const char* says) {
    Status status = Load(target_).status();
    EXPECT_THAT(status, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
    EXPECT_THAT(status, MessageHas(says));
    EXPECT_THAT(status, MessageHas("file a: object offset"));
    EXPECT_EQ(target_.Entries(), 0u);
  }
};

TEST_F(HostileTest, BlocksThatHoldMoreOrLessThanTheySay) {
  Plant(OneBlock(FrameOf(std::string(8 << 20, 'x')), 1000), 1000);
  ExpectLossThatSays("not a zstd frame of the size");
  Plant(OneBlock(FrameOf("short"), 1000), 1000);
  ExpectLossThatSays("not a zstd frame of the size");
  Plant(OneBlock(FrameOf("one") + FrameOf("two"), 3), 3);
  ExpectLossThatSays("one whole zstd frame");
  Plant(OneBlock(FrameOf("fine"), 4), 4);
  ASSERT_OK(Load(target_));
  EXPECT_EQ(ReadFileFrom(target_ / "a"), "fine");
}

TEST_F(HostileTest, AnIndexOfAnotherFile) {
  Plant(OneBlock(FrameOf("fine"), 4), 5);
  ExpectLossThatSays("it is of a file of 4 bytes, not 5");
}

TEST_F(HostileTest, APlainStreamIsNoObject) {
  Plant({FrameOf(std::string(1000, 'x')), std::string(64, '0')}, 1000);
  ExpectLossThatSays("few");
  Plant({FrameOf(RandomBytes(1000, 1)), std::string(64, '0')}, 1000);
  ExpectLossThatSays("no footer frame");
  Plant({"", std::string(64, '0')}, 0);
  ExpectLossThatSays("too few");
}

TEST_F(HostileTest, ABaseThatIsNotGiven) {
  TszIndexWriter index;
  index.AddExtent(4096, 4096, 1, 0);
  Plant(CloseTsz("", *index.Finish(8192, kTszBlockBytesDefault)), 8192);
  ExpectLossThatSays("it needs base 1 and 0 bases are given");
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

// A store that fails in the middle of the second of two files.
TEST_F(DamageTest, A8_AFailedUploadAbortsAndLeavesNoObject) {
  Capture("a", "small");
  Capture("b", RandomBytes(40 << 20, 1));
  HookedStore store;
  store.on_part = [](const std::string&, int number) {
    return number == 2 ? Error(Code::kPermissionDenied, "STORE_DENIED", "403") : OkStatus();
  };
  ASSERT_OK(store.Put("snap-of-another/a.tsz", "x"));
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
  EXPECT_THAT(SaveTo(&store, &transfer), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_EQ(store.uploads_aborted, 1);
  EXPECT_EQ(store.uploads_open, 0);
  EXPECT_EQ(objstore::ListAll(store, "", 10).value().size(), 1u);
  EXPECT_EQ(resources_->memory()->reserved(), 0);
  // The next attempt is a new one.
  store.on_part = {};
  Transfer again(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
  EXPECT_OK(SaveTo(&store, &again));
  EXPECT_EQ(objstore::ListAll(store, "snap", 10).value().size(), 3u);
}

TEST_F(DamageTest, ACancelledDownloadLeavesNothing) {
  Capture("a", RandomBytes(30 << 20, 1));
  HookedStore store;
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
  ASSERT_OK(SaveTo(&store, &transfer));
  std::atomic<int> ranges{0};
  Transfer cancelled(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
  store.on_get = [&](const std::string& key, objstore::ByteRange) {
    if (key == "snap/a.tsz" && ++ranges == 3) cancelled.Cancel();
    return OkStatus();
  };
  LoadArgs args = ArgsOfLoad(target_, &cancelled);
  args.store = &store;
  EXPECT_THAT(LoadSnapshot(args), HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_EQ(target_.Entries(), 0u);
  EXPECT_EQ(resources_->memory()->reserved(), 0);
}

// The store sends fewer bytes than it should: nothing of it is used.
TEST_F(DamageTest, F4_AShortBodyIsNoFile) {
  Capture("a", RandomBytes(3 << 20, 1));
  ASSERT_OK(Save());
  class Cutting : public objstore::MemoryStore {
   public:
    StatusOr<objstore::ObjectInfo> Get(const std::string& key, objstore::ByteRange range,
                                       const objstore::Sink& sink) override {
      const bool data = key == "snap/a.tsz";
      return MemoryStore::Get(key, range, [&](std::string_view piece) -> Status {
        if (!data || piece.size() < 2) return sink(piece);
        return sink(piece.substr(0, piece.size() - static_cast<size_t>(cut)));
      });
    }
    int64_t cut = 0;
  } store;
  for (const char* key : {"snap/a.tsz", "snap/manifest.json"})
    ASSERT_OK(store.Put(key, Object(key)));
  for (int64_t cut : {1, 1000, 65536}) {
    store.cut = cut;
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
    LoadArgs args = ArgsOfLoad(target_, &transfer);
    args.store = &store;
    EXPECT_THAT(LoadSnapshot(args), HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
    EXPECT_EQ(target_.Entries(), 0u);
  }
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
