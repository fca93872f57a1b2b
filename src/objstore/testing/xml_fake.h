#pragma once
// A strict bucket behind the XML API of Cloud Storage or S3, in memory, for tests. What the real
// one refuses is refused here: wrong signatures and digests, fields of the other dialect, unknown
// parameters, conditions on multipart uploads, small parts, wrong ETags. Thread-safe.

#include <functional>
#include <optional>
#include <set>

#include "objstore/testing/http_server.h"
#include "objstore/xml/dialect.h"

namespace torpor::objstore {

struct FakeOptions {
  const Dialect* dialect = &kGcsDialect;
  std::string bucket = "bucket";
  std::string access_key = "AKTEST";
  std::string secret_key = "canary-secret-key";
  std::string region = "auto";
};

class XmlFake {
 public:
  explicit XmlFake(FakeOptions options) : options_(std::move(options)) {}

  std::string url() const { return server_.url(); }
  std::string host() const { return server_.host(); }
  int connections() const { return server_.connections(); }

  // Called from any thread: `before` may answer instead, `after` may change the answer of a request
  // that was done.
  using Before = std::function<std::optional<TestResponse>(const TestRequest&)>;
  using After = std::function<void(const TestRequest&, TestResponse*)>;
  void SetBefore(Before before) EXCLUDES(mu_);
  void SetAfter(After after) EXCLUDES(mu_);

  void SetBearer(const std::string& token) EXCLUDES(mu_);  // the only one that is taken
  void SetObject(const std::string& key, std::string bytes) EXCLUDES(mu_);
  std::string Object(const std::string& key) EXCLUDES(mu_);  // "" also when there is none
  size_t objects() EXCLUDES(mu_);
  size_t uploads() EXCLUDES(mu_);
  int requests() const { return requests_; }

 private:
  struct Upload {
    std::string key;
    std::map<int, std::string> parts;
  };

  TestResponse Serve(const TestRequest& request) EXCLUDES(mu_);
  TestResponse Dispatch(const TestRequest& request, const std::string& key) EXCLUDES(mu_);
  std::optional<TestResponse> CheckRights(const TestRequest& request) EXCLUDES(mu_);
  std::optional<TestResponse> CheckForm(const TestRequest& request) const;
  TestResponse List(const TestRequest& request) REQUIRES(mu_);
  TestResponse ListUploads() REQUIRES(mu_);
  TestResponse Get(const TestRequest& request, const std::string& key) REQUIRES(mu_);
  TestResponse Put(const TestRequest& request, const std::string& key) REQUIRES(mu_);
  TestResponse PutPart(const TestRequest& request) REQUIRES(mu_);
  TestResponse Complete(const TestRequest& request) REQUIRES(mu_);
  std::string Field(const std::string& name) const {
    return options_.dialect->header_prefix + name;
  }
  bool IsS3() const { return options_.dialect == &kS3Dialect; }

  const FakeOptions options_;
  Mutex mu_;
  Before before_ GUARDED_BY(mu_);
  After after_ GUARDED_BY(mu_);
  std::string bearer_ GUARDED_BY(mu_);
  std::map<std::string, std::string> objects_ GUARDED_BY(mu_);
  std::map<std::string, Upload> uploads_ GUARDED_BY(mu_);
  int last_id_ GUARDED_BY(mu_) = 0;
  std::atomic<int> requests_{0};
  HttpServer server_{[this](const TestRequest& request) { return Serve(request); }};  // last
};

}  // namespace torpor::objstore
