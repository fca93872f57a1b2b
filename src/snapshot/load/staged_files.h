#pragma once
// Files that appear in a directory all together, or not at all.
//
// Each is written under a hidden name and renamed by Commit. Without Commit, destruction removes
// everything that was made, also files that were renamed before a later one failed. Nothing that
// waits at a name is ever followed, opened or replaced. Create may be called from several threads.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/unique_fd.h"
#include "os/fs/dir_fd.h"

namespace torpor::snapshot {

class StagedFiles {
 public:
  // `directory` outlives this.
  explicit StagedFiles(const os::DirFd* directory);
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  // FAILED_PRECONDITION WRONG_STATE when something has the name (IsSnapshotFileName).
  Status CheckFree(const std::string& name) const;
  // An empty file that will be `name`; open for reading and writing.
  StatusOr<UniqueFd> Create(const std::string& name, mode_t mode) EXCLUDES(mu_);
  Status Commit() EXCLUDES(mu_);

 private:
  struct Entry {
    std::string temp;  // empty once it has its name
    std::string name;
  };

  const os::DirFd* const directory_;
  const std::string prefix_;  // of hidden names
  Mutex mu_;
  std::vector<Entry> files_ GUARDED_BY(mu_);
  std::vector<std::string> directories_ GUARDED_BY(mu_);  // made here
  bool committed_ GUARDED_BY(mu_) = false;
};

}  // namespace torpor::snapshot
