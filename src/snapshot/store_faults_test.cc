// Saves, loads, copies and deletions on a store that loses answers, lists what was, and sends
// wrong bytes.

#include "objstore/faulty/faulty_store.h"
#include "snapshot/admin/admin.h"
#include "snapshot/testing/fixture.h"

namespace torpor::snapshot {
namespace {

using objstore::Fault;
using objstore::FaultyRequest;
using objstore::FaultyStore;

constexpr char kTagUid[] = "aaaaaaaa-2222-4333-8444-555555555555";

class StoreFaultsTest : public SnapshotFixture {
 protected:
  StoreFaultsTest() {
    stores_.Add("memory", [this](const objstore::Uri& uri) -> StatusOr<objstore::Place> {
      return objstore::Place{faulty_, uri.path};
    });
    Capture("pages.img", RandomBytes(17 << 20, 1));  // in parts
    Capture("checkpoint.img", "state");
  }

  StatusOr<torpor::v1::UploadResult> SaveAt(const std::string& uri) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    SaveArgs args;
    args.source = &source_.fd();
    args.manifest = manifest_;
    args.store = faulty_.get();
    args.prefix = stores_.Resolve(uri)->key;
    args.resources = resources_.get();
    args.transfer = &transfer;
    return SaveSnapshot(std::move(args));
  }

  Status LoadAt(const std::string& uri, const TempDir& target) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    LoadArgs args = ArgsOfLoad(target, &transfer);
    args.store = faulty_.get();
    args.prefix = stores_.Resolve(uri)->key;
    return LoadSnapshot(args).status();
  }

  void ExpectWhole(const std::string& uri) {
    TempDir target;
    ASSERT_OK(LoadAt(uri, target));
    ExpectSame(target);
  }

  void ExpectSame(const TempDir& target) {
    for (const char* name : {"pages.img", "checkpoint.img"}) {
      EXPECT_TRUE(ReadFileFrom(target / name) == ReadFileFrom(source_ / name)) << name;
    }
  }

  static std::string Uri(int n) {
    return ActorSnapshotUri("memory://bucket", "demo", kSampleActorUid,
                            fmt::format("{:08x}-2222-4333-8444-555555555555", n));
  }
  size_t Objects() { return objstore::ListAll(store_, "", 100).value().size(); }

  std::atomic<int> count_{0};
  std::atomic<int> bad_from_{-1};
  std::atomic<int> bad_to_{-1};
  std::atomic<Fault> fault_{Fault::kNone};
  std::shared_ptr<FaultyStore> faulty_ =
      std::make_shared<FaultyStore>(&store_, [this](const FaultyRequest&) {
        const int n = count_++;
        return n >= bad_from_ && n < bad_to_ ? fault_.load() : Fault::kNone;
      });
  objstore::StoreRegistry stores_;
};

// Whatever request it is whose answer is lost: the same save again ends with one whole snapshot.
TEST_F(StoreFaultsTest, F3_TheSameSaveAgainMendsALostAnswer) {
  ASSERT_OK(SaveAt(Uri(0)));
  const int requests = count_;
  ASSERT_GE(requests, 6);
  for (Fault fault : {Fault::kLostAnswer, Fault::kRefused}) {
    fault_ = fault;
    for (int n = 0; n < requests; ++n) {
      const std::string uri = Uri(1);
      count_ = 0;
      bad_from_ = n;
      bad_to_ = n + 1;
      const Status first = SaveAt(uri).status();
      if (!first.ok()) {
        EXPECT_THAT(first, HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
        ASSERT_OK(SaveAt(uri)) << n;
      }
      bad_to_ = -1;
      ExpectWhole(uri);
      ASSERT_OK(DeleteSnapshot(stores_, uri));
      EXPECT_EQ(Objects(), 3u) << n;  // of the first
    }
  }
}

TEST_F(StoreFaultsTest, F4_F5_WrongBytesReachNoFile) {
  ASSERT_OK(SaveAt(Uri(0)));
  count_ = 0;
  ExpectWhole(Uri(0));
  const int requests = count_;
  for (Fault fault : {Fault::kCutBody, Fault::kFlippedBit}) {
    fault_ = fault;
    int noticed = 0;
    for (int n = 0; n < requests; ++n) {
      count_ = 0;
      bad_from_ = n;
      bad_to_ = n + 1;
      TempDir target;
      if (LoadAt(Uri(0), target).ok()) {  // what was wrong was not needed
        ExpectSame(target);
      } else {
        ++noticed;
        EXPECT_TRUE(std::filesystem::is_empty(target.path())) << n;
      }
    }
    EXPECT_GE(noticed, requests - 1);
  }
}

// A list that misses what was written lately and shows what is gone.
TEST_F(StoreFaultsTest, F12_AStaleListMissesNothingAndDeletesNothingElse) {
  ASSERT_OK(SaveAt(Uri(0)));
  ASSERT_OK(faulty_->FreezeLists());
  ASSERT_OK(SaveAt(Uri(1)));
  ExpectWhole(Uri(1));
  ASSERT_OK(CopySnapshot(stores_, Uri(1), TagSnapshotUri("memory://bucket", "demo", kTagUid)));
  EXPECT_EQ(Objects(), 9u);
  ASSERT_OK(DeleteSnapshot(stores_, Uri(1)));  // the list shows none of it
  EXPECT_EQ(Objects(), 6u);
  ASSERT_OK(DeleteSnapshot(stores_, Uri(0)));
  ASSERT_OK(DeleteSnapshot(stores_, Uri(0)));  // the list shows all of it
  EXPECT_EQ(Objects(), 3u);
  ExpectWhole(TagSnapshotUri("memory://bucket", "demo", kTagUid));
}

TEST_F(StoreFaultsTest, F17_WhatIsNoSnapshotIsNotDeleted) {
  ASSERT_OK(SaveAt(Uri(0)));
  const int before = faulty_->requests();
  const std::string actor = "memory://bucket/atespaces/demo/actors/" + std::string(kSampleActorUid);
  for (const std::string& uri :
       {std::string(), std::string("/"), std::string("memory://bucket"),
        std::string("memory://bucket/"), std::string("memory://bucket/atespaces"),
        std::string("memory://bucket/atespaces/demo"),
        std::string("memory://bucket/atespaces/demo/actors"), actor, actor + "/snapshots",
        actor + "/snapshots/", actor + "/snapshots/../snapshots", Uri(0) + "/..", Uri(0) + "/../..",
        Uri(0) + "/pages.img.tsz", std::string("memory://bucket/atespaces/demo/tags")}) {
    EXPECT_THAT(DeleteSnapshot(stores_, uri), HasCode(Code::kInvalidArgument)) << uri;
  }
  EXPECT_EQ(faulty_->requests(), before);
  EXPECT_EQ(Objects(), 3u);
}

}  // namespace
}  // namespace torpor::snapshot
