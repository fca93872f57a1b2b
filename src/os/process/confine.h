#pragma once
// What a child process may do with files: Landlock, which needs no privilege and no mount.
//
//   SpawnOptions options;
//   options.confinement = Confinement{.read = {"/usr", "/srv/blobs"}, .write = {"/srv/tmp/1"}};
//   ASSIGN_OR_RETURN(Process child, Spawn({"umoci", ...}, options));
//
// The child and all that it starts can open, make, link, rename and remove files only below the
// named directories, whatever path leads there; it cannot use TCP, signal processes outside or
// debug them, as far as the kernel's version of Landlock covers it. What Landlock does not cover:
// mode, owner, times and extended attributes of files that a path reaches. Stateless; thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace torpor::os {

struct Confinement {
  // Files and directories to be read and executed; one that does not exist is left out. The program
  // itself and /dev/null need not be named.
  std::vector<std::string> read;
  std::vector<std::string> write;  // directories; everything is allowed below them
};

// The version of Landlock in this kernel; 0 = none, not built in or not switched on.
int LandlockVersion();
// With an older one no program could make a hard link to another directory, as images have them.
inline constexpr int kLandlockMin = 2;

// The bits of linux/landlock.h that a version knows.
struct LandlockRights {
  uint64_t handled = 0;  // denied where no rule allows them
  uint64_t read = 0;
  uint64_t file = 0;  // of `handled`, those that a rule for a file may have
  uint64_t network = 0;
  uint64_t scoped = 0;
};
LandlockRights RightsOf(int version);

// A ruleset for a child that runs `program`, which is searched in PATH as Spawn does. UNIMPLEMENTED
// below kLandlockMin.
StatusOr<UniqueFd> MakeRuleset(const Confinement& confinement, const std::string& program);
// Puts the calling thread, and what it starts, under the ruleset for ever. 0 or an errno.
int EnterRuleset(int ruleset);

}  // namespace torpor::os
