#pragma once
// Checks an object while its bytes pass by, from the first to the last. Belongs to one thread.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz.h"

namespace torpor::snapshot {

class PassingObject {
 public:
  // `index` was checked; `end` is the index frame and the footer as they were read.
  PassingObject(TszIndex index, std::string end) : index_(std::move(index)), end_(std::move(end)) {}

  // DATA_LOSS SNAPSHOT_CORRUPT as soon as a block or the end differs.
  Status Update(std::string_view bytes);
  // Everything was there.
  Status Finish() const;

 private:
  const TszIndex index_;
  const std::string end_;
  size_t block_ = 0;
  int64_t in_block_ = 0;  // bytes of it so far
  size_t in_end_ = 0;
  std::unique_ptr<Sha256> sha_ = std::make_unique<Sha256>();
};

}  // namespace torpor::snapshot
