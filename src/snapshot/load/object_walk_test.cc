#include "snapshot/load/object_walk.h"

#include "base/testing/matchers.h"
#include "snapshot/testing/hooked_store.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/testing/tsz_sample.h"

namespace torpor::snapshot {
namespace {

class ObjectWalkTest : public testing::Test {
 protected:
  StatusOr<OpenObject> Open(const TszObject& object, const std::string& sha256 = {}) {
    EXPECT_OK(store_.Put("k", object.bytes));
    const auto bytes = static_cast<int64_t>(object.bytes.size());
    return OpenTsz(ReaderOf(&store_, "k", bytes, {}), bytes, sha256, kTszAnySize);
  }
  static StatusOr<std::string> FileOf(const OpenObject& object) {
    std::string out;
    RETURN_IF_ERROR(WriteFileOf(object, [&](std::string_view piece) {
      out.append(piece);
      return OkStatus();
    }));
    return out;
  }
  HookedStore store_;
};

TEST_F(ObjectWalkTest, FilesWithHolesAndManyBlocks) {
  std::string mixed = RandomBytes(900000, 1);
  for (size_t at = 0; at < mixed.size() - 40000; at += 9 << 12) mixed.replace(at, 8192, 8192, '\0');
  for (const std::string& file : {std::string(), std::string("x"), std::string(3 << 20, '\0'),
                                  mixed, mixed + std::string(2 << 20, '\0') + mixed}) {
    ASSERT_OK_AND_ASSIGN(OpenObject object, Open(MakeTsz(file)));
    ASSERT_OK_AND_ASSIGN(std::string back, FileOf(object));
    EXPECT_TRUE(back == file) << file.size();
  }
}

TEST_F(ObjectWalkTest, DamageAndWrongHashesAreFound) {
  TszObject object = MakeTsz(RandomBytes(600000, 1));
  EXPECT_THAT(Open(object, std::string(64, '0')).status(), MessageHas("sha256 of the index"));
  ASSERT_OK(Open(object, object.index_sha256).status());
  object.bytes[300000] = static_cast<char>(object.bytes[300000] ^ 1);
  ASSERT_OK_AND_ASSIGN(OpenObject open, Open(object, object.index_sha256));
  EXPECT_THAT(FileOf(open), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
}

TEST_F(ObjectWalkTest, WhatIsInABaseIsNotHere) {
  TszIndexWriter index;
  index.AddExtent(4096, 4096, 1, 0);
  ASSERT_OK_AND_ASSIGN(OpenObject object,
                       Open(CloseTsz("", *index.Finish(8192, kTszBlockBytesDefault))));
  EXPECT_EQ(object.index.extents.size(), 1u);
  EXPECT_THAT(FileOf(object), HasReason(Code::kFailedPrecondition, "RUNTIME_INCOMPATIBLE"));
}

}  // namespace
}  // namespace torpor::snapshot
