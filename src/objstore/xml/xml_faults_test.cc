// What networks and stores do wrong, at the level of HTTP.

#include <unistd.h>

#include "base/testing/matchers.h"
#include "objstore/testing/bucket_under_test.h"
#include "objstore/testing/xml_fake.h"

namespace torpor::objstore {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Bytes(size_t count) {
  std::string out(count, '\0');
  uint64_t seed = count + 1;
  for (char& c : out) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(seed >> 56);
  }
  return out;
}

TestResponse Error(int status, const std::string& code) {
  return {status, {}, fmt::format("<Error><Code>{}</Code></Error>", code)};
}

class XmlFaultsTest : public testing::Test {
 protected:
  XmlFaultsTest() : bucket_(BucketAt(fake_.url(), kS3Dialect), TestKeys()) {}

  StatusOr<std::string> Read(const std::string& key, ByteRange range = {}) {
    std::string out;
    auto info = bucket_.store->Get(key, range, [&](std::string_view piece) {
      out.append(piece);
      return OkStatus();
    });
    if (!info.ok()) return info.status();
    return out;
  }

  XmlFake fake_{{.dialect = &kS3Dialect}};
  BucketUnderTest bucket_;
  std::atomic<int> count_{0};
};

// A storm in which nothing is served: everybody gets through after it, and knocks seldom.
TEST_F(XmlFaultsTest, F1_ThrottlingIsNoFailure) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> early{0};
  std::atomic<int> late{0};
  fake_.SetBefore([&](const TestRequest&) -> std::optional<TestResponse> {
    const auto age = std::chrono::steady_clock::now() - begin;
    if (age > milliseconds(900)) return std::nullopt;
    ++(age < milliseconds(300) ? early : late);
    return count_++ % 2 == 0 ? Error(429, "TooManyRequests") : Error(503, "SlowDown");
  });
  BucketOptions options = BucketAt(fake_.url(), kS3Dialect);
  options.retry = {milliseconds(20), milliseconds(500), seconds(20)};
  BucketUnderTest bucket(options, TestKeys());
  std::vector<std::thread> threads;
  for (int i = 0; i < 50; ++i) {
    threads.emplace_back(
        [&, i] { EXPECT_OK(bucket.store->Put("k/" + std::to_string(i), Bytes(1000))); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_.objects(), 50u);
  // The later two thirds of the storm see fewer requests than its first third.
  EXPECT_LT(late, early);
}

TEST_F(XmlFaultsTest, F1_RetryAfterIsHonoured) {
  fake_.SetBefore([&](const TestRequest&) -> std::optional<TestResponse> {
    if (count_++ > 0) return std::nullopt;
    return TestResponse{503, {{"retry-after", "1"}}, ""};
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_OK(bucket_.store->Put("k", "x"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, seconds(1));
  EXPECT_EQ(count_, 2);
}

TEST_F(XmlFaultsTest, F1_AStormWithoutEndSaysSo) {
  fake_.SetBefore([&](const TestRequest&) { return Error(503, "SlowDown"); });
  EXPECT_THAT(bucket_.store->Put("k", "x"), HasReason(Code::kResourceExhausted, "RATE_LIMITED"));
}

// The connection ends before the answer, after the request was done; and before it was.
TEST_F(XmlFaultsTest, F3_EachAnswerIsLostOnce) {
  const std::string data = Bytes((5 << 20) + 100);
  auto work = [&](const std::string& at) {
    ASSERT_OK(bucket_.store->Put(at + "/once", "manifest", {.if_absent = true}));
    ASSERT_OK_AND_ASSIGN(auto upload, bucket_.store->Begin(at + "/large", kPartBytesMin));
    ASSERT_OK(upload->PutPart(1, std::string_view(data).substr(0, 5 << 20)));
    ASSERT_OK(upload->PutPart(2, std::string_view(data).substr(5 << 20)));
    ASSERT_OK(upload->Complete());
    ASSERT_OK(bucket_.store->Copy(at + "/large", at + "/copy"));
    ASSERT_OK(bucket_.store->Delete(at + "/large"));
    EXPECT_TRUE(*Read(at + "/copy") == data);
    EXPECT_EQ(*Read(at + "/once"), "manifest");
    EXPECT_EQ(fake_.Object(at + "/large"), "");
    ASSERT_OK_AND_ASSIGN(auto all, ListAll(*bucket_.store, at, 10));
    EXPECT_EQ(all.size(), 2u);
  };
  std::atomic<int> lost{-1};
  std::atomic<bool> done{true};
  fake_.SetBefore([&](const TestRequest&) -> std::optional<TestResponse> {
    if (done || count_++ != lost) return std::nullopt;
    return TestResponse{.no_answer = true};
  });
  fake_.SetAfter([&](const TestRequest&, TestResponse* response) {
    if (done && count_++ == lost) response->no_answer = true;
  });
  work("whole");
  const int requests = count_;
  EXPECT_GE(requests, 10);
  for (int n = 0; n < requests; ++n) {
    for (bool after : {true, false}) {
      done = after;
      count_ = 0;
      lost = n;
      work(fmt::format("{}-{}", n, after));
    }
  }
}

// Somebody else's object is not ours, also when an answer of ours was lost.
TEST_F(XmlFaultsTest, F3_AnotherObjectIsNotTakenForOurs) {
  fake_.SetObject("k", "theirs");
  fake_.SetAfter([&](const TestRequest& request, TestResponse* response) {
    if (request.method == "PUT" && count_++ == 0) response->no_answer = true;
  });
  EXPECT_THAT(bucket_.store->Put("k", "ours!!", {.if_absent = true}),
              HasCode(Code::kFailedPrecondition));
  EXPECT_EQ(fake_.Object("k"), "theirs");
}

// An upload that somebody aborted is no object, whatever has its name.
TEST_F(XmlFaultsTest, F3_AnUploadThatIsGoneIsNotComplete) {
  fake_.SetObject("k", "older");
  ASSERT_OK_AND_ASSIGN(auto upload, bucket_.store->Begin("k", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  ASSERT_OK(bucket_.store->AbortUploads("", std::chrono::system_clock::now()));
  EXPECT_THAT(upload->Complete(), HasCode(Code::kUnavailable));
  EXPECT_EQ(fake_.Object("k"), "older");
}

// A completion may fail after its head has said 200.
TEST_F(XmlFaultsTest, F3_AnErrorBehindA200IsAnError) {
  fake_.SetBefore([&](const TestRequest& request) -> std::optional<TestResponse> {
    const bool copy = !request.Header("x-amz-copy-source").empty();
    if (!copy && request.method != "POST") return std::nullopt;
    if (request.query == "uploads=" || count_++ > 0) return std::nullopt;
    return Error(200, "InternalError");
  });
  ASSERT_OK_AND_ASSIGN(auto upload, bucket_.store->Begin("k", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  ASSERT_OK(upload->Complete());
  EXPECT_EQ(fake_.Object("k"), "x");
  count_ = 0;
  ASSERT_OK(bucket_.store->Copy("k", "l"));
  EXPECT_EQ(fake_.Object("l"), "x");
}

TEST_F(XmlFaultsTest, F4_ABodyThatIsCutGoesOnWhereItWas) {
  const std::string data = Bytes(400'000);
  fake_.SetObject("k", data);
  std::atomic<size_t> cut{0};
  Mutex mu;
  std::string second_range;
  fake_.SetAfter([&](const TestRequest& request, TestResponse* response) {
    if (count_++ == 0) {
      response->body_bytes_max = cut;
    } else {
      MutexLock lock(&mu);
      second_range = request.Header("range");
    }
  });
  for (size_t at : {size_t{0}, size_t{1}, size_t{65536}, size_t{131072}, size_t{196608},
                    size_t{262144}, size_t{327680}, size_t{399'999}}) {
    count_ = 0;
    cut = at;
    EXPECT_TRUE(*Read("k") == data) << at;
    EXPECT_EQ(count_, 2);
    MutexLock lock(&mu);
    EXPECT_EQ(second_range, at == 0 ? "" : fmt::format("bytes={}-", at));
  }
  for (size_t at : {0, 1, 65536, 99'999}) {
    count_ = 0;
    cut = at;
    EXPECT_TRUE(*Read("k", {1000, 100'000}) == data.substr(1000, 100'000)) << at;
    EXPECT_EQ(count_, 2);
  }
}

// Each try gets a little further: that is slow, but no failure.
TEST_F(XmlFaultsTest, F4_BodiesThatAreCutAgainAndAgain) {
  const std::string data = Bytes(2'000'000);
  fake_.SetObject("k", data);
  fake_.SetAfter(
      [&](const TestRequest&, TestResponse* response) { response->body_bytes_max = 70'000; });
  BucketOptions options = BucketAt(fake_.url(), kS3Dialect);
  options.retry.give_up_after = milliseconds(60);
  BucketUnderTest bucket(options, TestKeys());
  std::string out;
  ASSERT_OK(bucket.store->Get("k", {}, [&](std::string_view piece) {
    out.append(piece);
    return OkStatus();
  }));
  EXPECT_TRUE(out == data);
}

TEST_F(XmlFaultsTest, F4_ABodyThatNeverComesIsAnError) {
  fake_.SetObject("k", Bytes(100'000));
  fake_.SetAfter([&](const TestRequest&, TestResponse* response) { response->body_bytes_max = 0; });
  EXPECT_THAT(Read("k"), HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
}

// A store that says itself that it sends less than was asked for, or something else.
TEST_F(XmlFaultsTest, F4_AnswersToAnotherQuestionAreErrors) {
  fake_.SetObject("k", Bytes(1000));
  std::atomic<const char*> range = "bytes 0-99/1000";
  fake_.SetAfter([&](const TestRequest&, TestResponse* response) {
    response->headers = {{"content-range", range.load()}};
    response->body = std::string(100, 'x');
  });
  EXPECT_THAT(Read("k", {0, 200}), HasCode(Code::kUnavailable));
  EXPECT_THAT(Read("k", {100, 100}), HasCode(Code::kUnavailable));
  EXPECT_THAT(Read("k", {0, 50}), HasCode(Code::kUnavailable));
  range = "bytes 0-99/x";
  EXPECT_THAT(Read("k", {0, 100}), HasCode(Code::kUnavailable));
}

TEST_F(XmlFaultsTest, F4_AnObjectThatChangesWhileItIsReadIsNotMixed) {
  fake_.SetObject("k", std::string(300'000, 'a'));
  fake_.SetAfter([&](const TestRequest&, TestResponse* response) {
    if (count_++ == 0) response->body_bytes_max = 100'000;
  });
  bool replaced = false;
  std::string out;
  auto info = bucket_.store->Get("k", {}, [&](std::string_view piece) {
    if (!replaced) fake_.SetObject("k", std::string(300'000, 'b'));
    replaced = true;
    out.append(piece);
    return OkStatus();
  });
  EXPECT_THAT(info, HasCode(Code::kUnavailable));
  EXPECT_EQ(out.find('b'), std::string::npos);
}

// A body that was damaged on its way up is refused by the store and sent again.
TEST_F(XmlFaultsTest, F5_EachBodyTravelsWithItsChecksum) {
  std::atomic<int> without{0};
  fake_.SetBefore([&](const TestRequest& request) -> std::optional<TestResponse> {
    if (request.method == "PUT" && request.Header("content-md5").empty()) ++without;
    if (request.method != "PUT" || count_++ > 0) return std::nullopt;
    return Error(400, "BadDigest");
  });
  ASSERT_OK(bucket_.store->Put("k", "x"));
  ASSERT_OK_AND_ASSIGN(auto upload, bucket_.store->Begin("m", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  EXPECT_EQ(without, 0);
}

TEST_F(XmlFaultsTest, F10_AStuckTransferIsGivenUpAndTriedOnAnotherConnection) {
  const std::string data = Bytes(200'000);
  fake_.SetObject("k", data);
  fake_.SetAfter([&](const TestRequest&, TestResponse* response) {
    if (count_++ == 0) response->body_bytes_per_second = 100;
  });
  BucketOptions options = BucketAt(fake_.url(), kS3Dialect);
  options.silence_max = seconds(1);
  BucketUnderTest bucket(options, TestKeys());
  const auto begin = std::chrono::steady_clock::now();
  std::string out;
  ASSERT_OK(bucket.store->Get("k", {}, [&](std::string_view piece) {
    out.append(piece);
    return OkStatus();
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(6));
  EXPECT_TRUE(out == data);
  EXPECT_EQ(fake_.connections(), 2);
}

TEST_F(XmlFaultsTest, F13_AnExpiredTokenIsRefreshedOnce) {
  XmlFake fake({});
  fake.SetBearer("first");
  Credentials credentials;
  credentials.bearer = "first";
  BucketUnderTest bucket(BucketAt(fake.url(), kGcsDialect), credentials);
  ASSERT_OK_AND_ASSIGN(auto upload, bucket.store->Begin("k", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, Bytes(5 << 20)));
  fake.SetBearer("second");
  credentials.bearer = "second";
  bucket.source->Set(credentials);
  ASSERT_OK(upload->PutPart(2, "end"));
  ASSERT_OK(upload->Complete());
  EXPECT_EQ(bucket.source->fetches, 2);
  EXPECT_EQ(fake.Object("k").size(), (5u << 20) + 3);
  // One that is refused also when it is new is an error, not a loop.
  fake.SetBearer("third");
  const int before = fake.requests();
  EXPECT_THAT(bucket.store->Put("k", "x"), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_EQ(fake.requests(), before + 2);
}

TEST_F(XmlFaultsTest, F14_ADenialIsOneRequestAndNamesBucketAndOperation) {
  fake_.SetBefore([&](const TestRequest&) { return Error(403, "AccessDenied"); });
  const Status status = bucket_.store->Put("a/b", "x");
  EXPECT_THAT(status, HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_THAT(status, MessageHas("Put of a/b in s3://bucket was refused: AccessDenied"));
  EXPECT_EQ(fake_.requests(), 1);
}

TEST_F(XmlFaultsTest, A8_AnUploadThatFailsIsAborted) {
  fake_.SetBefore([&](const TestRequest& request) -> std::optional<TestResponse> {
    if (request.method != "PUT" || count_++ < 2) return std::nullopt;
    return Error(403, "AccessDenied");
  });
  {
    ASSERT_OK_AND_ASSIGN(auto upload, bucket_.store->Begin("k", kPartBytesMin));
    ASSERT_OK(upload->PutPart(1, Bytes(5 << 20)));
    ASSERT_OK(upload->PutPart(2, Bytes(5 << 20)));
    EXPECT_THAT(upload->PutPart(3, "x"), HasCode(Code::kPermissionDenied));
    EXPECT_EQ(fake_.uploads(), 1u);
  }
  EXPECT_EQ(fake_.uploads(), 0u);
  EXPECT_EQ(fake_.objects(), 0u);
}

// A store that shows what it got: in codes, ids, fields and bodies.
class SecretsTest : public XmlFaultsTest {
 protected:
  // What every operation says, and what is logged meanwhile.
  std::string SayAll(ObjectStore* store) {
    testing::internal::CaptureStderr();
    std::string said;
    auto add = [&](const Status& status) {
      said += status.ToString() + "\n";
      for (const auto& [key, value] : MetadataOf(status)) said += key + "=" + value + "\n";
    };
    auto ignore = [](std::string_view) { return OkStatus(); };
    add(store->Put("k", "x"));
    add(store->Put("k", "x", {.if_absent = true}));
    add(store->Get("k", {}, ignore).status());
    add(store->Head("k").status());
    add(store->List("p", "").status());
    add(store->Delete("k"));
    add(store->Copy("k", "l"));
    auto upload = store->Begin("k", kPartBytesMin);
    add(upload.status());
    if (upload.ok()) {
      add((*upload)->PutPart(1, "x"));
      add((*upload)->Complete());
      (*upload)->Abort();
    }
    return said + testing::internal::GetCapturedStderr();
  }
};

TEST_F(SecretsTest, F15_NoSecretReachesTextOrLog) {
  Credentials credentials;
  credentials.access_key = "AKTEST";
  credentials.secret_key = "canarysecret";
  credentials.session_token = "canarytoken";
  std::atomic<int> mode{0};
  HttpServer server([&](const TestRequest& request) -> TestResponse {
    const std::string shown =
        request.Header("authorization") + credentials.secret_key + credentials.session_token;
    const bool begin = request.method == "POST" && request.query == "uploads=";
    if (mode == 3 && begin) {
      return {200,
              {},
              "<InitiateMultipartUploadResult><UploadId>canary-upload</UploadId>"
              "</InitiateMultipartUploadResult>"};
    }
    switch (mode) {
      case 0:
        return {
            403,
            {{"x-amz-request-id", credentials.secret_key}},
            fmt::format("<Error><Code>{}</Code><Message>{}</Message><Region>{}</Region></Error>",
                        credentials.session_token, shown, credentials.secret_key)};
      case 1:
        return {503, {{"x-amz-request-id", shown}, {"location", shown}}, shown};
      case 2:
        return {200, {{"etag", shown}, {"content-length", "0"}}, ""};
      default:
        return {.no_answer = true};
    }
  });
  BucketOptions options = BucketAt(server.url(), kS3Dialect);
  options.retry.give_up_after = milliseconds(20);
  for (mode = 0; mode < 4; ++mode) {
    BucketUnderTest bucket(options, credentials);
    const std::string said = SayAll(bucket.store.get());
    EXPECT_NE(said.find("s3://bucket"), std::string::npos) << said;
    EXPECT_EQ(said.find("canary"), std::string::npos) << mode << ": " << said;
    EXPECT_EQ(said.find("Signature="), std::string::npos) << mode << ": " << said;
  }
  // Nobody listens there at all.
  BucketOptions nowhere = BucketAt("http://127.0.0.1:1", kS3Dialect);
  nowhere.retry.give_up_after = milliseconds(20);
  BucketUnderTest bucket(nowhere, credentials);
  EXPECT_EQ(SayAll(bucket.store.get()).find("canary"), std::string::npos);
}

}  // namespace
}  // namespace torpor::objstore
