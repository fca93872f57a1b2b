#pragma once

// Files below the data directory, named by key. Nothing is fsynced: the page cache is part of what
// a snapshot must carry. Thread-safe; all calls wait for each other, so that a digest belongs to
// the content that was just written.

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "workloads/base/digest.h"
#include "workloads/glutton/status.h"

namespace torpor::workloads::glutton {

struct DiskResult {
  uint64_t size = 0;        // bytes in the file, or in all files of the directory
  Sha256::Digest sha256{};  // of all these bytes, files in the order of their names
};

class Disk {
 public:
  explicit Disk(std::string data_dir) : data_dir_(std::move(data_dir)) {}

  // Makes the data directory if it is missing and says whether it can be used.
  Status Open();

  // Writes random bytes. With `file_count` > 1 the key is a directory of that many files, over
  // which `size` is spread evenly. With `keep_tail` bytes beyond `size` stay.
  Status Write(const std::string& key, uint64_t size, uint32_t file_count, bool keep_tail,
               DiskResult* result);

  // Reads a file or the files of a directory; `data` may be null.
  Status Read(const std::string& key, DiskResult* result, std::string* data);

  // Writes or appends the given bytes; sets `size` to that of the file afterwards.
  Status Ingest(const std::string& key, const std::string& payload, bool append, uint64_t* size);

 private:
  Status ReadAll(const std::string& path, DiskResult* result, std::string* data);

  const std::string data_dir_;
  std::mutex mu_;
};

// ^[a-zA-Z0-9_-]+$, at most 255 characters.
bool IsDiskKey(const std::string& key);

}  // namespace torpor::workloads::glutton
