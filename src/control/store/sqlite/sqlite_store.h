#pragma once
// A Store in one SQLite file: the default of `torpor up`.
//
// WAL. A durable batch is flushed before its Commit returns, at the price of one fsync, so many
// changes should share it. The others are flushed by a thread of the store at most
// Options::flush_after later, outside the lock, so that no commit waits for it. The log is copied
// into the file by the same thread while no commits come, or when it has grown very long; that
// alone holds the lock while it waits for the disk. After a failed flush everything is copied
// before the next commit, because the kernel may have dropped what it could not write.
//
// The file (mode 0600) is locked for this process: a second apiserver on it is refused.
// Thread-safe: one connection, one lock.
//
// Errors: besides those of store.h, Open gives FAILED_PRECONDITION when the file has a newer format
// and UNAVAILABLE STORE_UNAVAILABLE when another process has it.

#include <memory>
#include <string>

#include "control/store/store.h"

namespace torpor::control {

// Maps a result code of SQLite; `what` says what was done. OK for SQLITE_OK, SQLITE_ROW,
// SQLITE_DONE.
Status SqliteStatus(int code, const std::string& what, const std::string& detail);

class SqliteStore {
 public:
  struct Options {
    Duration flush_after = std::chrono::milliseconds(500);
    // For a process that is just being replaced and still has the file.
    Duration lock_wait = std::chrono::seconds(3);
    int checkpoint_pages = 1000;       // of 4 KiB, while no commits come
    int checkpoint_pages_max = 16000;  // in any case
    const char* vfs = nullptr;         // of SQLite; null = the default
  };
  // Makes the file, but not its directory, when it is missing.
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& path) {
    return Open(path, Options());
  }
  static StatusOr<std::unique_ptr<Store>> Open(const std::string& path, const Options& options);
};

}  // namespace torpor::control
