#include "apps/run_as.h"

#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/process/process.h"

namespace torpor {
namespace {

Status RunUseradd(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv{"useradd", "--system", "--no-create-home", "--shell",
                                "/usr/sbin/nologin"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  os::CommandOptions options;
  options.deadline = Clock::Real()->Now() + std::chrono::seconds(20);
  return os::CommandOutput(argv, options).status();
}

}  // namespace

StatusOr<UserIds> LookUpUser(const std::string& name) {
  passwd entry;
  passwd* found = nullptr;
  std::vector<char> buffer(16384);
  int error = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (error != 0) return ErrnoStatus(error, "look up user " + name);
  if (found == nullptr) {
    return Error(Code::kNotFound, "INTERNAL",
                 fmt::format("there is no user '{}'; torpor up makes it when run as root", name));
  }
  return UserIds{found->pw_uid, found->pw_gid};
}

Status MakeUsers() {
  if (!LookUpUser(kControlUser).ok()) {
    RETURN_IF_ERROR(RunUseradd({"--user-group", kControlUser}));
  }
  if (!LookUpUser(kMoverUser).ok()) {
    RETURN_IF_ERROR(RunUseradd({"--user-group", "--groups", kControlUser, kMoverUser}));
  }
  return OkStatus();
}

Status BecomeUser(const std::string& name) {
  ASSIGN_OR_RETURN(UserIds ids, LookUpUser(name));
  if (ids.uid == geteuid()) return OkStatus();
  if (initgroups(name.c_str(), ids.gid) != 0) return ErrnoStatus(errno, "initgroups " + name);
  if (setresgid(ids.gid, ids.gid, ids.gid) != 0) return ErrnoStatus(errno, "setresgid " + name);
  if (setresuid(ids.uid, ids.uid, ids.uid) != 0) return ErrnoStatus(errno, "setresuid " + name);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return OkStatus();
}

}  // namespace torpor
