#pragma once
// A power cut for tests: what reaches the disk is what was flushed, and nothing else.
//
// Linking this replaces fsync, fdatasync and syncfs of the whole test program. While a PowerCut
// exists they write nothing to a disk but record, for its directory and all below it, what the
// flushed file or directory held at that moment. After() makes the tree that a machine would find
// after losing its power now: directories with the entries of their last flush, files with the
// bytes of theirs, empty if they had none. That is harsher than any file system.
//
// A flush that FailFlush chose returns EIO and, as a kernel does, forgets what was dirty: the same
// file flushed again succeeds and still has nothing on the disk.

#include <sys/types.h>

#include <map>
#include <set>
#include <string>

#include "base/sync.h"
#include "base/unique_fd.h"

namespace torpor::os {

class PowerCut {
 public:
  // What lies in `root` now counts as flushed. One at a time.
  explicit PowerCut(std::string root);
  ~PowerCut();
  PowerCut(const PowerCut&) = delete;
  PowerCut& operator=(const PowerCut&) = delete;

  // The nth flush from now on, counted from 1, fails.
  void FailFlush(int nth) EXCLUDES(mu_);
  int flushes() const EXCLUDES(mu_);  // since construction, failed ones too
  // The tree after the cut, in the new directory `target`.
  void After(const std::string& target) const EXCLUDES(mu_);

  // What the replaced functions call: 0 or an errno.
  int Flushed(int fd) EXCLUDES(mu_);
  int FlushedAll() EXCLUDES(mu_);

 private:
  struct Entry {
    ino_t inode = 0;
    bool directory = false;
  };
  void RecordTree(const std::string& path) REQUIRES(mu_);
  void RecordDirectory(const std::string& path) REQUIRES(mu_);
  void RecordFile(const std::string& path, ino_t inode) REQUIRES(mu_);
  void Hold(const std::string& path, ino_t inode) REQUIRES(mu_);
  bool TakeFailure() REQUIRES(mu_);
  void Make(ino_t directory, const std::string& target) const REQUIRES(mu_);

  const std::string root_;
  mutable Mutex mu_;
  ino_t root_inode_ = 0;
  int flushes_ GUARDED_BY(mu_) = 0;
  int fail_at_ GUARDED_BY(mu_) = 0;
  std::map<ino_t, std::map<std::string, Entry>> directories_ GUARDED_BY(mu_);
  std::map<ino_t, std::string> files_ GUARDED_BY(mu_);
  std::set<ino_t> lost_ GUARDED_BY(mu_);  // files whose flush failed
  // Open, so that no new file gets the inode number of one that was removed.
  std::map<ino_t, UniqueFd> held_ GUARDED_BY(mu_);
};

}  // namespace torpor::os
