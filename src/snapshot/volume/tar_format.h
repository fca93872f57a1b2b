#pragma once
// One entry of a pax archive as bytes: no files here. Pure.

#include <array>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace torpor::snapshot::tar {

inline constexpr size_t kBlock = 512;
inline constexpr size_t kPathMax = 4000;  // PATH_MAX with room for our own prefix
inline constexpr size_t kNameMax = 255;
inline constexpr size_t kPaxBytesMax = 1 << 20;  // records of one entry
inline constexpr size_t kExtentsMax = 1 << 18;
inline constexpr int64_t kEntriesMax = 1 << 22;
inline constexpr int64_t kFileBytesMax = int64_t{1} << 42;

enum class Type : char {
  kFile = '0',
  kHardLink = '1',
  kSymlink = '2',
  kDirectory = '5',
  kPax = 'x',
};

struct Extent {
  int64_t offset = 0;
  int64_t length = 0;
};

struct Entry {
  Type type = Type::kFile;
  std::string path;  // "." for the volume itself, else clean and relative
  std::string link;  // of links
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  timespec mtime = {};
  int64_t size = 0;                           // of a file as its reader sees it
  bool sparse = false;                        // then the data begin with a map of extents
  int64_t stored = 0;                         // bytes of data that follow, without padding
  std::map<std::string, std::string> xattrs;  // with "user."
};

// "." or a path of components that are neither empty nor "." nor "..", within the limits.
bool IsEntryPath(std::string_view path);
// Its directory: "." for one at the top.
std::string_view ParentOf(std::string_view path);

// Bytes to the next block.
inline size_t PaddingOf(int64_t bytes) {
  return static_cast<size_t>((kBlock - static_cast<size_t>(bytes) % kBlock) % kBlock);
}

// Extended header and header. FAILED_PRECONDITION when a limit is exceeded.
StatusOr<std::string> FormatEntry(const Entry& entry);
// The map before a sparse file's data, padded.
std::string FormatMap(const std::vector<Extent>& extents);

// A header block as it lies in the archive.
struct Header {
  Type type = Type::kFile;
  int64_t size = 0;  // of the data that follow
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t mtime = 0;
  std::string path, link;
};
// Null for a block of zeros. DATA_LOSS SNAPSHOT_CORRUPT.
StatusOr<std::optional<Header>> ParseHeader(std::string_view block);
// The entry of `header` with what the records of its extended header say.
StatusOr<Entry> ParseEntry(const Header& header, std::string_view pax);
// The next number of a map and its end of line; false when there is none.
bool TakeNumber(std::string_view* text, int64_t* number);
// Ascending, apart, inside a file of `size` bytes, as many bytes as `stored` in all.
bool AreExtentsOf(const std::vector<Extent>& extents, int64_t size, int64_t stored);

Status Corrupt(std::string_view what);

}  // namespace torpor::snapshot::tar
