#include "os/cgroup/cgroup_tree.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "os/cgroup/cgroup_fs.h"
#include "os/cgroup/versions.h"

namespace torpor::os {
namespace {

// A path of clean components, none of which could leave the tree.
bool IsParent(const std::string& parent) {
  std::istringstream parts(parent);
  bool any = false;
  for (std::string part; std::getline(parts, part, '/'); any = true) {
    if (!IsGroupName(part)) return false;
  }
  return any;
}

bool HasWords(const std::string& text, const std::vector<std::string>& wanted) {
  for (const std::string& word : wanted) {
    std::istringstream words(text);
    bool found = false;
    for (std::string w; words >> w;) found = found || w == word;
    if (!found) return false;
  }
  return true;
}

}  // namespace

CgroupLimits LimitsForSandbox(int64_t memory_bytes, int64_t cpu_milli) {
  CgroupLimits limits;
  limits.memory_bytes = memory_bytes > 0 ? memory_bytes + kSandboxOverheadBytes : 0;
  limits.cpu_milli = cpu_milli;
  limits.processes_max = kSandboxProcessesMax;
  return limits;
}

CgroupMounts ParseCgroupMounts(std::string_view mountinfo) {
  CgroupMounts mounts;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    // id parent major:minor root mount-point options [tags] - type source super-options
    size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string skip, path, type, options;
    before >> skip >> skip >> skip >> skip >> path;
    after >> type >> skip >> options;
    if (type == "cgroup2") mounts.v2 = path;
    if (type != "cgroup") continue;
    std::istringstream words(options);
    for (std::string word; std::getline(words, word, ',');) {
      for (const char* controller : {"memory", "cpu", "cpuacct", "pids", "freezer"}) {
        if (word == controller) mounts.v1.emplace_back(controller, path);
      }
    }
  }
  return mounts;
}

StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupTree(const CgroupMounts& mounts,
                                                     const std::string& parent,
                                                     std::shared_ptr<CgroupFs> fs) {
  if (!IsParent(parent)) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 fmt::format("'{}' is no cgroup path like torpor/gvisor-0", parent));
  }
  if (!mounts.v2.empty()) {
    auto controllers = fs->Read(mounts.v2 + "/cgroup.controllers");
    if (controllers.ok() && HasWords(*controllers, {"memory", "cpu", "pids"})) {
      return OpenCgroupV2(mounts.v2, parent, std::move(fs));
    }
  }
  std::vector<std::string> missing;
  for (const char* controller : {"memory", "cpu", "pids"}) {
    bool found = false;
    for (const auto& [name, path] : mounts.v1) found = found || name == controller;
    if (!found) missing.push_back(controller);
  }
  if (missing.empty()) return OpenCgroupV1(mounts.v1, parent, std::move(fs));
  return Error(Code::kFailedPrecondition, "INTERNAL",
               fmt::format("cgroup controller {} is neither on v2 nor mounted for v1; mount it or "
                           "delegate it to this process",
                           missing.front()));
}

StatusOr<std::unique_ptr<CgroupTree>> CgroupTree::Open(const std::string& parent) {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream content;
  content << file.rdbuf();
  return OpenCgroupTree(ParseCgroupMounts(content.str()), parent, CgroupFs::Real());
}

}  // namespace torpor::os
