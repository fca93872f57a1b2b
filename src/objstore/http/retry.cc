#include "objstore/http/retry.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace torpor::objstore {
namespace {

constexpr Duration kRetryAfterMax = std::chrono::minutes(1);

// What is wrong with the request, this machine or the store's certificate does not pass by itself.
// Everything else may, also what a later libcurl calls by a number of its own.
bool IsLasting(int curl_code) {
  switch (curl_code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_FAILED_INIT:
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return true;
    default:
      return false;
  }
}

template <size_t N>
bool IsOneOf(std::string_view text, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

}  // namespace

Advice AdviceFor(const HttpOutcome& outcome) {
  constexpr std::string_view kPassing[] = {"BadDigest",  // the body was damaged on its way
                                           "ConditionalRequestConflict",
                                           "IncompleteBody",
                                           "InternalError",
                                           "OperationAborted",
                                           "RequestTimeout",
                                           "ServiceUnavailable",
                                           "SlowDown",
                                           "TooManyRequests"};
  constexpr std::string_view kStale[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"};
  if (outcome.curl_code != 0) {
    return IsLasting(outcome.curl_code) ? Advice::kEnd : Advice::kRepeat;
  }
  if (IsOneOf(outcome.code, kStale)) return Advice::kRefresh;
  if (IsOneOf(outcome.code, kPassing)) return Advice::kRepeat;
  switch (outcome.status) {
    case 401:
      return Advice::kRefresh;
    case 400:
    case 403:  // the answer to a HEAD has no body that would say why
      return outcome.code.empty() ? Advice::kRefresh : Advice::kEnd;
    case 408:
    case 425:
    case 429:
      return Advice::kRepeat;
    case 501:
    case 505:
    case 507:
      return Advice::kEnd;
    default:
      return outcome.status >= 500 ? Advice::kRepeat : Advice::kEnd;
  }
}

bool IsThrottled(const HttpOutcome& outcome) {
  return outcome.curl_code == 0 &&
         (outcome.status == 429 || outcome.code == "SlowDown" || outcome.code == "TooManyRequests");
}

Duration RetryPause(const RetryRules& rules, int tries, double random, Duration retry_after) {
  const double doubled = static_cast<double>(rules.first_pause.count()) *
                         std::pow(2.0, std::min(std::max(tries, 1) - 1, 30));
  const double most = std::min(doubled, static_cast<double>(rules.pause_max.count()));
  return std::max(Duration(static_cast<int64_t>(most * random)),
                  std::min(retry_after, kRetryAfterMax));
}

Duration ParseRetryAfter(std::string_view text) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return {};
  return std::min<Duration>(std::chrono::seconds(std::min<int64_t>(seconds, 3600)), kRetryAfterMax);
}

}  // namespace torpor::objstore
