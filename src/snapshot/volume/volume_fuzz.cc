// Whatever bytes an archive has, unpacking writes nothing outside its directory, and what it takes
// can be packed again.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/volume/volume.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor;
  static snapshot::TempDir* top = new snapshot::TempDir();
  std::filesystem::create_directory(*top / "in");
  int in = memfd_create("archive", MFD_CLOEXEC);
  CHECK(write(in, data, size) == static_cast<ssize_t>(size));
  CHECK(lseek(in, 0, SEEK_SET) == 0);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  auto root = os::DirFd::OpenPath(*top / "in");
  CHECK(root.ok());
  Status status = snapshot::UnpackVolume(in, *root, deadline);
  close(in);
  if (status.ok()) {
    int out = memfd_create("again", MFD_CLOEXEC);
    CHECK(snapshot::PackVolume(*root, out, deadline).ok());
    close(out);
  }
  CHECK(top->Entries() == 1);  // nothing beside "in"
  std::filesystem::remove_all(*top / "in");
  return 0;
}
