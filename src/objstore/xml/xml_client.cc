#include "objstore/xml/xml_client.h"

#include <random>

#include "base/log.h"
#include "objstore/xml/answers.h"
#include "objstore/xml/errors.h"

namespace torpor::objstore {
namespace {

constexpr int kPartialBody = 18;  // CURLE_PARTIAL_FILE

double Random01() {
  thread_local std::minstd_rand engine(std::random_device{}());
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

// Copies and completions may fail after their head has said 200.
ErrorAnswer ErrorOf(const HttpResponse& http) {
  const bool may_be_one =
      std::string_view(http.body).substr(0, 512).find("<Error") != std::string::npos;
  return http.curl_code == 0 && may_be_one ? ParseError(http.body) : ErrorAnswer();
}

}  // namespace

XmlClient::XmlClient(BucketOptions options, HttpClient* http, CredentialCache* credentials,
                     Clock* clock)
    : options_(std::move(options)),
      name_(fmt::format("{}://{}", options_.dialect->scheme, options_.bucket)),
      http_(http),
      credentials_(credentials),
      clock_(clock) {
  const size_t host = options_.endpoint.find("://") + 3;
  scheme_ = options_.endpoint.substr(0, host);
  host_ = options_.endpoint.substr(host);
  if (!options_.path_style) host_ = options_.bucket + "." + host_;
}

std::string XmlClient::Path(std::string_view key) const {
  const std::string bucket = options_.path_style ? "/" + options_.bucket : "";
  if (key.empty() && !bucket.empty()) return bucket;
  return bucket + "/" + PercentEncode(key, true);
}

StatusOr<HttpResponse> XmlClient::Try(const Call& call, const Credentials& credentials) {
  HttpRequest request;
  request.method = call.method;
  request.body = call.body;
  request.headers = call.headers;
  request.new_connection = call.new_connection;
  request.silence_max = call.silence_max.value_or(options_.silence_max);
  if (call.add_headers) call.add_headers(&request.headers);
  SignArgs sign;
  sign.dialect = options_.dialect;
  sign.method = request.method;
  sign.host = host_;
  const std::string path = Path(call.key);
  sign.path = path;
  const std::string query = CanonicalQuery(call.query);
  sign.query = query;
  sign.region = options_.region;
  sign.now = clock_->WallNow();
  Authorize(sign, credentials, &request.headers);
  request.url = scheme_ + host_ + path + (query.empty() ? "" : "?" + query);
  return http_->Do(request, call.sink == nullptr ? HttpSink() : *call.sink);
}

Answer XmlClient::Do(const Call& call) {
  Answer answer;
  bool refreshed = false;
  std::optional<MonotonicTime> failing_since;
  const Duration give_up_after =
      std::min(options_.retry.give_up_after, call.give_up_after.value_or(Duration::max()));
  for (;;) {
    auto credentials = credentials_->Get();
    if (!credentials.ok()) {
      answer.status = Annotate(credentials.status(), name_);
      return answer;
    }
    ++answer.tries;
    auto response = Try(call, *credentials);
    if (!response.ok()) {
      answer.status = response.status();
      return answer;
    }
    answer.http = std::move(*response);
    HttpResponse& http = answer.http;
    if (http.ok() && call.is_whole && !call.is_whole()) http.curl_code = kPartialBody;
    ErrorAnswer error = ErrorOf(http);
    answer.code = Hide(error.code, *credentials);
    const HttpOutcome outcome{http.curl_code, http.status, answer.code};
    if (http.ok() && answer.code.empty()) return answer;

    Advice advice = AdviceFor(outcome);
    if (advice == Advice::kRefresh && !refreshed) {
      refreshed = true;
      credentials_->Refused(*credentials);
      continue;
    }
    const MonotonicTime now = clock_->Now();
    if (!failing_since.has_value()) failing_since = now;
    const Duration pause = RetryPause(options_.retry, answer.tries, Random01(),
                                      ParseRetryAfter(http.Header("retry-after")));
    if (advice == Advice::kRepeat && now + pause - *failing_since <= give_up_after) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    std::string id(http.Header("x-amz-request-id"));
    if (id.empty()) id = http.Header("x-guploader-uploadid");
    error.region = Hide(error.region, *credentials);
    answer.status = StoreError({name_, call.operation, call.key, host_}, outcome, error,
                               Hide(id, *credentials));
    return answer;
  }
}

}  // namespace torpor::objstore
