#pragma once
// Rules that every backend applies before it does anything, so that they cannot differ. Pure
// functions, and a ledger of the parts of one upload.

#include <map>
#include <string>

#include "base/status.h"
#include "base/sync.h"
#include "objstore/object_store.h"

namespace torpor::objstore {

Status CheckKey(const std::string& key);
Status CheckPartBytes(int64_t part_bytes);
Status CheckListArguments(const std::string& prefix, const std::string& token);
Status NoSuchObject(const std::string& key);
Status ObjectExists(const std::string& key);

// The part of an object of `total` bytes that `range` asks for: {offset, length}.
StatusOr<ByteRange> CutRange(const std::string& key, ByteRange range, int64_t total);

// Which parts of an upload have arrived. Thread-safe.
class PartLedger {
 public:
  explicit PartLedger(int64_t part_bytes) : part_bytes_(part_bytes) {}
  // The offset of the part in the object. INVALID_ARGUMENT also after Close, as from Total.
  StatusOr<int64_t> Offset(int number, size_t bytes) const EXCLUDES(mu_);
  void Arrived(int number, size_t bytes) EXCLUDES(mu_);
  // The size of the object, when parts 1..n are there and all but the last are full.
  StatusOr<int64_t> Total() const EXCLUDES(mu_);
  // The upload was aborted.
  void Close() EXCLUDES(mu_);

 private:
  const int64_t part_bytes_;
  mutable Mutex mu_;
  std::map<int, int64_t> parts_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace torpor::objstore
