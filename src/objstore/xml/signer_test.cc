#include "objstore/xml/signer.h"

#include <gtest/gtest.h>

namespace torpor::objstore {
namespace {

// The examples of the AWS documentation, "Signature calculations for the authorization header".
constexpr char kEmptySha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string SignatureOf(std::string_view path, const Query& query, Headers headers) {
  SignArgs args;
  args.dialect = &kS3Dialect;
  args.method = "GET";
  args.host = "examplebucket.s3.amazonaws.com";
  args.path = path;
  const std::string canonical = CanonicalQuery(query);
  args.query = canonical;
  args.region = "us-east-1";
  args.payload_hash = kEmptySha256;
  args.now = std::chrono::system_clock::from_time_t(1369353600);  // 2013-05-24
  Credentials credentials;
  credentials.access_key = "AKIAIOSFODNN7EXAMPLE";
  credentials.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  Authorize(args, credentials, &headers);
  const std::string& authorization = headers.back().second;
  return authorization.substr(authorization.rfind('=') + 1);
}

TEST(SignerTest, TheExamplesOfTheDocumentation) {
  EXPECT_EQ(SignatureOf("/test.txt", {}, {{"range", "bytes=0-9"}}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(SignatureOf("/", {{"lifecycle", ""}}, {}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(SignatureOf("/", {{"prefix", "J"}, {"max-keys", "2"}}, {}),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(SignerTest, CloudStorageHasNamesOfItsOwn) {
  SignArgs args;
  args.dialect = &kGcsDialect;
  args.method = "PUT";
  args.host = "storage.googleapis.com";
  args.path = "/bucket/key";
  args.region = "auto";
  args.now = std::chrono::system_clock::from_time_t(1369353600);
  Credentials credentials;
  credentials.access_key = "GOOG1";
  credentials.secret_key = "secret";
  Headers headers = {{"x-goog-if-generation-match", "0"}};
  Authorize(args, credentials, &headers);
  ASSERT_EQ(headers.size(), 4u);
  EXPECT_EQ(headers[1], (std::pair<std::string, std::string>("x-goog-date", "20130524T000000Z")));
  EXPECT_EQ(headers[2].first, "x-goog-content-sha256");
  const std::string want =
      "GOOG4-HMAC-SHA256 Credential=GOOG1/20130524/auto/storage/goog4_request, SignedHeaders="
      "host;x-goog-content-sha256;x-goog-date;x-goog-if-generation-match, Signature=";
  EXPECT_EQ(headers[3].second.substr(0, want.size()), want);
}

TEST(SignerTest, ABearerTokenGoesAlone) {
  Credentials credentials;
  credentials.bearer = "token";
  Headers headers;
  SignArgs args;
  args.dialect = &kGcsDialect;
  Authorize(args, credentials, &headers);
  EXPECT_EQ(headers, (Headers{{"authorization", "Bearer token"}}));
}

TEST(SignerTest, QueriesAreSortedAndEncoded) {
  EXPECT_EQ(CanonicalQuery({{"uploadId", "a/b+c="}, {"partNumber", "1"}}),
            "partNumber=1&uploadId=a%2Fb%2Bc%3D");
  EXPECT_EQ(CanonicalQuery({{"uploads", ""}}), "uploads=");
  EXPECT_EQ(CanonicalQuery({}), "");
  EXPECT_EQ(PercentEncode("a/b:~é", true), "a/b%3A~%C3%A9");
  EXPECT_EQ(PercentEncode("a/b", false), "a%2Fb");
}

}  // namespace
}  // namespace torpor::objstore
