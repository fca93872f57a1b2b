#include "objstore/credentials/credentials.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing/matchers.h"
#include "objstore/credentials/key_file.h"
#include "objstore/credentials/service_account.h"
#include "objstore/credentials/token_endpoint.h"
#include "objstore/testing/http_server.h"

namespace torpor::objstore {
namespace {

namespace fs = std::filesystem;
using std::chrono::minutes;
using std::chrono::seconds;

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() {
    std::string pattern = "/tmp/torpor-credentials-XXXXXX";
    home_ = mkdtemp(pattern.data());
    variables_["HOME"] = home_;
    variables_["AWS_EC2_METADATA_DISABLED"] = "true";
  }
  ~CredentialsTest() override { fs::remove_all(home_); }
  Environment Env() {
    return [this](const char* name) { return variables_[name]; };
  }
  std::string Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(home_ + "/" + name).parent_path());
    std::ofstream(home_ + "/" + name) << text;
    return home_ + "/" + name;
  }
  StatusOr<Credentials> Aws(CredentialSettings settings = {}) {
    return AwsCredentials(std::move(settings), Env(), &http_)->Fetch();
  }
  StatusOr<Credentials> Gcs(CredentialSettings settings = {}) {
    return GcsCredentials(std::move(settings), Env(), &http_)->Fetch();
  }

  std::string home_;
  std::map<std::string, std::string> variables_;
  HttpClient http_;
};

