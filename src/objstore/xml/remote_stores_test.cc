#include "objstore/xml/remote_stores.h"

#include <cstdlib>

#include "base/testing/matchers.h"
#include "objstore/probe.h"
#include "objstore/testing/xml_fake.h"

namespace torpor::objstore {
namespace {

std::string Nothing(const char*) { return ""; }

TEST(PlaceOfBucketTest, Table) {
  struct Case {
    const Dialect* dialect;
    RemoteOptions options;
    const char* bucket;
    const char* endpoint;
    const char* region;
    bool path_style;
  };
  for (const Case& c : {
           Case{
               &kS3Dialect, {}, "bucket", "https://s3.us-east-1.amazonaws.com", "us-east-1", false},
           Case{&kS3Dialect,
                {},
                "my.bucket",
                "https://s3.us-east-1.amazonaws.com",
                "us-east-1",
                true},
           Case{&kS3Dialect,
                {.s3_region = "eu-west-1"},
                "bucket",
                "https://s3.eu-west-1.amazonaws.com",
                "eu-west-1",
                false},
           Case{&kS3Dialect,
                {.s3_endpoint = "http://127.0.0.1:9000"},
                "bucket",
                "http://127.0.0.1:9000",
                "us-east-1",
                true},
           Case{&kS3Dialect,
                {.s3_endpoint = "https://s3.example", .s3_addressing = "virtual"},
                "bucket",
                "https://s3.example",
                "us-east-1",
                false},
           Case{&kS3Dialect,
                {.s3_addressing = "path"},
                "bucket",
                "https://s3.us-east-1.amazonaws.com",
                "us-east-1",
                true},
           Case{&kGcsDialect,
                {.s3_endpoint = "http://no"},
                "bucket",
                "https://storage.googleapis.com",
                "auto",
                true},
           Case{&kGcsDialect,
                {.gcs_endpoint = "http://[::1]:80"},
                "bucket",
                "http://[::1]:80",
                "auto",
                true},
       }) {
    ASSERT_OK_AND_ASSIGN(BucketPlace place,
                         PlaceOfBucket(*c.dialect, c.options, c.bucket, Nothing));
    EXPECT_EQ(place.endpoint, c.endpoint);
    EXPECT_EQ(place.region, c.region);
    EXPECT_EQ(place.path_style, c.path_style) << c.bucket;
  }
  const Environment region = [](const char* name) {
    return std::string_view(name) == "AWS_DEFAULT_REGION" ? "eu-north-1" : "";
  };
  EXPECT_EQ(PlaceOfBucket(kS3Dialect, {}, "bucket", region)->region, "eu-north-1");
}

TEST(PlaceOfBucketTest, BadSettings) {
  for (const char* endpoint :
       {"127.0.0.1:9000", "ftp://host", "http://", "http://user:canary@host", "http://host/path",
        "http://host?x=canary", "https://host\n", "HTTP://host"}) {
    auto s3 = PlaceOfBucket(kS3Dialect, {.s3_endpoint = endpoint}, "bucket", Nothing);
    EXPECT_THAT(s3, HasReason(Code::kInvalidArgument, "FIELD_INVALID")) << endpoint;
    EXPECT_EQ(std::string(s3.status().message()).find("canary"), std::string::npos);
    EXPECT_FALSE(PlaceOfBucket(kGcsDialect, {.gcs_endpoint = endpoint}, "bucket", Nothing).ok());
  }
  EXPECT_THAT(PlaceOfBucket(kS3Dialect, {.s3_region = "a/b"}, "bucket", Nothing),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
}

class RemoteStoresTest : public testing::Test {
 protected:
  RemoteStoresTest() {
    setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary-secret-key", 1);
  }
  ~RemoteStoresTest() override {
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
  }
  StatusOr<StoreRegistry> Stores(std::vector<std::string> addresses) {
    StoreOptions options;
    options.addresses = std::move(addresses);
    options.remote.s3_endpoint = fake_.url();
    options.remote.gcs_endpoint = fake_.url();
    return StandardStores(options);
  }
  XmlFake fake_{{.dialect = &kS3Dialect, .region = "us-east-1"}};
};

TEST_F(RemoteStoresTest, ServesWhatIsAllowedOnly) {
  ASSERT_OK_AND_ASSIGN(StoreRegistry stores, Stores({"s3://bucket/a/b", "s3://bucket/c"}));
  ASSERT_OK_AND_ASSIGN(Place place, stores.Resolve("s3://bucket/a/b/c"));
  EXPECT_EQ(place.key, "a/b/c");
  ASSERT_OK(place.store->Put(place.key, "x"));
  EXPECT_EQ(fake_.Object("a/b/c"), "x");
  ASSERT_OK_AND_ASSIGN(Place other, stores.Resolve("s3://bucket/c/d"));
  EXPECT_EQ(other.store, place.store);  // so that copies stay inside the store
  for (const char* uri : {"s3://bucket", "s3://bucket/a", "s3://bucket/a/bc", "s3://other/a/b",
                          "gs://bucket/a/b", "file:///a"}) {
    EXPECT_THAT(stores.Resolve(uri), HasReason(Code::kPermissionDenied, "STORE_DENIED")) << uri;
  }
}

TEST_F(RemoteStoresTest, ProbeSaysWhatIsWrong) {
  ASSERT_OK_AND_ASSIGN(StoreRegistry stores, Stores({"s3://bucket/p", "s3://missing"}));
  EXPECT_OK(ProbeStorage(stores, "s3://bucket/p"));
  EXPECT_EQ(fake_.objects(), 0u);
  EXPECT_THAT(ProbeStorage(stores, "s3://missing"), MessageHas("NoSuchBucket"));
  EXPECT_THAT(ProbeStorage(stores, "s3://missing"), MessageHas("create the bucket"));
  setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
  ASSERT_OK_AND_ASSIGN(stores, Stores({"s3://bucket"}));
  EXPECT_THAT(ProbeStorage(stores, "s3://bucket"), MessageHas("SignatureDoesNotMatch"));
  setenv("AWS_ACCESS_KEY_ID", "unknown", 1);
  ASSERT_OK_AND_ASSIGN(stores, Stores({"s3://bucket"}));
  EXPECT_THAT(ProbeStorage(stores, "s3://bucket"), MessageHas("access key does not exist"));
}

// Rights to read are not enough.
TEST_F(RemoteStoresTest, ProbeNoticesThatItMayNotWrite) {
  fake_.SetBefore([](const TestRequest& request) -> std::optional<TestResponse> {
    if (request.method != "PUT") return std::nullopt;
    return TestResponse{403, {}, "<Error><Code>AccessDenied</Code></Error>"};
  });
  ASSERT_OK_AND_ASSIGN(StoreRegistry stores, Stores({"s3://bucket"}));
  EXPECT_THAT(ProbeStorage(stores, "s3://bucket"),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
}

TEST_F(RemoteStoresTest, BadAddressesAndSettingsAreErrorsAtTheStart) {
  EXPECT_THAT(Stores({"s3://b"}).status(), HasCode(Code::kInvalidArgument));
  StoreOptions options;
  options.addresses = {"s3://bucket"};
  options.remote.s3_endpoint = "nonsense";
  EXPECT_THAT(StandardStores(options).status(), HasCode(Code::kInvalidArgument));
}

}  // namespace
}  // namespace torpor::objstore
