#include "objstore/memory/memory_store.h"

#include "objstore/rules.h"

namespace torpor::objstore {
namespace {

class MemoryUpload : public MultipartUpload {
 public:
  MemoryUpload(MemoryStore* store, std::string key, int64_t part_bytes)
      : store_(store), key_(std::move(key)), ledger_(part_bytes) {}

  Status PutPart(int number, std::string_view bytes) override {
    ASSIGN_OR_RETURN(int64_t offset, ledger_.Offset(number, bytes.size()));
    {
      MutexLock lock(&mu_);
      size_t end = static_cast<size_t>(offset) + bytes.size();
      if (bytes_.size() < end) bytes_.resize(end);
      bytes_.replace(static_cast<size_t>(offset), bytes.size(), bytes);
    }
    ledger_.Arrived(number, bytes.size());
    return OkStatus();
  }

  Status Complete() override {
    ASSIGN_OR_RETURN(int64_t total, ledger_.Total());
    MutexLock lock(&mu_);
    return store_->Put(key_, std::string_view(bytes_).substr(0, static_cast<size_t>(total)));
  }

  void Abort() override {
    ledger_.Close();
    MutexLock lock(&mu_);
    bytes_.clear();
  }

 private:
  MemoryStore* const store_;
  const std::string key_;
  PartLedger ledger_;
  Mutex mu_;
  std::string bytes_ GUARDED_BY(mu_);
};

}  // namespace

StatusOr<MemoryStore::Bytes> MemoryStore::Find(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(key));
  MutexLock lock(&mu_);
  auto it = objects_.find(key);
  if (it == objects_.end()) return NoSuchObject(key);
  return it->second;
}

StatusOr<ObjectInfo> MemoryStore::Head(const std::string& key) {
  ASSIGN_OR_RETURN(Bytes bytes, Find(key));
  return ObjectInfo{key, static_cast<int64_t>(bytes->size())};
}

StatusOr<ObjectInfo> MemoryStore::Get(const std::string& key, ByteRange range, const Sink& sink) {
  ASSIGN_OR_RETURN(Bytes bytes, Find(key));
  const int64_t total = static_cast<int64_t>(bytes->size());
  ASSIGN_OR_RETURN(ByteRange cut, CutRange(key, range, total));
  if (cut.length > 0) {
    RETURN_IF_ERROR(sink(std::string_view(*bytes).substr(static_cast<size_t>(cut.offset),
                                                         static_cast<size_t>(cut.length))));
  }
  return ObjectInfo{key, total};
}

Status MemoryStore::Put(const std::string& key, std::string_view bytes, const PutOptions& options) {
  RETURN_IF_ERROR(CheckKey(key));
  auto value = std::make_shared<const std::string>(bytes);
  MutexLock lock(&mu_);
  if (options.if_absent && objects_.count(key) > 0) return ObjectExists(key);
  objects_[key] = std::move(value);
  return OkStatus();
}

StatusOr<std::unique_ptr<MultipartUpload>> MemoryStore::Begin(const std::string& key,
                                                              int64_t part_bytes) {
  RETURN_IF_ERROR(CheckKey(key));
  RETURN_IF_ERROR(CheckPartBytes(part_bytes));
  return std::unique_ptr<MultipartUpload>(std::make_unique<MemoryUpload>(this, key, part_bytes));
}

StatusOr<ListPage> MemoryStore::List(const std::string& prefix, const std::string& token) {
  RETURN_IF_ERROR(CheckListArguments(prefix, token));
  const std::string begin = prefix.empty() ? "" : prefix + "/";
  ListPage page;
  MutexLock lock(&mu_);
  auto it = token.empty() ? objects_.lower_bound(begin) : objects_.upper_bound(token);
  for (; it != objects_.end() && it->first.rfind(begin, 0) == 0; ++it) {
    if (page.objects.size() == kListMax) {
      page.next_token = page.objects.back().key;
      break;
    }
    page.objects.push_back({it->first, static_cast<int64_t>(it->second->size())});
  }
  return page;
}

Status MemoryStore::Delete(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(key));
  MutexLock lock(&mu_);
  objects_.erase(key);
  return OkStatus();
}

Status MemoryStore::Copy(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckKey(to));
  ASSIGN_OR_RETURN(Bytes bytes, Find(from));
  MutexLock lock(&mu_);
  objects_[to] = std::move(bytes);
  return OkStatus();
}

}  // namespace torpor::objstore
