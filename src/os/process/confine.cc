#include "os/process/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sstream>

#include <fmt/format.h>

namespace torpor::os {
namespace {

// linux/landlock.h of the newest kernel; that of the build machine may be older.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr uint32_t kAskVersion = 1;
constexpr int kRulePathBeneath = 1;

struct RulesetAttributes {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};
struct __attribute__((packed)) PathBeneath {
  uint64_t allowed_access;
  int32_t parent_fd;
};

constexpr uint64_t Bit(int n) { return uint64_t{1} << n; }
constexpr uint64_t kExecute = Bit(0);
constexpr uint64_t kWriteFile = Bit(1);
constexpr uint64_t kReadFile = Bit(2);
constexpr uint64_t kReadDir = Bit(3);
constexpr uint64_t kFirst = Bit(13) - 1;  // those of version 1, up to making symbolic links
constexpr uint64_t kRefer = Bit(13);      // link and rename to another directory
constexpr uint64_t kTruncate = Bit(14);
constexpr uint64_t kIoctlDevice = Bit(15);
constexpr uint64_t kTcp = Bit(0) | Bit(1);     // bind, connect
constexpr uint64_t kScopes = Bit(0) | Bit(1);  // abstract unix sockets, signals

// Where posix_spawnp finds the program; empty when it does not.
std::string FindProgram(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = folder + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

Status AddRule(int ruleset, const std::string& path, uint64_t allowed,
               const LandlockRights& rights) {
  UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat st = {};
  if (!fd.valid() || fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, path);
  PathBeneath rule{S_ISDIR(st.st_mode) ? allowed : allowed & rights.file, fd.get()};
  if (syscall(kAddRule, ruleset, kRulePathBeneath, &rule, 0) != 0) {
    return ErrnoStatus(errno, fmt::format("landlock_add_rule for {}", path));
  }
  return OkStatus();
}

}  // namespace

int LandlockVersion() {
  long version = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  return version < 0 ? 0 : static_cast<int>(version);
}

LandlockRights RightsOf(int version) {
  LandlockRights rights;
  if (version < 1) return rights;
  rights.handled = kFirst;
  if (version >= 2) rights.handled |= kRefer;
  if (version >= 3) rights.handled |= kTruncate;
  if (version >= 4) rights.network = kTcp;
  if (version >= 5) rights.handled |= kIoctlDevice;
  if (version >= 6) rights.scoped = kScopes;
  rights.read = kExecute | kReadFile | kReadDir;
  rights.file = rights.handled & (kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDevice);
  return rights;
}

StatusOr<UniqueFd> MakeRuleset(const Confinement& confinement, const std::string& program) {
  const int version = LandlockVersion();
  if (version < kLandlockMin) {
    return Error(
        Code::kUnimplemented, "INTERNAL",
        fmt::format("this kernel has version {} of Landlock, {} is needed", version, kLandlockMin));
  }
  const LandlockRights rights = RightsOf(version);
  RulesetAttributes attributes{rights.handled, rights.network, rights.scoped};
  UniqueFd ruleset(static_cast<int>(syscall(kCreateRuleset, &attributes, sizeof attributes, 0)));
  if (!ruleset.valid()) return ErrnoStatus(errno, "landlock_create_ruleset");
  std::vector<std::string> read = confinement.read;
  read.push_back(FindProgram(program));
  for (const std::string& path : read) {
    Status status = AddRule(ruleset.get(), path, rights.read, rights);
    if (!status.ok() && status.code() != Code::kNotFound) return status;
  }
  RETURN_IF_ERROR(AddRule(ruleset.get(), "/dev/null", kReadFile | kWriteFile, rights));
  for (const std::string& path : confinement.write) {
    RETURN_IF_ERROR(AddRule(ruleset.get(), path, rights.handled, rights));
  }
  return ruleset;
}

int EnterRuleset(int ruleset) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return syscall(kRestrictSelf, ruleset, 0) == 0 ? 0 : errno;
}

}  // namespace torpor::os
