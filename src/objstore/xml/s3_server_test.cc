// The contract and what is special, against a real S3 server (tests/objstore/with_s3).

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "objstore/contract/store_contract.h"
#include "objstore/probe.h"
#include "objstore/testing/bucket_under_test.h"

namespace torpor::objstore {
namespace {

std::string Endpoint() { return ReadEnvironment("TORPOR_S3_ENDPOINT"); }

// A bucket of its own for each test: a store is empty at first.
struct Bucket {
  explicit Bucket(Credentials credentials, int64_t copy_bytes_max = 0) {
    BucketOptions options = BucketAt(Endpoint(), kS3Dialect);
    options.bucket = "b" + RandomHex(8);
    options.region = "us-east-1";
    name = options.bucket;
    HttpClient http;
    CredentialCache cache(std::make_unique<TestSource>(credentials), Clock::Real());
    Call call;
    call.operation = "CreateBucket";
    call.method = "PUT";
    EXPECT_OK(XmlClient(options, &http, &cache, Clock::Real()).Do(call).status);
    under_test = std::make_unique<BucketUnderTest>(options, credentials, copy_bytes_max);
  }
  std::string name;
  std::unique_ptr<BucketUnderTest> under_test;
};

Credentials Keys() {
  Credentials credentials;
  credentials.access_key = ReadEnvironment("AWS_ACCESS_KEY_ID");
  credentials.secret_key = ReadEnvironment("AWS_SECRET_ACCESS_KEY");
  return credentials;
}

StoreUnderTest Make() {
  auto bucket = std::make_shared<Bucket>(Keys());
  auto store = std::move(bucket->under_test->store);
  return {bucket, std::move(store)};
}

INSTANTIATE_TEST_SUITE_P(S3Server, StoreContract, testing::Values(&Make));

StoreOptions Options(const std::string& address) {
  StoreOptions options;
  options.addresses = {address};
  options.remote.s3_endpoint = Endpoint();
  return options;
}

TEST(S3ServerTest, ProbeSaysWhatIsWrong) {
  ASSERT_OK_AND_ASSIGN(StoreRegistry stores, StandardStores(Options("s3://torpor-test/p")));
  EXPECT_OK(ProbeStorage(stores, "s3://torpor-test/p"));
  ASSERT_OK_AND_ASSIGN(stores, StandardStores(Options("s3://no-such-bucket")));
  EXPECT_THAT(ProbeStorage(stores, "s3://no-such-bucket"), MessageHas("NoSuchBucket"));
}

TEST(S3ServerTest, WrongKeysAreNamed) {
  Bucket bucket(Keys());
  Credentials wrong = Keys();
  wrong.secret_key = "wrong";
  BucketOptions options = BucketAt(Endpoint(), kS3Dialect);
  options.bucket = bucket.name;
  BucketUnderTest with_wrong_secret(options, wrong);
  EXPECT_THAT(with_wrong_secret.store->List("", "").status(), MessageHas("SignatureDoesNotMatch"));
  wrong.access_key = "UNKNOWN";
  BucketUnderTest with_unknown_key(options, wrong);
  EXPECT_THAT(with_unknown_key.store->List("", "").status(), MessageHas("InvalidAccessKeyId"));
}

TEST(S3ServerTest, LargeObjectsAreCopiedInParts) {
  Bucket bucket(Keys(), 6 << 20);
  ObjectStore& store = *bucket.under_test->store;
  std::string data((13 << 20) + 5, 'x');
  for (size_t i = 0; i < data.size(); i += 997) data[i] = static_cast<char>(i);
  ASSERT_OK(store.Put("from", data));
  ASSERT_OK(store.Copy("from", "to"));
  ASSERT_OK_AND_ASSIGN(std::string copy, ReadAll(store, "to", 64 << 20));
  EXPECT_TRUE(copy == data);
}

TEST(S3ServerTest, A8_UploadsThatWereLeftAreAborted) {
  Bucket bucket(Keys());
  XmlStore& store = *bucket.under_test->store;
  ASSERT_OK_AND_ASSIGN(auto upload, store.Begin("p/x", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  const WallTime now = std::chrono::system_clock::now();
  ASSERT_OK(store.AbortUploads("p", now - std::chrono::hours(24)));
  ASSERT_OK(upload->PutPart(2, "x"));  // it is young
  ASSERT_OK(store.AbortUploads("p", now + std::chrono::hours(1)));
  EXPECT_FALSE(upload->PutPart(3, "x").ok());
}

}  // namespace
}  // namespace torpor::objstore
