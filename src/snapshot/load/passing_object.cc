#include "snapshot/load/passing_object.h"

namespace torpor::snapshot {

Status PassingObject::Update(std::string_view bytes) {
  while (!bytes.empty() && block_ < index_.blocks.size()) {
    const TszBlock& block = index_.blocks[block_];
    const size_t n =
        std::min(bytes.size(), static_cast<size_t>(block.compressed_bytes - in_block_));
    sha_->Update(bytes.substr(0, n));
    bytes.remove_prefix(n);
    in_block_ += static_cast<int64_t>(n);
    if (in_block_ < block.compressed_bytes) return OkStatus();
    const std::string digest = sha_->Finish();
    if (digest.compare(0, block.hash.size(), block.hash.data(), block.hash.size()) != 0) {
      return TszCorrupt(block.offset, "the sha256 of the block is not the one in the index");
    }
    sha_ = std::make_unique<Sha256>();
    in_block_ = 0;
    ++block_;
  }
  if (end_.compare(in_end_, bytes.size(), bytes) != 0) {
    return TszCorrupt(static_cast<int64_t>(in_end_),
                      "the end of the object changed while it was read");
  }
  in_end_ += bytes.size();
  return OkStatus();
}

Status PassingObject::Finish() const {
  if (block_ == index_.blocks.size() && in_end_ == end_.size()) return OkStatus();
  return TszCorrupt(0, "the object is cut");
}

}  // namespace torpor::snapshot
