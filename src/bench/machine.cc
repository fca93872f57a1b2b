#include "bench/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/build_info.h"
#include "os/process/process.h"

namespace torpor::bench {
namespace {

constexpr pid_t kKernelThreads = 2;  // kthreadd

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// The value of the first `key : value` line.
std::string CpuinfoField(const std::string& key) {
  std::istringstream lines(Read("/proc/cpuinfo"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

std::string FileSystemOf(const std::string& dir) {
  struct statfs fs;
  if (statfs(dir.c_str(), &fs) != 0) return "unknown";
  switch (fs.f_type) {
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlayfs";
    default:
      return fmt::format("file system {:#x}", fs.f_type);
  }
}

std::string CgroupVersion() {
  struct statfs fs;
  const bool unified =
      statfs("/sys/fs/cgroup", &fs) == 0 && static_cast<unsigned long>(fs.f_type) == 0x63677270;
  if (unified) return "v2";
  struct stat st;
  return stat("/sys/fs/cgroup/unified", &st) == 0 ? "hybrid" : "v1";
}

}  // namespace

StatusOr<MachineLock> MachineLock::Take(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(Code::kFailedPrecondition, "OPERATION_IN_PROGRESS",
                 "another benchmark runs on this machine (it holds " + path +
                     "); two at once would measure each other");
  }
  return MachineLock(std::move(fd));
}

Machine ReadMachine(const std::string& dir) {
  Machine machine;
  utsname name;
  if (uname(&name) == 0) machine.kernel = name.release;
  machine.cpu = CpuinfoField("model name");
  machine.cores = sysconf(_SC_NPROCESSORS_ONLN);
  machine.memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  machine.file_system = FileSystemOf(dir);
  machine.cgroup = CgroupVersion();
  return machine;
}

MachineLoad ReadLoad() {
  MachineLoad load;
  std::istringstream(Read("/proc/loadavg")) >> load.load1;
  std::istringstream(CpuinfoField("cpu MHz")) >> load.mhz;
  return load;
}

Build ReadBuild(const std::string& revision) {
  Build build;
  build.version = TORPOR_VERSION;
  build.revision = revision.empty() ? "unknown" : revision;
  const std::string sanitizer = BuildSanitizer();
  build.flags = BuildFlags() + (sanitizer.empty() ? "" : " sanitizer=" + sanitizer);
  build.release = build.flags.find("-O2") != std::string::npos && sanitizer.empty();
  char path[4096];  // resolved here: in sha256sum /proc/self is sha256sum
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return build;
  auto sum = os::CommandOutput({"sha256sum", std::string(path, static_cast<size_t>(n))},
                               {.deadline = Clock::Real()->Now() + std::chrono::seconds(30)});
  if (sum.ok()) build.binary_sha256 = sum->substr(0, 64);
  return build;
}

std::optional<ProcessTime> ParseProcessStat(const std::string& text) {
  // The program's name may hold anything, also parentheses.
  size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  ProcessTime process;
  process.pid = std::atoi(text.c_str());
  std::istringstream rest(text.substr(end + 1));
  std::string state, skipped;
  rest >> state >> process.parent;
  for (int field = 5; field <= 13; ++field) rest >> skipped;
  int64_t user = 0, system = 0, child_user = 0, child_system = 0;
  rest >> user >> system >> child_user >> child_system;
  if (!rest) return std::nullopt;
  process.ticks = user + system + child_user + child_system;
  return process;
}

std::vector<ProcessTime> ReadProcessTable() {
  std::vector<ProcessTime> table;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (dirent* entry = proc == nullptr ? nullptr : readdir(proc.get())) {
    if (!isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    auto process = ParseProcessStat(Read(std::string("/proc/") + entry->d_name + "/stat"));
    if (process) table.push_back(*process);
  }
  return table;
}

std::vector<pid_t> PidsBelow(const std::vector<ProcessTime>& table, pid_t root) {
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const ProcessTime& process : table) {
      const bool known = std::find(found.begin(), found.end(), process.pid) != found.end();
      if (process.parent == found[i] && !known) found.push_back(process.pid);
    }
  }
  return found;
}

int64_t CpuNs(pid_t pid, const std::string& without_thread) {
  int64_t sum = 0;
  std::error_code error;
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& entry : std::filesystem::directory_iterator(tasks, error)) {
    const std::string task = entry.path();
    std::string name = Read(task + "/comm");
    if (!name.empty()) name.pop_back();
    if (!without_thread.empty() && name == without_thread) continue;
    int64_t ns = 0;
    std::istringstream(Read(task + "/schedstat")) >> ns;
    sum += ns;
  }
  return sum;
}

int64_t PssBytes(pid_t pid) {
  std::istringstream lines(Read(fmt::format("/proc/{}/smaps_rollup", pid)));
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 4, "Pss:") == 0) return std::atoll(line.c_str() + 4) * 1024;
  }
  return 0;
}

int64_t TicksOfOthers(const std::vector<ProcessTime>& table, const std::vector<pid_t>& roots) {
  std::map<pid_t, pid_t> parents;
  for (const ProcessTime& process : table) parents[process.pid] = process.parent;
  auto below = [&](pid_t pid) {
    // A table read while processes come and go may hold a loop; it is shorter than the table.
    for (size_t steps = 0; steps <= table.size() && pid > 0; ++steps) {
      if (pid == kKernelThreads) return true;
      if (std::find(roots.begin(), roots.end(), pid) != roots.end()) return true;
      auto it = parents.find(pid);
      if (it == parents.end()) return false;
      pid = it->second;
    }
    return false;
  };
  int64_t ticks = 0;
  for (const ProcessTime& process : table) {
    if (!below(process.pid)) ticks += process.ticks;
  }
  return ticks;
}

CpuWatch::CpuWatch(std::vector<pid_t> roots) : roots_(std::move(roots)), begin_(Take()) {}

CpuWatch::Sample CpuWatch::Take() const {
  Sample sample;
  sample.time = Clock::Real()->Now();
  std::istringstream stat(Read("/proc/stat"));
  std::string cpu;
  int64_t ticks[8] = {};  // user nice system idle iowait irq softirq steal
  stat >> cpu;
  for (int64_t& value : ticks) {
    stat >> value;
    sample.all += value;
  }
  sample.steal = ticks[7];
  sample.others = TicksOfOthers(ReadProcessTable(), roots_);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
    sample.driver += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  }
  return sample;
}

void CpuWatch::Finish(Repeat* repeat) const {
  const Sample end = Take();
  const double seconds = ToMs(end.time - begin_.time) / 1000;
  if (seconds <= 0) return;
  repeat->driver_cpu = (end.driver - begin_.driver) / seconds;
  // A process that was there at the start and is gone took its time with it, if its parent is ours.
  const double others = std::max<double>(0, static_cast<double>(end.others - begin_.others));
  repeat->other_cpu = others / static_cast<double>(sysconf(_SC_CLK_TCK)) / seconds;
  if (end.all > begin_.all) {
    repeat->steal_percent = 100.0 * static_cast<double>(end.steal - begin_.steal) /
                            static_cast<double>(end.all - begin_.all);
  }
}

}  // namespace torpor::bench
