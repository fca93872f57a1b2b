#pragma once
// A store on a bucket, with credentials that a test decides.

#include "objstore/xml/xml_store.h"

namespace torpor::objstore {

// Hands out what the test set; counts.
class TestSource : public CredentialSource {
 public:
  explicit TestSource(Credentials credentials) : credentials_(std::move(credentials)) {}
  StatusOr<Credentials> Fetch() override {
    ++fetches;
    MutexLock lock(&mu_);
    return credentials_;
  }
  void Set(Credentials credentials) {
    MutexLock lock(&mu_);
    credentials_ = std::move(credentials);
  }
  std::atomic<int> fetches{0};

 private:
  Mutex mu_;
  Credentials credentials_ GUARDED_BY(mu_);
};

struct BucketUnderTest {
  BucketUnderTest(BucketOptions options, Credentials credentials, int64_t copy_bytes_max = 0) {
    auto owned = std::make_unique<TestSource>(std::move(credentials));
    source = owned.get();
    cache = std::make_unique<CredentialCache>(std::move(owned), Clock::Real());
    store = std::make_unique<XmlStore>(
        std::make_unique<XmlClient>(std::move(options), &http, cache.get(), Clock::Real()), nullptr,
        copy_bytes_max);
  }

  HttpClient http;
  TestSource* source;
  std::unique_ptr<CredentialCache> cache;
  std::unique_ptr<XmlStore> store;
};

// Fast enough for tests.
inline RetryRules QuickRetries() {
  return {std::chrono::milliseconds(5), std::chrono::milliseconds(50), std::chrono::seconds(2)};
}

inline BucketOptions BucketAt(const std::string& endpoint, const Dialect& dialect) {
  BucketOptions options;
  options.dialect = &dialect;
  options.bucket = "bucket";
  options.endpoint = endpoint;
  options.path_style = true;
  options.region = "auto";
  options.retry = QuickRetries();
  return options;
}

inline Credentials TestKeys() {
  Credentials credentials;
  credentials.access_key = "AKTEST";
  credentials.secret_key = "canary-secret-key";
  return credentials;
}

}  // namespace torpor::objstore
