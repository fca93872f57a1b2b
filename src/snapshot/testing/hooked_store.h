#pragma once
// A store in memory whose requests can be watched, held or made to fail. Thread-safe.

#include <atomic>
#include <functional>

#include "objstore/memory/memory_store.h"

namespace torpor::snapshot {

class HookedStore : public objstore::MemoryStore {
 public:
  // Called before the request; an error is its outcome. Set before the store is used.
  std::function<Status(const std::string& key, int number)> on_part;
  std::function<Status(const std::string& key)> on_put;
  std::function<Status(const std::string& key, objstore::ByteRange range)> on_get;
  std::atomic<int> uploads_open{0};
  std::atomic<int> uploads_aborted{0};
  std::atomic<int> puts{0};

  StatusOr<objstore::ObjectInfo> Get(const std::string& key, objstore::ByteRange range,
                                     const objstore::Sink& sink) override {
    if (on_get) RETURN_IF_ERROR(on_get(key, range));
    return MemoryStore::Get(key, range, sink);
  }
  Status Put(const std::string& key, std::string_view bytes,
             const objstore::PutOptions& options = {}) override {
    ++puts;
    if (on_put) RETURN_IF_ERROR(on_put(key));
    return MemoryStore::Put(key, bytes, options);
  }
  StatusOr<std::unique_ptr<objstore::MultipartUpload>> Begin(const std::string& key,
                                                             int64_t part_bytes) override {
    ASSIGN_OR_RETURN(auto upload, MemoryStore::Begin(key, part_bytes));
    ++uploads_open;
    return std::unique_ptr<objstore::MultipartUpload>(
        std::make_unique<Upload>(this, key, std::move(upload)));
  }

 private:
  class Upload : public objstore::MultipartUpload {
   public:
    Upload(HookedStore* store, std::string key, std::unique_ptr<objstore::MultipartUpload> inner)
        : store_(store), key_(std::move(key)), inner_(std::move(inner)) {}
    ~Upload() override {
      if (!completed_) ++store_->uploads_aborted;
      --store_->uploads_open;
    }
    Status PutPart(int number, std::string_view bytes) override {
      if (store_->on_part) RETURN_IF_ERROR(store_->on_part(key_, number));
      return inner_->PutPart(number, bytes);
    }
    Status Complete() override {
      RETURN_IF_ERROR(inner_->Complete());
      completed_ = true;
      return OkStatus();
    }
    void Abort() override { inner_->Abort(); }

   private:
    HookedStore* const store_;
    const std::string key_;
    const std::unique_ptr<objstore::MultipartUpload> inner_;
    bool completed_ = false;
  };
};

}  // namespace torpor::snapshot
