#pragma once
// A store around another one that fails as networks and stores do, for tests. Thread-safe when its
// plan is; the store inside outlives it.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/sync.h"
#include "objstore/object_store.h"

namespace torpor::objstore {

enum class Fault {
  kNone,
  kRefused,     // nothing is done, UNAVAILABLE
  kThrottled,   // nothing is done, RESOURCE_EXHAUSTED
  kLostAnswer,  // it is done, UNAVAILABLE
  kCutBody,     // a Get yields half of its bytes and says OK
  kFlippedBit,  // a Get yields one wrong bit and says OK
};

struct FaultyRequest {
  std::string operation;  // the method's name: "Get", "PutPart"
  std::string key;        // the prefix of a List
  int number = 0;         // of all requests, from 0
};
using FaultPlan = std::function<Fault(const FaultyRequest&)>;

class FaultyStore : public ObjectStore {
 public:
  FaultyStore(ObjectStore* inner, FaultPlan plan) : inner_(inner), plan_(std::move(plan)) {}

  // From now on List shows what is there now, whatever happens.
  Status FreezeLists() EXCLUDES(mu_);
  int requests() const { return requests_; }

  StatusOr<ObjectInfo> Head(const std::string& key) override;
  StatusOr<ObjectInfo> Get(const std::string& key, ByteRange range, const Sink& sink) override;
  Status Put(const std::string& key, std::string_view bytes,
             const PutOptions& options = {}) override;
  StatusOr<std::unique_ptr<MultipartUpload>> Begin(const std::string& key,
                                                   int64_t part_bytes) override;
  StatusOr<ListPage> List(const std::string& prefix, const std::string& token) override
      EXCLUDES(mu_);
  Status Delete(const std::string& key) override;
  Status Copy(const std::string& from, const std::string& to) override;
  Status AbortUploads(const std::string& prefix, WallTime before) override {
    return inner_->AbortUploads(prefix, before);
  }

 private:
  class Upload;

  Fault Next(const char* operation, const std::string& key);
  // Does `work` unless the fault comes before it.
  Status Run(const char* operation, const std::string& key, const std::function<Status()>& work);

  ObjectStore* const inner_;
  const FaultPlan plan_;
  std::atomic<int> requests_{0};
  Mutex mu_;
  std::optional<std::vector<ObjectInfo>> frozen_ GUARDED_BY(mu_);
};

}  // namespace torpor::objstore
