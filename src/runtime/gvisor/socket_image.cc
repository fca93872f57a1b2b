#include "runtime/gvisor/socket_image.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "model/reasons.h"
#include "runtime/gvisor/images.h"

namespace torpor::gvisor {
namespace {

constexpr char kPagesMetaFile[] = "pages_meta.img";
constexpr std::array<const char*, 3> kNames = {kStateFile, kPagesMetaFile, kPagesFile};

// Only the pages are large and aligned.
int DirectFlag(size_t file, bool direct) { return direct && file == 2 ? O_DIRECT : 0; }

}  // namespace

bool HasImageFiles(const std::vector<torpor::v1::SnapshotFile>& files) {
  return std::all_of(kNames.begin(), kNames.end(), [&](const char* name) {
    return std::any_of(files.begin(), files.end(),
                       [&](const auto& file) { return file.name() == name; });
  });
}

StatusOr<ImageFiles> OpenImage(const std::string& directory, bool direct) {
  ImageFiles image;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string path = directory + "/" + kNames[i];
    image.files_[i] =
        UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | DirectFlag(i, direct)));
    if (!image.files_[i].valid()) {
      return Fail(reasons::kSnapshotCorrupt,
                  std::string(ErrnoStatus(errno, "open " + path).message()), {{"file", kNames[i]}});
    }
  }
  return image;
}

StatusOr<ImageFiles> CreateImage(const std::string& directory, bool direct) {
  ImageFiles image;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string path = directory + "/" + kNames[i];
    image.files_[i] = UniqueFd(
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | DirectFlag(i, direct), 0600));
    if (!image.files_[i].valid()) return ErrnoStatus(errno, "create " + path);
  }
  return image;
}

}  // namespace torpor::gvisor
