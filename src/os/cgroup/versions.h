#pragma once
// The two versions of the cgroup tree and what they share. Internal to os/cgroup.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "os/cgroup/cgroup_fs.h"
#include "os/cgroup/cgroup_tree.h"

namespace torpor::os {

StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupV1(
    const std::vector<std::pair<std::string, std::string>>& mounts, const std::string& parent,
    std::shared_ptr<CgroupFs> fs);
StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupV2(const std::string& mount,
                                                   const std::string& parent,
                                                   std::shared_ptr<CgroupFs> fs);

// One path component of A-Za-z0-9._- that does not begin with a dot.
bool IsGroupName(const std::string& name);
// The same, and not the name of a sibling.
Status CheckLeafName(const std::string& name);

// mkdir of each component of `relative` below `base`; existing ones are fine.
Status MakeDirs(CgroupFs& fs, const std::string& base, const std::string& relative);
std::string SiblingOf(const std::string& leaf);
// The leaves of a directory's listing, each once, siblings counted as their leaf.
std::vector<std::string> LeavesOf(const std::vector<std::string>& directories);
// As CgroupTree::Move, for the group at `path`.
StatusOr<bool> JoinGroup(CgroupFs& fs, const std::string& path, pid_t pid);
// mkdir of a group that must be empty.
Status MakeEmptyGroup(CgroupFs& fs, const std::string& path);

// rmdir, OK when it does not exist. The kernel may still be busy for a moment after the last exit.
Status RemoveGroup(CgroupFs& fs, const std::string& path);
// The pids of a cgroup.procs file; empty when there is none.
StatusOr<std::vector<pid_t>> ReadProcesses(CgroupFs& fs, const std::string& procs_file);
// A file with one number; `fallback` when it is missing or no number ("max").
int64_t ReadNumber(CgroupFs& fs, const std::string& path, int64_t fallback);
// A file with lines "key value"; empty when it is missing.
std::map<std::string, int64_t> ReadKeyed(CgroupFs& fs, const std::string& path);
// `avg10` of the line `full` of a pressure file.
std::optional<double> ReadFullPressure(CgroupFs& fs, const std::string& path);

}  // namespace torpor::os
