#include "objstore/rules.h"

#include "model/reasons.h"

namespace torpor::objstore {
namespace {

Status Bad(std::string_view message) { return Fail(reasons::kFieldInvalid, message); }

}  // namespace

Status CheckKey(const std::string& key) {
  if (IsObjectKey(key)) return OkStatus();
  return Bad("not the key of an object: it needs 1 to 1024 bytes of clean components");
}

Status CheckPartBytes(int64_t part_bytes) {
  if (part_bytes >= kPartBytesMin) return OkStatus();
  return Bad(fmt::format("parts need at least {} bytes", kPartBytesMin));
}

Status CheckListArguments(const std::string& prefix, const std::string& token) {
  if (!prefix.empty()) RETURN_IF_ERROR(CheckKey(prefix));
  if (token.empty()) return OkStatus();
  if (!IsObjectKey(token) || (!prefix.empty() && token.rfind(prefix + "/", 0) != 0)) {
    return Bad("not a page token of this list");
  }
  return OkStatus();
}

Status NoSuchObject(const std::string& key) {
  return Fail(reasons::kGenerationNotFound, fmt::format("object {} does not exist", key));
}

Status ObjectExists(const std::string& key) {
  return Fail(reasons::kWrongState, fmt::format("object {} exists already", key));
}

StatusOr<ByteRange> CutRange(const std::string& key, ByteRange range, int64_t total) {
  if (range.offset < 0 || range.length < -1 || range.offset > total) {
    return Bad(fmt::format("range {}+{} is not inside the {} bytes of {}", range.offset,
                           range.length, total, key));
  }
  int64_t left = total - range.offset;
  return ByteRange{range.offset, range.length < 0 ? left : std::min(range.length, left)};
}

StatusOr<int64_t> PartLedger::Offset(int number, size_t bytes) const {
  {
    MutexLock lock(&mu_);
    if (closed_) return Bad("the upload was aborted");
  }
  if (number < 1 || number > kPartsMax) {
    return Bad(fmt::format("part {} is not in 1..{}", number, kPartsMax));
  }
  if (static_cast<int64_t>(bytes) > part_bytes_) {
    return Bad(fmt::format("part {} has {} bytes, more than {}", number, bytes, part_bytes_));
  }
  return (number - 1) * part_bytes_;
}

void PartLedger::Arrived(int number, size_t bytes) {
  MutexLock lock(&mu_);
  parts_[number] = static_cast<int64_t>(bytes);
}

void PartLedger::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
}

StatusOr<int64_t> PartLedger::Total() const {
  MutexLock lock(&mu_);
  if (closed_) return Bad("the upload was aborted");
  int64_t total = 0;
  int next = 1;
  for (const auto& [number, bytes] : parts_) {
    if (number != next++) return Bad(fmt::format("part {} is missing", next - 1));
    if (number < static_cast<int>(parts_.size()) && bytes != part_bytes_) {
      return Bad(fmt::format("part {} is not the last and has {} bytes", number, bytes));
    }
    total += bytes;
  }
  if (parts_.empty()) return Bad("an upload needs at least one part");
  return total;
}

}  // namespace torpor::objstore
