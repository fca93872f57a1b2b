#pragma once
// Requests to one bucket: signed, repeated when that may help, with errors of ours at the end.
//
// Thread-safe; calls block. This is the rim for secrets: what leaves here, an answer's error or a
// message, holds none of them.

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "objstore/credentials/credentials.h"
#include "objstore/http/http_client.h"
#include "objstore/http/retry.h"
#include "objstore/xml/dialect.h"
#include "objstore/xml/signer.h"

namespace torpor::objstore {

struct BucketOptions {
  const Dialect* dialect = &kS3Dialect;
  std::string bucket;
  std::string endpoint;     // "https://s3.eu-central-1.amazonaws.com", without a path
  bool path_style = false;  // the bucket in the path instead of the host's name
  std::string region;
  RetryRules retry;
  Duration silence_max = std::chrono::seconds(20);  // of a transfer that stalls
};

// Of one request; what the pointers and views name outlives it.
struct Call {
  std::string_view operation;  // "Put", for messages
  std::string method;
  std::string_view key;  // empty: the bucket itself
  Query query;
  Headers headers;
  std::string_view body;
  // Set before each try, so that a Get can go on where it was.
  std::function<void(Headers*)> add_headers;
  const HttpSink* sink = nullptr;
  // Asked after an answer that looks whole: false when it is not.
  std::function<bool()> is_whole;
  bool new_connection = false;
  std::optional<Duration> give_up_after;  // when shorter than the rules'
  std::optional<Duration> silence_max;    // instead of the bucket's
};

struct Answer {
  HttpResponse http;  // of the last try
  std::string code;   // of its XML error
  Status status;      // OK for 2xx
  int tries = 0;
};

class XmlClient {
 public:
  // `http`, `credentials` and `clock` outlive the client.
  XmlClient(BucketOptions options, HttpClient* http, CredentialCache* credentials, Clock* clock);

  // Also used for a 200 answer whose body is an <Error>, as copies and completions have it.
  Answer Do(const Call& call);
  // "s3://bucket"
  const std::string& name() const { return name_; }
  const BucketOptions& options() const { return options_; }

 private:
  StatusOr<HttpResponse> Try(const Call& call, const Credentials& credentials);
  std::string Path(std::string_view key) const;

  const BucketOptions options_;
  const std::string name_;
  std::string scheme_;  // of the endpoint, with "://"
  std::string host_;    // as in the Host field
  HttpClient* const http_;
  CredentialCache* const credentials_;
  Clock* const clock_;
};

}  // namespace torpor::objstore
