#include "objstore/xml/xml_store.h"

#include "base/testing/matchers.h"
#include "objstore/contract/store_contract.h"
#include "objstore/testing/bucket_under_test.h"
#include "objstore/testing/xml_fake.h"

namespace torpor::objstore {
namespace {

// The fake, the client that talks to it, and the store as the contract wants to own it.
struct Setup {
  explicit Setup(const Dialect& dialect)
      : fake({.dialect = &dialect}), bucket(BucketAt(fake.url(), dialect), TestKeys()) {}
  XmlFake fake;
  BucketUnderTest bucket;
};

StoreUnderTest Make(const Dialect& dialect) {
  auto setup = std::make_shared<Setup>(dialect);
  auto store = std::move(setup->bucket.store);
  return {setup, std::move(store)};
}
StoreUnderTest MakeGcs() { return Make(kGcsDialect); }
StoreUnderTest MakeS3() { return Make(kS3Dialect); }

INSTANTIATE_TEST_SUITE_P(GcsFake, StoreContract, testing::Values(&MakeGcs));
INSTANTIATE_TEST_SUITE_P(S3Fake, StoreContract, testing::Values(&MakeS3));

std::string Bytes(size_t count) {
  std::string out(count, '\0');
  uint64_t seed = count;
  for (char& c : out) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(seed >> 56);
  }
  return out;
}

TEST(XmlStoreTest, ABearerTokenIsEnoughForCloudStorage) {
  XmlFake fake({});
  fake.SetBearer("ya29.token");
  Credentials credentials;
  credentials.bearer = "ya29.token";
  BucketUnderTest bucket(BucketAt(fake.url(), kGcsDialect), credentials);
  ASSERT_OK(bucket.store->Put("a", "x", {.if_absent = true}));
  ASSERT_OK(bucket.store->Copy("a", "b"));
  EXPECT_EQ(*ReadAll(*bucket.store, "b", 10), "x");
}

// What one request does not copy goes in parts, which only S3 can.
TEST(XmlStoreTest, LargeObjectsAreCopiedInParts) {
  XmlFake fake({.dialect = &kS3Dialect});
  BucketUnderTest bucket(BucketAt(fake.url(), kS3Dialect), TestKeys(), 6 << 20);
  const std::string data = Bytes((13 << 20) + 5);
  fake.SetObject("from", data);
  int parts = 0;
  fake.SetBefore([&](const TestRequest& request) -> std::optional<TestResponse> {
    if (!request.Header("x-amz-copy-source-range").empty()) ++parts;
    return std::nullopt;
  });
  ASSERT_OK(bucket.store->Copy("from", "to"));
  EXPECT_EQ(parts, 3);
  EXPECT_TRUE(fake.Object("to") == data);
  EXPECT_EQ(fake.uploads(), 0u);
}

// A page of somebody else's objects does not end the list.
TEST(XmlStoreTest, ForeignObjectsAreNotSeen) {
  XmlFake fake({});
  BucketUnderTest bucket(BucketAt(fake.url(), kGcsDialect), TestKeys());
  for (int i = 0; i < kListMax + 10; ++i) fake.SetObject(fmt::format("p/ {:05}", i), "x");
  fake.SetObject("p/ours", "x");
  fake.SetObject("p/z&<z", "x");
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(*bucket.store, "p", 10));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].key, "p/ours");
}

TEST(XmlStoreTest, A8_UploadsThatWereLeftAreAborted) {
  XmlFake fake({});
  BucketUnderTest bucket(BucketAt(fake.url(), kGcsDialect), TestKeys());
  ASSERT_OK_AND_ASSIGN(auto upload, bucket.store->Begin("p/x", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  ASSERT_OK_AND_ASSIGN(auto foreign, bucket.store->Begin("px/x", kPartBytesMin));
  const WallTime year_2019 = std::chrono::system_clock::from_time_t(1'550'000'000);
  ASSERT_OK(bucket.store->AbortUploads("p", year_2019));
  EXPECT_EQ(fake.uploads(), 2u);  // they began later
  ASSERT_OK(bucket.store->AbortUploads("p", std::chrono::system_clock::now()));
  EXPECT_EQ(fake.uploads(), 1u);  // the one beside our prefix
}

TEST(XmlStoreTest, ConnectionsAreUsedAgain) {
  XmlFake fake({});
  BucketUnderTest bucket(BucketAt(fake.url(), kGcsDialect), TestKeys());
  for (int i = 0; i < 20; ++i) ASSERT_OK(bucket.store->Put("k", "x"));
  EXPECT_EQ(fake.connections(), 1);
}

// A proxy that answers something else must not be taken for the store.
TEST(XmlStoreTest, AnswersThatAreNoneAreErrors) {
  HttpServer server([](const TestRequest&) -> TestResponse {
    return {200, {{"content-type", "text/html"}}, "<html>Please log in</html>"};
  });
  BucketUnderTest bucket(BucketAt(server.url(), kS3Dialect), TestKeys());
  EXPECT_THAT(bucket.store->List("", "").status(), HasCode(Code::kUnavailable));
  EXPECT_THAT(bucket.store->Put("k", "x"), HasCode(Code::kUnavailable));
  EXPECT_THAT(bucket.store->Begin("k", kPartBytesMin).status(), HasCode(Code::kUnavailable));
  auto ignore = [](std::string_view) { return OkStatus(); };
  EXPECT_THAT(bucket.store->Get("k", {5, 10}, ignore), HasCode(Code::kUnavailable));
}

}  // namespace
}  // namespace torpor::objstore
