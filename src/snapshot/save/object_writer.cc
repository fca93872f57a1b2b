#include "snapshot/save/object_writer.h"

#include "model/reasons.h"

namespace torpor::snapshot {

StatusOr<UploadPath> PlanUpload(int64_t bound) {
  if (bound <= kUploadPartBytes) return UploadPath::kSingle;
  if (bound <= kUploadPartBytes * objstore::kPartsMax) return UploadPath::kMultipart;
  return Fail(reasons::kFieldInvalid,
              fmt::format("a file that may need {} bytes of object is too large", bound));
}

Status ObjectWriter::Append(std::string_view bytes) {
  sha_.Update(bytes);
  bytes_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    size_t room = static_cast<size_t>(kUploadPartBytes) - part_.size();
    if (room == 0) {
      RETURN_IF_ERROR(SendPart());
      continue;
    }
    part_.append(bytes.substr(0, room));
    bytes.remove_prefix(std::min(room, bytes.size()));
  }
  return OkStatus();
}

Status ObjectWriter::SendPart() {
  if (path_ == UploadPath::kSingle) {
    return Fail(reasons::kInternal, fmt::format("{} does not fit its upload plan", key_));
  }
  if (upload_ == nullptr) {
    ASSIGN_OR_RETURN(upload_, store_->Begin(key_, kUploadPartBytes));
  }
  RETURN_IF_ERROR(upload_->PutPart(++parts_sent_, part_));
  part_.clear();
  return OkStatus();
}

const std::string& ObjectWriter::FinishSha256() {
  if (sha256_.empty()) sha256_ = sha_.FinishHex();
  return sha256_;
}

StatusOr<ManifestObject> ObjectWriter::Finish() {
  if (path_ == UploadPath::kSingle) {
    RETURN_IF_ERROR(store_->Put(key_, part_));
  } else {
    if (!part_.empty() || upload_ == nullptr) RETURN_IF_ERROR(SendPart());
    RETURN_IF_ERROR(upload_->Complete({}));
    upload_.reset();
  }
  return ManifestObject{"", bytes_, FinishSha256()};
}

}  // namespace torpor::snapshot
