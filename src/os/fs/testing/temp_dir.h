#pragma once
// A directory of its own for one test, removed with the object.

#include <cstdlib>
#include <string>

#include "base/status.h"
#include "os/fs/dir_fd.h"
#include "os/fs/remove.h"

namespace torpor::os {

class TempDir {
 public:
  TempDir() {
    std::string pattern = "/tmp/torpor-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) abort();
    path_ = pattern;
    auto dir = DirFd::OpenPath(path_);
    if (!dir.ok()) abort();
    dir_ = std::move(*dir);
  }
  ~TempDir() {
    auto parent = DirFd::OpenPath("/tmp");
    if (parent.ok()) (void)RemoveTree(*parent, path_.substr(5)).ok();
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  const DirFd& dir() const { return dir_; }

 private:
  std::string path_;
  DirFd dir_;
};

}  // namespace torpor::os
