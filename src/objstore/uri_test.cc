#include "objstore/uri.h"

#include <unistd.h>

#include <filesystem>

#include "base/testing/matchers.h"
#include "objstore/registry.h"

namespace torpor::objstore {
namespace {

TEST(UriTest, Good) {
  const std::map<std::string, Uri> cases = {
      {"file:///var/lib/torpor/store", {"file", "", "var/lib/torpor/store"}},
      {"file:///a/", {"file", "", "a"}},
      {"file:///", {"file", "", ""}},
      {"s3://bucket", {"s3", "bucket", ""}},
      {"s3://bucket/", {"s3", "bucket", ""}},
      {"gs://my.bucket/p/q", {"gs", "my.bucket", "p/q"}},
      {"memory://bucket/a@b", {"memory", "bucket", "a@b"}}};
  for (const auto& [text, want] : cases) {
    ASSERT_OK_AND_ASSIGN(Uri uri, ParseUri(text));
    EXPECT_EQ(uri, want) << text;
    ASSERT_OK_AND_ASSIGN(Uri again, ParseUri(uri.ToString()));
    EXPECT_EQ(again, want) << text;
  }
}

TEST(UriTest, Bad) {
  for (const std::string& text : {std::string(),
                                  std::string("/a/b"),
                                  std::string("file:/a"),
                                  std::string("file://a/b"),
                                  std::string("file://"),
                                  std::string("FILE:///a"),
                                  std::string("file:///a?x=1"),
                                  std::string("file:///a#f"),
                                  std::string("file:///a/../b"),
                                  std::string("file:///a//b"),
                                  std::string("file:///./a"),
                                  std::string("file:///a/%2e%2e"),
                                  std::string("file:///.hidden"),
                                  std::string("s3://user:secret@bucket/a"),
                                  std::string("s3:///a"),
                                  std::string("s3://b/a"),
                                  std::string("s3://Bucket/a"),
                                  std::string("s3://bucket:80/a"),
                                  std::string("s3://bucket//a"),
                                  std::string("s3://bucket/a\nb"),
                                  std::string("s3://bucket/a\0b", 15),
                                  std::string("://a/b"),
                                  std::string("file:///a//"),
                                  "file:///" + std::string(2048, 'a')}) {
    auto uri = ParseUri(text);
    EXPECT_THAT(uri, HasReason(Code::kInvalidArgument, "FIELD_INVALID")) << text;
    EXPECT_EQ(std::string(uri.status().message()).find("secret"), std::string::npos);
  }
}

TEST(UriTest, AtOrBelow) {
  auto below = [](const char* inner, const char* outer) {
    return IsAtOrBelow(*ParseUri(inner), *ParseUri(outer));
  };
  EXPECT_TRUE(below("file:///a/b", "file:///a"));
  EXPECT_TRUE(below("file:///a", "file:///a/"));
  EXPECT_TRUE(below("file:///a", "file:///"));
  EXPECT_FALSE(below("file:///ab", "file:///a"));
  EXPECT_FALSE(below("file:///a", "file:///a/b"));
  EXPECT_FALSE(below("s3://bucket-2/a", "s3://bucket/a"));
  EXPECT_FALSE(below("gs://bucket/a", "s3://bucket/a"));
}

TEST(RegistryTest, ResolvesFilesBelowTheRootOnly) {
  std::string root = "/tmp/torpor-registry-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  ASSERT_OK_AND_ASSIGN(StoreRegistry stores, StandardStores({.file_root = root}));
  ASSERT_OK_AND_ASSIGN(Place place, stores.Resolve("file://" + root + "/a/b"));
  EXPECT_EQ(place.key, "a/b");
  ASSERT_OK(place.store->Put(place.key, "x"));
  EXPECT_TRUE(std::filesystem::exists(root + "/a/b"));
  ASSERT_OK_AND_ASSIGN(Place at_root, stores.Resolve("file://" + root));
  EXPECT_EQ(at_root.key, "");
  EXPECT_THAT(stores.Resolve("file:///etc/passwd"),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(stores.Resolve("file://" + root + "x/a"),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(stores.Resolve("s3://bucket/a"), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace torpor::objstore
