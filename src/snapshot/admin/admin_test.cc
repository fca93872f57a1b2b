#include "snapshot/admin/admin.h"

#include "objstore/file/file_store.h"
#include "snapshot/testing/fixture.h"

namespace torpor::snapshot {
namespace {

constexpr char kTagUid[] = "aaaaaaaa-2222-4333-8444-555555555555";

// A memory store behind memory://one, another behind memory://two.
class AdminTest : public SnapshotFixture {
 protected:
  AdminTest() {
    stores_.Add("memory", [this](const objstore::Uri& uri) -> StatusOr<objstore::Place> {
      return objstore::Place{uri.bucket == "one" ? one_ : two_, uri.path};
    });
  }

  std::string SaveOne() {
    Capture("a", RandomBytes(9 << 20, 1));
    Capture("dir/b", "bb");
    const std::string uri =
        ActorSnapshotUri("memory://one", "demo", kSampleActorUid, kSampleGenerationUuid);
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    SaveArgs args;
    args.source = &source_.fd();
    args.manifest = manifest_;
    args.store = one_.get();
    args.prefix = stores_.Resolve(uri)->key;
    args.resources = resources_.get();
    args.transfer = &transfer;
    auto saved = SaveSnapshot(std::move(args));
    EXPECT_OK(saved);
    sha256_ = saved->manifest_sha256();
    return uri;
  }

  size_t Objects(objstore::ObjectStore& store) {
    return objstore::ListAll(store, "", 100).value().size();
  }

  std::shared_ptr<objstore::MemoryStore> one_ = std::make_shared<objstore::MemoryStore>();
  std::shared_ptr<objstore::MemoryStore> two_ = std::make_shared<objstore::MemoryStore>();
  objstore::StoreRegistry stores_;
  std::string sha256_;
};

TEST_F(AdminTest, CopiesForATagInsideAStoreAndBetweenTwo) {
  const std::string from = SaveOne();
  for (const char* location : {"memory://one", "memory://two/deep"}) {
    const std::string to = TagSnapshotUri(location, "demo", kTagUid);
    ASSERT_OK_AND_ASSIGN(CopyResult copy, CopySnapshot(stores_, from, to, sha256_));
    EXPECT_EQ(copy.manifest_sha256, sha256_);
    ASSERT_OK_AND_ASSIGN(objstore::Place at, stores_.Resolve(to));
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    TempDir target;
    LoadArgs args = ArgsOfLoad(target, &transfer);
    args.store = at.store.get();
    args.prefix = at.key;
    args.manifest_sha256 = sha256_;
    ASSERT_OK(LoadSnapshot(args));
    EXPECT_TRUE(ReadFileFrom(target / "a") == ReadFileFrom(source_ / "a"));
    // Again: nothing to do, and nothing else there.
    ASSERT_OK(CopySnapshot(stores_, from, to));
  }
  EXPECT_EQ(Objects(*one_), 6u);
  EXPECT_EQ(Objects(*two_), 3u);
}

TEST_F(AdminTest, ADamagedSourceIsNeverCommitted) {
  const std::string from = SaveOne();
  const std::string key = stores_.Resolve(from)->key + "/a.tsz";
  std::string bytes = objstore::ReadAll(*one_, key, 1 << 30).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_OK(one_->Put(key, bytes));
  EXPECT_THAT(CopySnapshot(stores_, from, TagSnapshotUri("memory://two", "demo", kTagUid)),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  bytes.pop_back();
  ASSERT_OK(one_->Put(key, bytes));
  EXPECT_THAT(CopySnapshot(stores_, from, TagSnapshotUri("memory://one", "demo", kTagUid)),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  ASSERT_OK(one_->Delete(key));
  EXPECT_THAT(CopySnapshot(stores_, from, TagSnapshotUri("memory://one", "demo", kTagUid)),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(CopySnapshot(stores_, from, TagSnapshotUri("memory://one", "demo", kTagUid),
                           std::string(64, '0')),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  for (const char* location : {"memory://one", "memory://two"}) {
    const std::string tag = TagSnapshotUri(location, "demo", kTagUid);
    ASSERT_OK_AND_ASSIGN(objstore::Place at, stores_.Resolve(tag));
    EXPECT_THAT(at.store->Head(at.key + "/manifest.json"), HasCode(Code::kNotFound));
  }
}

TEST_F(AdminTest, CopyOfNothingAndOverSomethingElse) {
  const std::string from = SaveOne();
  const std::string tag = TagSnapshotUri("memory://one", "demo", kTagUid);
  EXPECT_THAT(CopySnapshot(stores_, tag, from), HasCode(Code::kNotFound));
  ASSERT_OK(one_->Put(stores_.Resolve(tag)->key + "/manifest.json", "{}"));
  EXPECT_THAT(CopySnapshot(stores_, from, tag),
              HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
}

TEST_F(AdminTest, DeletesAllOfOneSnapshotAndNothingElse) {
  const std::string uri = SaveOne();
  const std::string tag = TagSnapshotUri("memory://one", "demo", kTagUid);
  ASSERT_OK(CopySnapshot(stores_, uri, tag));
  const std::string key = stores_.Resolve(uri)->key;
  ASSERT_OK(one_->Put(key + "/leftover", "x"));
  ASSERT_OK(DeleteSnapshot(stores_, uri));
  EXPECT_EQ(Objects(*one_), 3u);
  ASSERT_OK(DeleteSnapshot(stores_, uri));
  // Half deleted: no manifest, some objects.
  ASSERT_OK(one_->Put(key + "/a.tsz", "x"));
  ASSERT_OK(DeleteSnapshot(stores_, uri));
  // A manifest that nobody can read does not keep the rest alive.
  ASSERT_OK(one_->Put(key + "/manifest.json", "damaged"));
  ASSERT_OK(one_->Put(key + "/a.tsz", "x"));
  ASSERT_OK(DeleteSnapshot(stores_, uri));
  EXPECT_EQ(Objects(*one_), 3u);
}

TEST_F(AdminTest, WideAddressesAskTheStoreNothing) {
  objstore::StoreRegistry stores;
  stores.Add("memory", [](const objstore::Uri&) -> StatusOr<objstore::Place> {
    ADD_FAILURE() << "the store was asked";
    return Error(Code::kInternal, "INTERNAL", "");
  });
  const std::string actor = std::string("memory://one/atespaces/demo/actors/") + kSampleActorUid;
  for (const std::string& uri :
       {std::string("memory://one"), std::string("memory://one/"),
        std::string("memory://one/atespaces"), std::string("memory://one/atespaces/demo"), actor,
        actor + "/snapshots", actor + "/snapshots/..", actor + "/../x/snapshots/y",
        std::string("/"), std::string("")}) {
    EXPECT_THAT(DeleteSnapshot(stores, uri), HasCode(Code::kInvalidArgument)) << uri;
    EXPECT_THAT(CopySnapshot(stores, uri, TagSnapshotUri("memory://one", "demo", kTagUid)),
                HasCode(Code::kInvalidArgument))
        << uri;
  }
}

}  // namespace
}  // namespace torpor::snapshot
