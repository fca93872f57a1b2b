#pragma once
// Object storage: keys to bytes, whole objects only, no directories.
//
//   ASSIGN_OR_RETURN(Place at, stores.Resolve("file:///var/lib/torpor/store/a/b"));   // registry.h
//   RETURN_IF_ERROR(at.store->Put(at.key + "/manifest.json", text, {.if_absent = true}));
//
// A key is a clean relative path (IsObjectKey). A reader sees an old or a new object, never a part
// of one; an object that Put, Complete or Copy acknowledged survives a power cut. All methods are
// thread-safe and block; sizes and offsets are bytes.
//
// Errors, the same from every backend (contract/):
//   NOT_FOUND               there is no such object
//   FAILED_PRECONDITION     if_absent, and the object exists
//   INVALID_ARGUMENT        the key, range or part breaks a rule stated here
//   PERMISSION_DENIED STORE_DENIED, RESOURCE_EXHAUSTED (DISK_FULL or RATE_LIMITED),
//   UNAVAILABLE OBJECT_STORAGE_UNAVAILABLE (repeat later), DATA_LOSS (the store lost or cut bytes)
// Messages name the key, never credentials or a path outside the store.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::objstore {

// A part of a multipart upload but the last has at least this many bytes; the smallest that every
// store of the field takes (S3 and GCS: 5 MiB, 10,000 parts).
inline constexpr int64_t kPartBytesMin = 5 << 20;
inline constexpr int kPartsMax = 10000;
inline constexpr int kListMax = 1000;  // objects per page

// 'a/b/c', at most 1024 bytes, each component of A-Za-z0-9 and ._-~+=,:@ and not beginning with
// '.'.
bool IsObjectKey(std::string_view key);

struct ObjectInfo {
  std::string key;
  int64_t bytes = 0;
};

struct ByteRange {
  int64_t offset = 0;
  int64_t length = -1;  // -1 = to the end; a range is cut at the end of the object
};

struct PutOptions {
  bool if_absent = false;  // FAILED_PRECONDITION when the object exists; exact under races
};

struct ListPage {
  std::vector<ObjectInfo> objects;  // in the order of their keys
  std::string next_token;           // empty = this was the last page
};

// Takes the bytes of an object piece by piece; an error ends the Get with that error.
using Sink = std::function<Status(std::string_view piece)>;

// A multipart upload. Nothing is visible before Complete; destruction without it aborts. PutPart
// may be called from several threads for different numbers.
class MultipartUpload {
 public:
  virtual ~MultipartUpload() = default;
  // `number` from 1 to kPartsMax; every part but the last has exactly the part size of Begin.
  virtual Status PutPart(int number, std::string_view bytes) = 0;
  // INVALID_ARGUMENT unless parts 1..n are there. Replaces an object of that key: Cloud Storage has
  // no condition here. Called once, after all PutParts.
  virtual Status Complete() = 0;
  // Idempotent; removes what was sent. No PutPart is under way; PutPart and Complete after it are
  // INVALID_ARGUMENT.
  virtual void Abort() = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual StatusOr<ObjectInfo> Head(const std::string& key) = 0;
  // Streams the range into `sink` and says how large the whole object is. An offset behind the end
  // is INVALID_ARGUMENT; one at the end yields no bytes.
  virtual StatusOr<ObjectInfo> Get(const std::string& key, ByteRange range, const Sink& sink) = 0;
  virtual Status Put(const std::string& key, std::string_view bytes,
                     const PutOptions& options = {}) = 0;
  // part_bytes >= kPartBytesMin.
  virtual StatusOr<std::unique_ptr<MultipartUpload>> Begin(const std::string& key,
                                                           int64_t part_bytes) = 0;
  // Objects whose key begins with `prefix` + '/' (empty prefix: all), after `token` of the page
  // before. Only for finding garbage: a list may be stale, correctness never rests on it.
  virtual StatusOr<ListPage> List(const std::string& prefix, const std::string& token) = 0;
  virtual Status Delete(const std::string& key) = 0;  // OK also when there was nothing
  virtual Status Copy(const std::string& from, const std::string& to) = 0;  // inside this store
  // Ends uploads below `prefix` that were begun before `before` and neither completed nor aborted:
  // what writers left that died. Some may stay until the next call.
  virtual Status AbortUploads(const std::string& prefix, WallTime before) = 0;
};

// The whole object, at most `bytes_max` (more is DATA_LOSS, and is not read).
StatusOr<std::string> ReadAll(ObjectStore& store, const std::string& key, int64_t bytes_max);
// All objects below `prefix`, at most `objects_max` (more is RESOURCE_EXHAUSTED).
StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store, const std::string& prefix,
                                          size_t objects_max);

}  // namespace torpor::objstore
