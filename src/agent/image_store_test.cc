#include "agent/image_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "agent/testing/test_node.h"
#include "model/reasons.h"
#include "os/fs/testing/power_cut.h"

namespace torpor::agent {
namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

class ImageStoreTest : public testing::Test {
 protected:
  ImageStoreTest() {
    auto dirs = NodeDirs::Open(temp_.path(), {0, 0});
    if (!dirs.ok()) abort();
    dirs_ = *std::move(dirs);
    mover_ = std::make_unique<FakeMover>(&dirs_->root());
  }
  std::unique_ptr<ImageStore> NewStore(Unpacker unpacker = FakeUnpacker()) {
    auto store = std::make_unique<ImageStore>(dirs_.get(), boot_id_, mover_.get(), &ids_,
                                              Clock::Real(), std::move(unpacker));
    if (!store->Recover().ok()) abort();
    return store;
  }
  static MonotonicTime Soon() { return Clock::Real()->Now() + std::chrono::seconds(20); }

  os::TempDir temp_;
  std::string boot_id_ = "boot-1";
  SequentialIds ids_;
  std::unique_ptr<NodeDirs> dirs_;
  std::unique_ptr<FakeMover> mover_;
};

TEST_F(ImageStoreTest, OnePullAndOneUnpackForAnyNumberOfUsers) {
  std::atomic<int> unpacks{0};
  auto store = NewStore([&](const std::string& layout, const std::string& tag,
                            const std::string& rootfs, MonotonicTime deadline) {
    ++unpacks;
    return FakeUnpacker()(layout, tag, rootfs, deadline);
  });
  std::vector<std::thread> users;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    users.emplace_back([&] { good += store->Ensure(kImage, {}, Soon()).ok() ? 1 : 0; });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(unpacks, 1);
  EXPECT_EQ(mover_->pulls(), 1);
  // Also after a restart of the agent.
  auto image = NewStore()->Ensure(kImage, {}, Soon());
  ASSERT_OK(image);
  EXPECT_EQ((*image)->config, mover_->image_config);
  EXPECT_EQ((*image)->rootfs_path,
            temp_.path() + "/images/rootfs/" + std::string(64, 'a') + "/rootfs");
  EXPECT_EQ(mover_->pulls(), 1);
}

TEST_F(ImageStoreTest, AnInterruptedUnpackIsDoneAgain) {
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  std::string tree = "images/rootfs/" + std::string(64, 'a');
  ASSERT_OK(dirs_->root().Unlink(tree + "/complete.json"));
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  EXPECT_EQ(mover_->pulls(), 2);
  EXPECT_TRUE(dirs_->root().Exists(tree + "/complete.json"));
}

TEST_F(ImageStoreTest, AFailureIsNotRememberedAndLeavesNoTree) {
  auto store = NewStore([n = 0](const std::string& layout, const std::string& tag,
                                const std::string& rootfs, MonotonicTime deadline) mutable {
    if (n++ == 0) return Fail(reasons::kDiskFull, "no space");
    return FakeUnpacker()(layout, tag, rootfs, deadline);
  });
  EXPECT_THAT(store->Ensure(kImage, {}, Soon()), HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_FALSE(dirs_->root().Exists("images/rootfs/" + std::string(64, 'a')));
  ASSERT_OK(store->Ensure(kImage, {}, Soon()));
}

TEST_F(ImageStoreTest, BlobsAreCheckedAgainstTheirDigests) {
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  ASSERT_OK(dirs_->root().Unlink("images/rootfs/" + std::string(64, 'a') + "/complete.json"));
  class Tampering : public MoverClient {
   public:
    Tampering(FakeMover* real, const os::DirFd* root) : real_(real), root_(root) {}
    StatusOr<torpor::v1::Operation> PullImage(const torpor::v1::PullImageRequest& request,
                                              Duration timeout) override {
      auto out = real_->PullImage(request, timeout);
      auto blobs = root_->List("images/blobs/blobs/sha256");
      for (const os::DirEntry& blob : *blobs) {
        EXPECT_OK(root_->WriteFile("images/blobs/blobs/sha256/" + blob.name, "{}", 0444));
      }
      return out;
    }
    StatusOr<torpor::v1::Operation> Upload(const torpor::v1::UploadRequest& r,
                                           Duration t) override {
      return real_->Upload(r, t);
    }
    StatusOr<torpor::v1::Operation> Fetch(const torpor::v1::FetchRequest& r, Duration t) override {
      return real_->Fetch(r, t);
    }
    StatusOr<torpor::v1::StatSnapshotResponse> StatSnapshot(
        const torpor::v1::StatSnapshotRequest& r, Duration t) override {
      return real_->StatSnapshot(r, t);
    }
    StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& r,
                                                 Duration t) override {
      return real_->GetOperation(r, t);
    }
    StatusOr<torpor::v1::Operation> CancelOperation(const torpor::v1::CancelOperationRequest& r,
                                                    Duration t) override {
      return real_->CancelOperation(r, t);
    }

   private:
    FakeMover* const real_;
    const os::DirFd* const root_;
  };
  Tampering tampering(mover_.get(), &dirs_->root());
  ImageStore store(dirs_.get(), boot_id_, &tampering, &ids_, Clock::Real(), FakeUnpacker());
  EXPECT_THAT(store.Ensure(kImage, {}, Soon()),
              HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
}

// The mover finds a blob of the right size complete, whatever a power cut made of its bytes.
TEST_F(ImageStoreTest, K5_DamagedBlobsAreFetchedOnceMore) {
  const std::string tree = "images/rootfs/" + std::string(64, 'a');
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  ASSERT_OK(dirs_->root().Unlink(tree + "/complete.json"));
  int unpacks = 0;
  auto store = NewStore([&](const std::string& layout, const std::string& tag,
                            const std::string& rootfs, MonotonicTime deadline) {
    if (unpacks++ > 0) return FakeUnpacker()(layout, tag, rootfs, deadline);
    auto blobs = dirs_->root().List("images/blobs/blobs/sha256");
    for (const os::DirEntry& blob : *blobs) {
      EXPECT_OK(dirs_->root().WriteFile("images/blobs/blobs/sha256/" + blob.name, "torn", 0444));
    }
    return Fail(reasons::kInvalidContainerConfig, "a layer does not have its digest");
  });
  ASSERT_OK(store->Ensure(kImage, {}, Soon()));
  EXPECT_EQ(unpacks, 2);
  EXPECT_EQ(mover_->pulls(), 3);
}

TEST_F(ImageStoreTest, K4_AfterARebootOnlyFlushedTreesAreUsed) {
  {
    auto store = NewStore();
    ASSERT_OK(store->Ensure(kImage, {}, Soon()));
    EXPECT_TRUE(store->HasUnflushed());
  }
  boot_id_ = "boot-2";
  {
    auto store = NewStore();  // drops it
    ASSERT_OK(store->Ensure(kImage, {}, Soon()));
    EXPECT_EQ(mover_->pulls(), 2);
    ASSERT_OK(store->Flush());
    EXPECT_FALSE(store->HasUnflushed());
  }
  boot_id_ = "boot-3";
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  EXPECT_EQ(mover_->pulls(), 2);
}

TEST_F(ImageStoreTest, A10_AFailedFlushIsNotTriedAgainForTheSameTrees) {
  auto store = NewStore();
  ASSERT_OK(store->Ensure(kImage, {}, Soon()));
  {
    os::PowerCut cut(temp_.path());
    cut.FailFlush(1);
    EXPECT_FALSE(store->Flush().ok());
    EXPECT_FALSE(store->HasUnflushed());
    ASSERT_OK(store->Flush());
    EXPECT_EQ(cut.flushes(), 1);
  }
  boot_id_ = "boot-2";
  ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
  EXPECT_EQ(mover_->pulls(), 2) << "it was never marked as flushed";
}

TEST_F(ImageStoreTest, EvictionTakesBlobsFirstAndNeverWhatIsInUse) {
  const std::string tree = "images/rootfs/" + std::string(64, 'a');
  auto store = NewStore();
  auto image = store->Ensure(kImage, {}, Soon());
  ASSERT_OK(image);
  const CacheBudget nothing{0, Duration(0)};
  ASSERT_OK(store->Evict({}, nothing));
  EXPECT_TRUE(dirs_->root().List("images/blobs/blobs/sha256")->empty());
  EXPECT_TRUE(dirs_->root().Exists(tree)) << "somebody holds it";
  image = Status(Code::kUnknown, "let go");
  ASSERT_OK(store->Evict({kDigest}, nothing));
  EXPECT_TRUE(dirs_->root().Exists(tree)) << "it is pinned";
  EXPECT_GT(store->bytes(), 0);
  ASSERT_OK(store->Evict({}, {0, std::chrono::hours(1)}));
  EXPECT_TRUE(dirs_->root().Exists(tree)) << "it is young";
  ASSERT_OK(store->Evict({}, {int64_t{1} << 30, Duration(0)}));
  EXPECT_TRUE(dirs_->root().Exists(tree)) << "K1: there is room in the budget";
  ASSERT_OK(store->Evict({}, nothing));
  EXPECT_FALSE(dirs_->root().Exists(tree));
  EXPECT_EQ(store->bytes(), 0);
  EXPECT_FALSE(store->HasUnflushed());
  ASSERT_OK(store->Ensure(kImage, {}, Soon()));
  EXPECT_EQ(mover_->pulls(), 2);
}

TEST_F(ImageStoreTest, AMarkerThatIsNotOursIsDebris) {
  const std::string tree = "images/rootfs/" + std::string(64, 'a');
  int pulls = 0;
  for (
      const char* marker :
      {"", "[]", "{}", R"({"format": "2"})",
       R"({"format": 2, "digest": "sha256:x", "boot_id": "boot-1", "synced": true, "bytes": 1})"}) {
    ASSERT_OK(NewStore()->Ensure(kImage, {}, Soon()));
    EXPECT_EQ(mover_->pulls(), ++pulls) << marker;
    ASSERT_OK(dirs_->root().WriteFile(tree + "/complete.json", marker, 0444));
  }
}

TEST(ImageFormatTest, References) {
  EXPECT_EQ(*DigestOfReference(kImage), kDigest);
  for (const std::string& bad :
       {std::string(), std::string("app"), std::string("app:latest"), std::string("app@sha256:ab"),
        "app@sha256:" + std::string(64, 'G'), "app@sha256:" + std::string(63, 'a') + "/",
        "app@md5:" + std::string(64, 'a')}) {
    EXPECT_FALSE(DigestOfReference(bad).ok()) << bad;
  }
}

TEST(ImageFormatTest, HostileLayouts) {
  for (const char* bad :
       {"", "[]", "{}", R"({"manifests": {}})", R"({"manifests": [1, {}, {"digest": 5}]})",
        R"({"manifests": [{"digest": "../../etc/passwd",
            "annotations": {"org.opencontainers.image.ref.name": "t"}}]})"}) {
    EXPECT_FALSE(FindManifest(bad, "t").ok()) << bad;
  }
  for (const char* bad : {"", "{}", R"({"config": []})", R"({"config": {"digest": "../x"}})"}) {
    EXPECT_FALSE(FindConfig(bad).ok()) << bad;
  }
}

