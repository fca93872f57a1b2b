#include "runtime/gvisor/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

namespace torpor::gvisor {
namespace {

// Standard error belongs to the container; whoever started us reads the log.
const char* log_path = nullptr;

int Fail(const char* what, const char* object) {
  int error = errno;
  int fd = 2;
  if (log_path != nullptr) fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dprintf(fd < 0 ? 2 : fd, "torpor-enter: %s %s: %s\n", what, object, strerror(error));
  return kEnterFailed;
}

int Usage() {
  dprintf(2,
          "usage: torpor-enter [--log FILE] [--procs FILE]... [--netns PATH] [--hide-net-core] -- "
          "PROGRAM ...\n");
  return kEnterFailed;
}

bool JoinCgroup(const char* procs_file) {
  int fd = open(procs_file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool joined = write(fd, "0", 1) == 1;  // 0 = the writing process
  int error = errno;
  close(fd);
  errno = error;
  return joined;
}

bool JoinNetns(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool joined = setns(fd, CLONE_NEWNET) == 0;
  int error = errno;
  close(fd);
  errno = error;
  return joined;
}

}  // namespace

int Enter(char** arguments) {
  const char* netns = nullptr;
  bool hide_net_core = false;
  // Cgroups are joined first, so that everything below is already charged to them.
  for (; *arguments != nullptr && strcmp(*arguments, "--") != 0; ++arguments) {
    if (strcmp(*arguments, "--hide-net-core") == 0) {
      hide_net_core = true;
    } else if (strcmp(*arguments, "--netns") == 0 && arguments[1] != nullptr) {
      netns = *++arguments;
    } else if (strcmp(*arguments, "--log") == 0 && arguments[1] != nullptr) {
      log_path = *++arguments;
    } else if (strcmp(*arguments, "--procs") == 0 && arguments[1] != nullptr) {
      if (!JoinCgroup(*++arguments)) return Fail("join cgroup", *arguments);
    } else {
      return Usage();
    }
  }
  if (*arguments == nullptr || arguments[1] == nullptr) return Usage();
  char** program = arguments + 1;

  if (netns != nullptr && !JoinNetns(netns)) return Fail("enter network namespace", netns);
  if (unshare(CLONE_NEWNS) != 0) return Fail("unshare", "mount namespace");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return Fail("mount", "/");
  // After setns: this directory belongs to the network namespace of the process that looks at it.
  if (hide_net_core && mount("none", "/proc/sys/net/core", "tmpfs", MS_RDONLY, "size=4k") != 0) {
    return Fail("mount", "/proc/sys/net/core");
  }
  execv(program[0], program);
  return Fail("execute", program[0]);
}

}  // namespace torpor::gvisor
