#pragma once
// Credentials of an object store: where they come from, and when they are fetched anew.
//
// A Credentials value is never printed; Hide is the one place that removes it from foreign text.
// Sources are called by one thread at a time; CredentialCache is thread-safe and outlives nothing
// but its source.
//
// Errors: PERMISSION_DENIED STORE_DENIED when there are none, with what to do; UNAVAILABLE
// OBJECT_STORAGE_UNAVAILABLE when an endpoint that hands them out does not answer.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "objstore/http/http_client.h"

namespace torpor::objstore {

struct Credentials {
  // Either a pair of keys that signs requests ...
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of temporary keys; else empty
  // ... or a token that is sent with them.
  std::string bearer;
  std::optional<WallTime> expires;
};

// `text` without any of the secrets.
std::string Hide(std::string text, const Credentials& credentials);

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  virtual StatusOr<Credentials> Fetch() = 0;
};

// Reads an environment variable; "" when it is not set.
using Environment = std::function<std::string(const char* name)>;
std::string ReadEnvironment(const char* name);

struct CredentialSettings {
  std::string file;     // of keys, instead of the usual place
  std::string profile;  // section of that file
};

// Of S3, the first of: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the file; the endpoint of the
// container (AWS_CONTAINER_CREDENTIALS_*); the endpoint of the instance (version 2).
std::unique_ptr<CredentialSource> AwsCredentials(CredentialSettings settings,
                                                 Environment environment, HttpClient* http);
// Of Google Cloud Storage, the first of: the file, with HMAC keys or the key of a service account;
// HMAC keys in GOOGLE_STORAGE_ACCESS_KEY_ID and GOOGLE_STORAGE_SECRET_ACCESS_KEY; the file of
// GOOGLE_APPLICATION_CREDENTIALS; the token of the instance's service account.
std::unique_ptr<CredentialSource> GcsCredentials(CredentialSettings settings,
                                                 Environment environment, HttpClient* http);

class CredentialCache {
 public:
  CredentialCache(std::unique_ptr<CredentialSource> source, Clock* clock)
      : source_(std::move(source)), clock_(clock) {}

  // Fetches when there are none, or five minutes before they expire. While a fetch fails, those
  // that have not expired are used on.
  StatusOr<Credentials> Get() EXCLUDES(mu_);
  // The store does not take `refused` any longer: the next Get fetches, unless it was done already.
  void Refused(const Credentials& refused) EXCLUDES(mu_);

 private:
  const std::unique_ptr<CredentialSource> source_;
  Clock* const clock_;
  Mutex mu_;
  std::optional<Credentials> current_ GUARDED_BY(mu_);
  WallTime next_fetch_ GUARDED_BY(mu_);
};

}  // namespace torpor::objstore
