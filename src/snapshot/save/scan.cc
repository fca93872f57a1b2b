#include "snapshot/save/scan.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace torpor::snapshot {
namespace {

constexpr int64_t kGapBytes = 64 << 10;
// The gap that is closed doubles with so many ranges, so that no file has more of them than an
// index can name.
constexpr int64_t kRangesPerDoubling = 256 << 10;

}  // namespace

StatusOr<int64_t> Scanner::Seek(int64_t from, int whence) const {
  if (from >= bytes_) return bytes_;
  const off_t at = lseek(fd_, from, whence);
  if (at >= 0) return std::min<int64_t>(at, bytes_);
  if (errno == ENXIO) return bytes_;  // nothing but a hole up to the end
  return ErrnoStatus(errno, "lseek");
}

StatusOr<FileRange> Scanner::Next() {
  if (next_data_ < 0) {
    ASSIGN_OR_RETURN(next_data_, Seek(0, SEEK_DATA));
  }
  FileRange range{next_data_, 0};
  if (next_data_ == bytes_) return range;
  const int64_t gap = kGapBytes << std::min<int64_t>(ranges_ / kRangesPerDoubling, 20);
  int64_t end = next_data_;
  do {
    ASSIGN_OR_RETURN(end, Seek(next_data_, SEEK_HOLE));
    ASSIGN_OR_RETURN(next_data_, Seek(end, SEEK_DATA));
  } while (next_data_ < bytes_ && next_data_ - end < gap);
  range.length = end - range.offset;
  ++ranges_;
  return range;
}

StatusOr<ScanTotals> ScanFile(int fd, int64_t bytes, const Transfer& transfer) {
  Scanner scanner(fd, bytes);
  ScanTotals totals;
  for (;;) {
    if (totals.ranges % 1024 == 0) RETURN_IF_ERROR(transfer.Check());
    ASSIGN_OR_RETURN(FileRange range, scanner.Next());
    if (range.length == 0) return totals;
    totals.bytes += range.length;
    ++totals.ranges;
  }
}

}  // namespace torpor::snapshot