// With the real umoci.
TEST(UmociTest, UnpacksALayout) {
  if (access("/usr/bin/umoci", X_OK) != 0) GTEST_SKIP() << "needs umoci";
  os::TempDir temp;
  std::string make = "cd " + temp.path() +
                     " && echo hello > f && umoci init --layout l >/dev/null"
                     " && umoci new --image l:t && umoci insert --image l:t f /etc/f >/dev/null";
  ASSERT_EQ(system(make.c_str()), 0);
  auto deadline = Clock::Real()->Now() + std::chrono::seconds(60);
  for (bool confined : {true, false}) {
    const int version = confined ? os::LandlockVersion() : 0;
    const std::string work = confined ? "work-1" : "work-2";
    ASSERT_OK(temp.dir().MkdirExclusive(work, 0755));
    Unpacker unpack = UmociUnpacker(version);
    ASSERT_OK(unpack(temp.path() + "/l", "t", temp.path() + "/" + work + "/rootfs", deadline));
    EXPECT_EQ(*temp.dir().ReadFile(work + "/rootfs/etc/f", 100), "hello\n");
    EXPECT_FALSE(
        unpack(temp.path() + "/l", "none", temp.path() + "/" + work + "/r2", deadline).ok());
  }
}

// A program in umoci's place that a crafted image has taken over.
class HostileUnpackerTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* part : {"bin", "layout", "work", "else"}) {
      ASSERT_OK(temp_.dir().MkdirExclusive(part, 0755));
    }
    ASSERT_OK(temp_.dir().WriteFile("else/secret", "secret", 0644));
    ASSERT_OK(temp_.dir().WriteFile("layout/blob", "blob", 0644));
    path_ = getenv("PATH");
    setenv("PATH", (temp_.path() + "/bin:" + path_).c_str(), 1);
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }
  Status Unpack(const std::string& script, int version) {
    RETURN_IF_ERROR(temp_.dir().WriteFile(
        "bin/umoci",
        "#!/bin/sh\nset -e\ncd " + temp_.path() + "\nmkdir -p \"$5\"\n" + script + "\n", 0755));
    return UmociUnpacker(version)(temp_.path() + "/layout", "t", temp_.path() + "/work/rootfs",
                                  Clock::Real()->Now() + std::chrono::seconds(20));
  }

  os::TempDir temp_;
  std::string path_;
};

