#pragma once
// An object that is written as a stream: one Put when it surely fits one part, else parts.
//
// Belongs to one thread. Nothing is visible before Finish; destruction without it leaves nothing.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "objstore/object_store.h"
#include "snapshot/format/manifest.h"
#include "snapshot/format/sha256.h"

namespace torpor::snapshot {

inline constexpr int64_t kUploadPartBytes = 8 << 20;

enum class UploadPath { kSingle, kMultipart };
// The one place that decides. `bound` is the most that the object can have; INVALID_ARGUMENT when
// that needs more parts than a store takes.
StatusOr<UploadPath> PlanUpload(int64_t bound);

class ObjectWriter {
 public:
  ObjectWriter(objstore::ObjectStore* store, std::string key, UploadPath path)
      : store_(store), key_(std::move(key)), path_(path) {}

  // INTERNAL when a single Put was planned and the bytes do not fit it.
  Status Append(std::string_view bytes);
  // Of all that was appended; nothing is appended after it.
  const std::string& FinishSha256();
  // Commits the object; name is not set.
  StatusOr<ManifestObject> Finish();

 private:
  Status SendPart();

  objstore::ObjectStore* const store_;
  const std::string key_;
  const UploadPath path_;
  std::string part_;
  int parts_sent_ = 0;
  int64_t bytes_ = 0;
  Sha256 sha_;
  std::string sha256_;
  std::unique_ptr<objstore::MultipartUpload> upload_;
};

}  // namespace torpor::snapshot
