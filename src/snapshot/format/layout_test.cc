#include "snapshot/format/layout.h"

#include "base/testing/matchers.h"
#include "snapshot/testing/sample.h"

namespace torpor::snapshot {
namespace {

constexpr char kOther[] = "21111111-2222-4333-8444-555555555555";

TEST(LayoutTest, RoundTrip) {
  const std::string uri =
      ActorSnapshotUri("file:///d/store/", "demo", kSampleActorUid, kSampleGenerationUuid);
  EXPECT_EQ(uri, fmt::format("file:///d/store/atespaces/demo/actors/{}/snapshots/{}",
                             kSampleActorUid, kSampleGenerationUuid));
  ASSERT_OK_AND_ASSIGN(SnapshotPlace place, ParseSnapshotUri(uri));
  EXPECT_EQ(place.location.ToString(), "file:///d/store");
  EXPECT_EQ(place.atespace, "demo");
  EXPECT_EQ(place.owner, Owner::kActor);
  EXPECT_EQ(place.owner_uid, kSampleActorUid);

  ASSERT_OK_AND_ASSIGN(place, ParseSnapshotUri(TagSnapshotUri("s3://bucket", "demo", kOther)));
  EXPECT_EQ(place.location.ToString(), "s3://bucket");
  EXPECT_EQ(place.owner, Owner::kTag);
  EXPECT_EQ(place.owner_uid, kOther);
}

TEST(LayoutTest, WideAndForeignAddressesAreNone) {
  const std::string actor = fmt::format("file:///s/atespaces/demo/actors/{}", kSampleActorUid);
  for (const std::string& uri :
       {std::string("file:///"), std::string("file:///s"), std::string("file:///s/atespaces"),
        std::string("file:///s/atespaces/demo"), actor, actor + "/snapshots",
        actor + "/snapshots/..", actor + "/snapshots/x", actor + "/snapshots/" + kOther + "/more",
        std::string("file:///s/atespaces/demo/tags"),
        std::string("file:///s/atespaces/demo/tags/x"),
        fmt::format("file:///s/atespaces/De.mo/tags/{}", kOther),
        // A tenant's location inside the tree of another.
        fmt::format("{}/snapshots/atespaces/evil/actors/{}/snapshots/{}", actor, kOther, kOther)}) {
    EXPECT_THAT(ParseSnapshotUri(uri), HasCode(Code::kInvalidArgument)) << uri;
  }
  EXPECT_OK(CheckStorageLocation("file:///s/tenant-a"));
  EXPECT_THAT(CheckStorageLocation("file:///s/atespaces/demo"), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(CheckStorageLocation("s3://u:p@b/x"), HasCode(Code::kInvalidArgument));
}

TEST(LayoutTest, WhoMayTouchWhat) {
  const torpor::v1::ActorIdentity me = SampleActor();
  struct Case {
    const char* atespace;
    Owner owner;
    const char* uid;
    bool write;
    bool read;
  };
  for (const Case& c : {
           Case{"demo", Owner::kActor, kSampleActorUid, true, true},
           Case{"demo", Owner::kActor, kOther, false, false},
           Case{"other", Owner::kActor, kSampleActorUid, false, false},
           Case{"demo", Owner::kTag, kOther, false, true},
           Case{"demo", Owner::kTag, kSampleActorUid, false, true},
           Case{"other", Owner::kTag, kOther, false, true},
           Case{kGoldenAtespace, Owner::kActor, kOther, false, true},
       }) {
    SnapshotPlace place{{}, c.atespace, c.owner, c.uid};
    EXPECT_EQ(CheckMayWrite(place, me).ok(), c.write) << c.atespace << c.uid;
    EXPECT_EQ(CheckMayRead(place, me).ok(), c.read) << c.atespace << c.uid;
  }
  EXPECT_THAT(CheckMayRead({{}, "demo", Owner::kActor, kOther}, me),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
}

}  // namespace
}  // namespace torpor::snapshot