TEST_F(CredentialsTest, AwsFromTheEnvironmentThenTheUsualFile) {
  EXPECT_THAT(Aws(), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(Aws(), MessageHas("AWS_ACCESS_KEY_ID"));
  Write(".aws/credentials",
        "# a comment\n[default]\naws_access_key_id = file-key\naws_secret_access_key=file/s=ecret\n"
        "[other]\r\naws_access_key_id=o\r\naws_secret_access_key=os\r\naws_session_token = ot\r\n");
  ASSERT_OK_AND_ASSIGN(Credentials c, Aws());
  EXPECT_EQ(c.access_key, "file-key");
  EXPECT_EQ(c.secret_key, "file/s=ecret");
  variables_["AWS_PROFILE"] = "other";
  ASSERT_OK_AND_ASSIGN(c, Aws());
  EXPECT_EQ(c.access_key + c.secret_key + c.session_token, "oosot");
  ASSERT_OK_AND_ASSIGN(c, Aws({.profile = "default"}));
  EXPECT_EQ(c.access_key, "file-key");
  variables_["AWS_ACCESS_KEY_ID"] = "env";
  variables_["AWS_SECRET_ACCESS_KEY"] = "envs";
  variables_["AWS_SESSION_TOKEN"] = "envt";
  ASSERT_OK_AND_ASSIGN(c, Aws());
  EXPECT_EQ(c.access_key + c.secret_key + c.session_token, "envenvsenvt");
  // A file of the settings is meant more than the environment.
  ASSERT_OK_AND_ASSIGN(c, Aws({.file = home_ + "/.aws/credentials", .profile = "default"}));
  EXPECT_EQ(c.access_key, "file-key");
}

TEST_F(CredentialsTest, AFileThatWasNamedMustBeGood) {
  EXPECT_THAT(Aws({.file = home_ + "/none"}), MessageHas("does not exist"));
  const std::string path = Write("keys", "[default]\naws_access_key_id = canary\n");
  EXPECT_THAT(Aws({.file = path}), MessageHas("section [default]"));
  EXPECT_EQ(Aws({.file = path}).status().ToString().find("canary"), std::string::npos);
  EXPECT_THAT(Aws({.file = home_}), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(Gcs({.file = home_ + "/none"}), MessageHas("does not exist"));
  EXPECT_THAT(Gcs({.file = path}), MessageHas("section [Credentials]"));
}

TEST_F(CredentialsTest, GcsHmacKeys) {
  const std::string path =
      Write("boto", "[Credentials]\ngs_access_key_id = GOOG1\ngs_secret_access_key = s\n");
  ASSERT_OK_AND_ASSIGN(Credentials c, Gcs({.file = path}));
  EXPECT_EQ(c.access_key + c.secret_key, "GOOG1s");
  variables_["GOOGLE_STORAGE_ACCESS_KEY_ID"] = "GOOG2";
  variables_["GOOGLE_STORAGE_SECRET_ACCESS_KEY"] = "t";
  ASSERT_OK_AND_ASSIGN(c, Gcs());
  EXPECT_EQ(c.access_key + c.secret_key, "GOOG2t");
}

TEST_F(CredentialsTest, TheInstanceHandsOutAwsKeys) {
  HttpServer server([](const TestRequest& request) -> TestResponse {
    if (request.target == "/latest/api/token" && request.method == "PUT") {
      const bool asked = !request.Header("x-aws-ec2-metadata-token-ttl-seconds").empty();
      return asked ? TestResponse{200, {}, "imds-token"} : TestResponse{400, {}, ""};
    }
    if (request.Header("x-aws-ec2-metadata-token") != "imds-token") return {401, {}, ""};
    const std::string roles = "/latest/meta-data/iam/security-credentials/";
    if (request.target == roles) return {200, {}, "my-role\n"};
    if (request.target != roles + "my-role") return {404, {}, ""};
    return {200,
            {},
            "{\"Code\":\"Success\",\"AccessKeyId\":\"ASIA\",\"SecretAccessKey\":\"s\","
            "\"Token\":\"t\",\"Expiration\":\"2026-12-01T10:00:00Z\"}"};
  });
  variables_.erase("AWS_EC2_METADATA_DISABLED");
  variables_["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url() + "/";
  ASSERT_OK_AND_ASSIGN(Credentials c, Aws());
  EXPECT_EQ(c.access_key + c.secret_key + c.session_token, "ASIAst");
  EXPECT_EQ(c.expires, ParseRfc3339Seconds("2026-12-01T10:00:00Z"));
  ASSERT_TRUE(c.expires.has_value());
}

TEST_F(CredentialsTest, TheContainerHandsOutAwsKeys) {
  HttpServer server([](const TestRequest& request) -> TestResponse {
    if (request.Header("authorization") != "container-token") return {403, {}, ""};
    return {200, {}, "{\"AccessKeyId\":\"ASIA\",\"SecretAccessKey\":\"s\",\"Token\":\"t\"}"};
  });
  variables_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url() + "/v1/credentials";
  auto refused = Aws();
  EXPECT_THAT(refused, HasCode(Code::kUnavailable));
  EXPECT_THAT(refused, MessageHas("HTTP 403"));
  variables_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = Write("token", "container-token\n");
  ASSERT_OK_AND_ASSIGN(Credentials c, Aws());
  EXPECT_EQ(c.access_key, "ASIA");
}

TEST_F(CredentialsTest, TheInstanceHandsOutAGcsToken) {
  std::atomic<const char*> answer =
      "{\"access_token\":\"ya29.x\",\"expires_in\":3599,\"token_type\":\"Bearer\"}";
  HttpServer server([&](const TestRequest& request) -> TestResponse {
    if (request.Header("metadata-flavor") != "Google") return {403, {}, ""};
    return {200, {}, answer.load()};
  });
  variables_["GCE_METADATA_HOST"] = server.host();
  ASSERT_OK_AND_ASSIGN(Credentials c, Gcs());
  EXPECT_EQ(c.bearer, "ya29.x");
  ASSERT_TRUE(c.expires.has_value());
  EXPECT_GT(*c.expires, std::chrono::system_clock::now() + minutes(50));
  for (const char* bad : {"", "{", "[]", "{\"access_token\":1}", "{\"expires_in\":\"x\"}"}) {
    answer = bad;
    EXPECT_THAT(Gcs(), HasReason(Code::kPermissionDenied, "STORE_DENIED")) << bad;
  }
}

std::string FromBase64Url(std::string text) {
  for (char& c : text) c = c == '-' ? '+' : c == '_' ? '/' : c;
  const size_t padding = (4 - text.size() % 4) % 4;
  text.append(padding, '=');
  std::string out(text.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  out.resize(static_cast<size_t>(std::max(size, 0)) - padding);
  return out;
}

// The exchange of a claim for a token, with a key that the test makes.
TEST_F(CredentialsTest, TheKeyOfAServiceAccountIsExchangedForAToken) {
  EVP_PKEY* key = EVP_RSA_gen(2048);
  BIO* bio = BIO_new(BIO_s_mem());
  ASSERT_EQ(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  const std::string pem(data, static_cast<size_t>(size));
  BIO_free(bio);
  std::atomic<bool> verified{false};
  HttpServer server([&](const TestRequest& request) -> TestResponse {
    const std::string grant =
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
    if (request.body.rfind(grant, 0) != 0) return {400, {}, ""};
    const std::string claim = request.body.substr(grant.size());
    const size_t dot = claim.rfind('.');
    const std::string signature = FromBase64Url(claim.substr(dot + 1));
    const size_t first = claim.find('.') + 1;
    const std::string claims = FromBase64Url(claim.substr(first, dot - first));
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    verified = claims.find("\"iss\":\"me@project\"") != std::string::npos &&
               EVP_DigestVerifyInit(context, nullptr, EVP_sha256(), nullptr, key) == 1 &&
               EVP_DigestVerify(context, reinterpret_cast<const unsigned char*>(signature.data()),
                                signature.size(),
                                reinterpret_cast<const unsigned char*>(claim.data()), dot) == 1;
    EVP_MD_CTX_free(context);
    return {200, {}, "{\"access_token\":\"ya29.sa\",\"expires_in\":3599}"};
  });
  std::string escaped;
  for (char c : pem) escaped += c == '\n' ? "\\n" : std::string(1, c);
  auto key_of = [&](const std::string& private_key) {
    return fmt::format(
        "{{\"type\":\"service_account\",\"client_email\":\"me@project\",\"private_key\":\"{}\","
        "\"token_uri\":\"{}/token\"}}",
        private_key, server.url());
  };
  variables_["GOOGLE_APPLICATION_CREDENTIALS"] = Write("key.json", key_of(escaped));
  ASSERT_OK_AND_ASSIGN(Credentials c, Gcs());
  EXPECT_EQ(c.bearer, "ya29.sa");
  EXPECT_TRUE(c.expires.has_value());
  EXPECT_TRUE(verified);
  for (const std::string& bad : {std::string("{"), std::string("{}"), key_of("canary")}) {
    auto refused = Gcs({.file = Write("bad.json", bad)});
    EXPECT_THAT(refused, HasReason(Code::kPermissionDenied, "STORE_DENIED")) << bad;
    EXPECT_EQ(refused.status().ToString().find("canary"), std::string::npos);
  }
  EVP_PKEY_free(key);
}

class ScriptedSource : public CredentialSource {
 public:
  StatusOr<Credentials> Fetch() override {
    ++fetches;
    if (!answer.ok()) return answer;
    Credentials c;
    c.bearer = "token-" + std::to_string(fetches);
    c.expires = expires;
    return c;
  }
  int fetches = 0;
  Status answer;
  std::optional<WallTime> expires;
};

TEST(CredentialCacheTest, FetchesBeforeTheyExpireAndLivesThroughAnOutage) {
  FakeClock clock;
  auto owned = std::make_unique<ScriptedSource>();
  ScriptedSource* source = owned.get();
  CredentialCache cache(std::move(owned), &clock);
  source->expires = clock.WallNow() + minutes(60);
  EXPECT_EQ(cache.Get()->bearer, "token-1");
  clock.Advance(minutes(54));
  EXPECT_EQ(cache.Get()->bearer, "token-1");
  EXPECT_EQ(source->fetches, 1);
  clock.Advance(minutes(2));  // four minutes before the end
  source->answer = Status(Code::kUnavailable, "down");
  EXPECT_EQ(cache.Get()->bearer, "token-1");
  EXPECT_EQ(cache.Get()->bearer, "token-1");
  EXPECT_EQ(source->fetches, 2);  // not asked again at once
  clock.Advance(minutes(5));
  EXPECT_THAT(cache.Get().status(), HasCode(Code::kUnavailable));
  source->answer = OkStatus();
  source->expires = clock.WallNow() + minutes(60);
  EXPECT_EQ(cache.Get()->bearer, "token-4");
}

TEST(CredentialCacheTest, WhatWasRefusedIsFetchedAnewOnce) {
  FakeClock clock;
  auto owned = std::make_unique<ScriptedSource>();
  ScriptedSource* source = owned.get();
  CredentialCache cache(std::move(owned), &clock);
  const Credentials first = *cache.Get();
  cache.Refused(first);
  EXPECT_EQ(cache.Get()->bearer, "token-2");
  cache.Refused(first);  // by another request that used the old ones
  EXPECT_EQ(cache.Get()->bearer, "token-2");
  EXPECT_EQ(source->fetches, 2);
  clock.Advance(minutes(2));  // a file may have changed meanwhile
  EXPECT_EQ(cache.Get()->bearer, "token-3");
}

TEST(HideTest, EverySecretEverywhere) {
  Credentials c;
  c.access_key = "AKIA";
  c.secret_key = "s3cret";
  c.session_token = "t0ken";
  EXPECT_EQ(Hide("AKIA s3cret/t0ken s3crets3cret", c),
            "AKIA [redacted]/[redacted] [redacted][redacted]");
  EXPECT_EQ(Hide("text", {}), "text");
}

}  // namespace
}  // namespace torpor::objstore
