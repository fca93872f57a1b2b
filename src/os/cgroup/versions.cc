#include "os/cgroup/versions.h"

#include <errno.h>

#include <cctype>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace torpor::os {
namespace {

constexpr int kBusyRetries = 200;  // of about a millisecond
constexpr std::string_view kSiblingSuffix = "_ckpt";

bool IsSibling(const std::string& name) {
  return name.size() > kSiblingSuffix.size() &&
         name.compare(name.size() - kSiblingSuffix.size(), std::string::npos, kSiblingSuffix) == 0;
}

}  // namespace

bool IsGroupName(const std::string& name) {
  if (name.empty() || name.size() > 128 || name[0] == '.') return false;
  for (char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-')
      return false;
  }
  return true;
}

Status CheckLeafName(const std::string& name) {
  if (IsGroupName(name) && !IsSibling(name)) return OkStatus();
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               fmt::format("'{}' is no name of a cgroup", name));
}

Status MakeDirs(CgroupFs& fs, const std::string& base, const std::string& relative) {
  std::string path = base;
  std::istringstream parts(relative);
  for (std::string part; std::getline(parts, part, '/');) {
    path += "/" + part;
    Status made = fs.MakeDir(path);
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
  }
  return OkStatus();
}

std::string SiblingOf(const std::string& leaf) { return leaf + std::string(kSiblingSuffix); }

std::vector<std::string> LeavesOf(const std::vector<std::string>& directories) {
  std::set<std::string> leaves;
  for (const std::string& name : directories) {
    leaves.insert(IsSibling(name) ? name.substr(0, name.size() - kSiblingSuffix.size()) : name);
  }
  return {leaves.begin(), leaves.end()};
}

StatusOr<bool> JoinGroup(CgroupFs& fs, const std::string& path, pid_t pid) {
  const int error = fs.Join(path + "/cgroup.procs", pid);
  if (error == 0) return true;
  if (error == ESRCH) return false;
  // ENODEV: removed between open and write.
  return ErrnoStatus(error == ENODEV ? ENOENT : error, fmt::format("move {} to {}", pid, path));
}

Status MakeEmptyGroup(CgroupFs& fs, const std::string& path) {
  Status made = fs.MakeDir(path);
  if (made.code() != Code::kAlreadyExists) return made;
  ASSIGN_OR_RETURN(std::vector<pid_t> processes, ReadProcesses(fs, path + "/cgroup.procs"));
  if (processes.empty()) return OkStatus();
  return Error(Code::kFailedPrecondition, "INTERNAL",
               fmt::format("cgroup {} exists and holds process {}", path, processes.front()));
}

Status RemoveGroup(CgroupFs& fs, const std::string& path) {
  Status status;
  for (int i = 0; i < kBusyRetries; ++i) {
    status = fs.RemoveDir(path);
    if (status.code() == Code::kNotFound) return OkStatus();
    if (status.code() != Code::kFailedPrecondition) return status;
    auto processes = ReadProcesses(fs, path + "/cgroup.procs");
    if (processes.ok() && !processes->empty()) return status;
    fs.Pause();
  }
  return status;
}

StatusOr<std::vector<pid_t>> ReadProcesses(CgroupFs& fs, const std::string& procs_file) {
  auto text = fs.Read(procs_file);
  if (text.status().code() == Code::kNotFound) return std::vector<pid_t>();
  if (!text.ok()) return text.status();
  std::istringstream words(*text);
  std::vector<pid_t> pids;
  for (pid_t pid; words >> pid;) pids.push_back(pid);
  return pids;
}

int64_t ReadNumber(CgroupFs& fs, const std::string& path, int64_t fallback) {
  auto text = fs.Read(path);
  int64_t number = 0;
  if (!text.ok() || !(std::istringstream(*text) >> number)) return fallback;
  return number;
}

std::map<std::string, int64_t> ReadKeyed(CgroupFs& fs, const std::string& path) {
  std::map<std::string, int64_t> out;
  auto text = fs.Read(path);
  if (!text.ok()) return out;
  std::istringstream words(*text);
  std::string key;
  for (int64_t value; words >> key >> value;) out[key] = value;
  return out;
}

std::optional<double> ReadFullPressure(CgroupFs& fs, const std::string& path) {
  auto text = fs.Read(path);
  if (!text.ok()) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    double percent = 0;
    if (sscanf(line.c_str(), "full avg10=%lf", &percent) == 1) return percent;
  }
  return std::nullopt;
}

}  // namespace torpor::os
