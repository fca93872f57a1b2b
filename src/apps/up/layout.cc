#include "apps/up/layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/run_as.h"
#include "base/uuid.h"
#include "os/fs/dir_fd.h"

namespace torpor::up {
namespace {

// Roles that are not root must be able to walk to the data directory.
Status CheckReachable(const std::string& dir) {
  for (size_t slash = dir.find('/', 1); slash != std::string::npos;
       slash = dir.find('/', slash + 1)) {
    std::string parent = dir.substr(0, slash);
    struct stat st;
    if (stat(parent.c_str(), &st) != 0) break;  // made below, open to all
    if ((st.st_mode & S_IXOTH) == 0) {
      return Error(Code::kPermissionDenied, "NOT_ALLOWED",
                   fmt::format("user '{}' cannot pass {} (mode {:o}); choose another --dir or run "
                               "chmod o+x {}",
                               kControlUser, parent, st.st_mode & 07777, parent));
    }
  }
  return OkStatus();
}

Status MakeParents(const std::string& dir) {
  for (size_t slash = dir.find('/', 1); slash != std::string::npos;
       slash = dir.find('/', slash + 1)) {
    if (mkdir(dir.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, "mkdir " + dir.substr(0, slash));
    }
  }
  if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, "mkdir " + dir);
  return OkStatus();
}

}  // namespace

Status MakeLayout(const Layout& layout) {
  RETURN_IF_ERROR(CheckReachable(layout.dir));
  RETURN_IF_ERROR(MakeParents(layout.dir));
  ASSIGN_OR_RETURN(UserIds control, LookUpUser(kControlUser));
  ASSIGN_OR_RETURN(UserIds mover, LookUpUser(kMoverUser));
  ASSIGN_OR_RETURN(os::DirFd dir, os::DirFd::OpenPath(layout.dir));
  const os::Ownership root{0, 0};
  const os::Ownership as_control{control.uid, control.gid};
  RETURN_IF_ERROR(os::SetOwnerAndMode(dir.fd(), root, 0755));
  RETURN_IF_ERROR(dir.MkdirOrOpen("run", 0755, as_control).status());
  RETURN_IF_ERROR(dir.MkdirOrOpen("control", 0700, as_control).status());
  // The mover writes snapshots, the apiserver copies and deletes them: one group, kept by setgid.
  RETURN_IF_ERROR(dir.MkdirOrOpen("store", 02770, {mover.uid, control.gid}).status());
  RETURN_IF_ERROR(dir.MkdirOrOpen("node", 0755, root).status());
  RETURN_IF_ERROR(dir.MkdirOrOpen("images", 0755, root).status());
  RETURN_IF_ERROR(dir.MkdirOrOpen("logs", 0750, root).status());
  if (!dir.Exists("token")) {
    RETURN_IF_ERROR(dir.DurableWrite("token", RandomHex(32) + "\n", 0600, as_control));
  }
  return OkStatus();
}

}  // namespace torpor::up
