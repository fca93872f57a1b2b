#pragma once
// Where a sparse file has data, found by SEEK_DATA and SEEK_HOLE.
//
// Neighbours closer than 64 KiB count as one range, since reading a little more is cheaper than
// another pair of calls; the zeros between them are dropped later. The time follows the data, not
// the size. Belongs to one thread.

#include <cstdint>

#include "base/status.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct FileRange {
  int64_t offset = 0;
  int64_t length = 0;
};

class Scanner {
 public:
  // `fd` is a regular file of `bytes`, and outlives the scanner.
  Scanner(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}
  // The next range with data; length 0 = there is none.
  StatusOr<FileRange> Next();

 private:
  StatusOr<int64_t> Seek(int64_t from, int whence) const;

  const int fd_;
  const int64_t bytes_;
  int64_t next_data_ = -1;  // -1 = not looked for yet
  int64_t ranges_ = 0;
};

struct ScanTotals {
  int64_t bytes = 0;
  int64_t ranges = 0;
};
// All ranges of a file added up. Errors: those of lseek and of transfer.Check().
StatusOr<ScanTotals> ScanFile(int fd, int64_t bytes, const Transfer& transfer);

}  // namespace torpor::snapshot
