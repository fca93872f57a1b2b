#pragma once
// A directory for one test, removed with it, and files in it.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "base/log.h"
#include "os/fs/dir_fd.h"

namespace torpor::snapshot {

class TempDir {
 public:
  explicit TempDir(const std::string& parent = "/tmp") {
    path_ = parent + "/torpor-snapshot-XXXXXX";
    CHECK(mkdtemp(path_.data()) != nullptr);
    fd_ = std::move(os::DirFd::OpenPath(path_)).value();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  const os::DirFd& fd() const { return fd_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
  os::DirFd fd_;
};

inline void WriteFileTo(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  CHECK(out.good());
}

inline std::string ReadFileFrom(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline std::string RandomBytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::string out(bytes, '\0');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t value = engine();
    memcpy(out.data() + i, &value, 8);
  }
  return out;
}

inline int64_t DiskBytes(const std::string& path) {
  struct stat st;
  CHECK(stat(path.c_str(), &st) == 0);
  return st.st_blocks * 512;
}

}  // namespace torpor::snapshot
