#pragma once
// The files of a memory image as the control socket wants them: opened by us, passed as
// descriptors.

#include <array>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "torpor/v1/common.pb.h"

namespace torpor::gvisor {

class ImageFiles {
 public:
  // State, meta data of the pages, pages: the order of the calls.
  std::vector<int> fds() const { return {files_[0].get(), files_[1].get(), files_[2].get()}; }

 private:
  friend StatusOr<ImageFiles> OpenImage(const std::string& directory, bool direct);
  friend StatusOr<ImageFiles> CreateImage(const std::string& directory, bool direct);
  std::array<UniqueFd, 3> files_;
};

// Whether `files` are such an image: nothing missing.
bool HasImageFiles(const std::vector<torpor::v1::SnapshotFile>& files);
// To be read; the pages past the page cache if `direct`. DATA_LOSS SNAPSHOT_CORRUPT names the file.
StatusOr<ImageFiles> OpenImage(const std::string& directory, bool direct);
// New and empty, to be written; they must not exist.
StatusOr<ImageFiles> CreateImage(const std::string& directory, bool direct);

}  // namespace torpor::gvisor
