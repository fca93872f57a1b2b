#pragma once
// Removal of directory trees that a guest may have filled.
//
// Never crosses a mount (RESOLVE_NO_XDEV), never follows a link, needs a bounded number of
// descriptors and no recursion deeper than a constant however deep the tree is. Large trees are
// removed in two phases: Retire renames (the fast part, on the caller's path), SweepRetired removes
// later, also what a killed process left. Functions are thread-safe for different trees.

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"
#include "os/fs/dir_fd.h"

namespace torpor::os {

// Prefix of what is being removed: .rm-<what>-<ns>
inline constexpr char kRetiredPrefix[] = ".rm-";

// Removes `name` (one component of `parent`), whatever it is. A missing name is OK. Goes on after
// errors and returns the first: UNAVAILABLE VOLUME_BUSY when a mount was met (it and the
// directories above it stay).
Status RemoveTree(const DirFd& parent, std::string_view name);

// Renames `name` to .rm-<name>-<ns> in the same directory; a missing name is OK.
Status Retire(const DirFd& parent, std::string_view name, WallTime now);

// Removes everything below `parent` that was retired. Goes on after errors, returns the first.
Status SweepRetired(const DirFd& parent);

}  // namespace torpor::os
