#pragma once
// Objects in memory, for tests: memory://bucket/path. Thread-safe; the objects die with the store.

#include <map>
#include <string>

#include "base/sync.h"
#include "objstore/object_store.h"

namespace torpor::objstore {

class MemoryStore : public ObjectStore {
 public:
  StatusOr<ObjectInfo> Head(const std::string& key) override EXCLUDES(mu_);
  StatusOr<ObjectInfo> Get(const std::string& key, ByteRange range, const Sink& sink) override
      EXCLUDES(mu_);
  Status Put(const std::string& key, std::string_view bytes,
             const PutOptions& options = {}) override EXCLUDES(mu_);
  StatusOr<std::unique_ptr<MultipartUpload>> Begin(const std::string& key,
                                                   int64_t part_bytes) override;
  StatusOr<ListPage> List(const std::string& prefix, const std::string& token) override
      EXCLUDES(mu_);
  Status Delete(const std::string& key) override EXCLUDES(mu_);
  Status Copy(const std::string& from, const std::string& to) override EXCLUDES(mu_);
  Status AbortUploads(const std::string&, WallTime) override { return OkStatus(); }  // die with us

 private:
  using Bytes = std::shared_ptr<const std::string>;  // a reader keeps its version
  StatusOr<Bytes> Find(const std::string& key) EXCLUDES(mu_);

  Mutex mu_;
  std::map<std::string, Bytes> objects_ GUARDED_BY(mu_);
};

}  // namespace torpor::objstore