TEST_F(HostileUnpackerTest, ReachesItsSourceAndItsTargetOnly) {
  const int version = os::LandlockVersion();
  if (version < os::kLandlockMin) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_OK(Unpack("cp layout/blob work/rootfs/blob", version));
  EXPECT_EQ(*temp_.dir().ReadFile("work/rootfs/blob", 100), "blob");
  for (const std::string& attempt :
       {std::string("echo x > else/new"), std::string("echo x > work/../else/new"),
        std::string("echo x > layout/blob"), std::string("cp else/secret work/rootfs/s"),
        std::string("ln else/secret work/rootfs/s"), std::string("rm else/secret"),
        std::string("mv work/rootfs else/new")}) {
    EXPECT_FALSE(Unpack(attempt, version).ok()) << attempt;
  }
  EXPECT_FALSE(temp_.dir().Stat("else/new").ok());
  EXPECT_FALSE(temp_.dir().Stat("work/rootfs/s").ok());
  EXPECT_EQ(*temp_.dir().ReadFile("else/secret", 100), "secret");
  EXPECT_EQ(*temp_.dir().ReadFile("layout/blob", 100), "blob");
}

TEST_F(HostileUnpackerTest, WithoutLandlockItIsNotConfined) {
  EXPECT_OK(Unpack("echo x > else/new", 0));
  EXPECT_TRUE(temp_.dir().Stat("else/new").ok()) << "an old kernel runs images all the same";
}

}  // namespace
}  // namespace torpor::agent
