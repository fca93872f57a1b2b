#include "objstore/faulty/faulty_store.h"

#include "model/reasons.h"

namespace torpor::objstore {
namespace {

Status Before(Fault fault) {
  if (fault == Fault::kRefused) return Fail(reasons::kObjectStorageUnavailable, "refused");
  if (fault == Fault::kThrottled) return Fail(reasons::kRateLimited, "too many requests");
  return OkStatus();
}

Status After(Fault fault) {
  if (fault != Fault::kLostAnswer) return OkStatus();
  return Fail(reasons::kObjectStorageUnavailable, "the answer was lost");
}

}  // namespace

class FaultyStore::Upload : public MultipartUpload {
 public:
  Upload(FaultyStore* store, std::string key, std::unique_ptr<MultipartUpload> inner)
      : store_(store), key_(std::move(key)), inner_(std::move(inner)) {}
  Status PutPart(int number, std::string_view bytes) override {
    return store_->Run("PutPart", key_, [&] { return inner_->PutPart(number, bytes); });
  }
  Status Complete() override {
    return store_->Run("Complete", key_, [&] { return inner_->Complete(); });
  }
  void Abort() override { inner_->Abort(); }

 private:
  FaultyStore* const store_;
  const std::string key_;
  const std::unique_ptr<MultipartUpload> inner_;
};

Fault FaultyStore::Next(const char* operation, const std::string& key) {
  return plan_({operation, key, requests_++});
}

Status FaultyStore::Run(const char* operation, const std::string& key,
                        const std::function<Status()>& work) {
  const Fault fault = Next(operation, key);
  RETURN_IF_ERROR(Before(fault));
  RETURN_IF_ERROR(work());
  return After(fault);
}

Status FaultyStore::FreezeLists() {
  ASSIGN_OR_RETURN(std::vector<ObjectInfo> all, ListAll(*inner_, "", 1 << 20));
  MutexLock lock(&mu_);
  frozen_ = std::move(all);
  return OkStatus();
}

StatusOr<ObjectInfo> FaultyStore::Head(const std::string& key) {
  StatusOr<ObjectInfo> info;
  RETURN_IF_ERROR(Run("Head", key, [&] {
    info = inner_->Head(key);
    return info.status();
  }));
  return info;
}

StatusOr<ObjectInfo> FaultyStore::Get(const std::string& key, ByteRange range, const Sink& sink) {
  const Fault fault = Next("Get", key);
  RETURN_IF_ERROR(Before(fault));
  std::string bytes;
  ASSIGN_OR_RETURN(ObjectInfo info, inner_->Get(key, range, [&](std::string_view piece) {
    bytes.append(piece);
    return OkStatus();
  }));
  if (fault == Fault::kCutBody) bytes.resize(bytes.size() / 2);
  if (fault == Fault::kFlippedBit && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
  if (!bytes.empty()) RETURN_IF_ERROR(sink(bytes));
  RETURN_IF_ERROR(After(fault));
  return info;
}

Status FaultyStore::Put(const std::string& key, std::string_view bytes, const PutOptions& options) {
  return Run("Put", key, [&] { return inner_->Put(key, bytes, options); });
}

StatusOr<std::unique_ptr<MultipartUpload>> FaultyStore::Begin(const std::string& key,
                                                              int64_t part_bytes) {
  std::unique_ptr<MultipartUpload> upload;
  RETURN_IF_ERROR(Run("Begin", key, [&]() -> Status {
    ASSIGN_OR_RETURN(upload, inner_->Begin(key, part_bytes));
    return OkStatus();
  }));
  return std::unique_ptr<MultipartUpload>(std::make_unique<Upload>(this, key, std::move(upload)));
}

StatusOr<ListPage> FaultyStore::List(const std::string& prefix, const std::string& token) {
  ListPage page;
  RETURN_IF_ERROR(Run("List", prefix, [&]() -> Status {
    ASSIGN_OR_RETURN(page, inner_->List(prefix, token));
    return OkStatus();
  }));
  MutexLock lock(&mu_);
  if (!frozen_.has_value()) return page;
  page = {};
  for (const ObjectInfo& info : *frozen_) {
    if (prefix.empty() || info.key.rfind(prefix + "/", 0) == 0) page.objects.push_back(info);
  }
  return page;
}

Status FaultyStore::Delete(const std::string& key) {
  return Run("Delete", key, [&] { return inner_->Delete(key); });
}

Status FaultyStore::Copy(const std::string& from, const std::string& to) {
  return Run("Copy", from, [&] { return inner_->Copy(from, to); });
}

}  // namespace torpor::objstore
