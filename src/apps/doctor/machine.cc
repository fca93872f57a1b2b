#include "apps/doctor/machine.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "apps/run_as.h"
#include "base/quantity.h"
#include "os/process/confine.h"

namespace torpor::doctor {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kLeastMemory = 4 * kGiB;  // 2 GiB stay with the machine
constexpr int64_t kLeastDisk = 10 * kGiB;
constexpr int64_t kLeastInodes = 100'000;

class Checker {
 public:
  Checker(const Machine& machine, Findings* out) : m_(machine), out_(out) {}

  void Ok(std::string check, std::string what) {
    out_->push_back({Level::kOk, std::move(check), std::move(what), ""});
  }
  void Advice(std::string check, std::string what, std::string remedy) {
    out_->push_back({Level::kAdvice, std::move(check), std::move(what), std::move(remedy)});
  }
  void Problem(std::string check, std::string what, std::string remedy) {
    out_->push_back({Level::kProblem, std::move(check), std::move(what), std::move(remedy)});
  }

  void Kernel() {
    auto release = m_.read("/proc/sys/kernel/osrelease");
    int major = 0;
    int minor = 0;
    if (!release.ok() || sscanf(release->c_str(), "%d.%d", &major, &minor) != 2) {
      return Advice("kernel", "its version cannot be read", "mount /proc");
    }
    const std::string version = release->substr(0, release->find('\n'));
    // openat2 is of 5.6, pidfd_open of 5.3; cgroup.kill (5.14) is used where it is there.
    if (major > 5 || (major == 5 && minor >= 6)) return Ok("kernel", version);
    Problem("kernel", version + " lacks openat2", "use a kernel of at least 5.6");
  }

  void Root() {
    if (m_.root) return Ok("rights", "root");
    Problem("rights", "not root: what only root may see was not checked",
            "run sudo torpor doctor; torpor up needs root, too");
  }

  void Namespaces() {
    std::string missing;
    for (const char* name : {"net", "mnt", "pid", "ipc", "uts", "user"}) {
      const auto limit = m_.read(fmt::format("/proc/sys/user/max_{}_namespaces", name));
      const bool none = limit.ok() && atoll(limit->c_str()) == 0;
      if (none || !m_.exists(fmt::format("/proc/self/ns/{}", name))) {
        missing += std::string(missing.empty() ? "" : ", ") + name;
      }
    }
    if (missing.empty()) return Ok("namespaces", "net, mnt, pid, ipc, uts, user");
    Problem("namespaces", "not available: " + missing,
            "raise /proc/sys/user/max_*_namespaces; in a container allow them (privileged, or "
            "seccomp and AppArmor profiles that let unshare through)");
  }

  void Cgroups() {
    constexpr const char* kNeeded[] = {"memory", "cpu", "pids"};
    auto unified = m_.read("/sys/fs/cgroup/cgroup.controllers");
    std::string missing;
    std::string version = "v2";
    if (unified.ok()) {
      std::istringstream words(*unified);
      const std::vector<std::string> have{std::istream_iterator<std::string>(words), {}};
      for (const char* name : kNeeded) {
        if (std::find(have.begin(), have.end(), name) == have.end()) {
          missing += std::string(missing.empty() ? "" : ", ") + name;
        }
      }
      // Controllers may sit in v1 hierarchies beside an empty v2 one.
      if (missing.empty()) return Ok("cgroups", "v2 with memory, cpu, pids");
    }
    version = unified.ok() ? "v1 or hybrid" : "v1";
    missing.clear();
    for (const char* name : {"memory", "cpu", "pids", "freezer"}) {
      if (!m_.exists(fmt::format("/sys/fs/cgroup/{}/cgroup.procs", name))) {
        missing += std::string(missing.empty() ? "" : ", ") + name;
      }
    }
    if (missing.empty()) return Ok("cgroups", version + " with memory, cpu, pids, freezer");
    Problem("cgroups", "no controller for: " + missing,
            "mount cgroup2 at /sys/fs/cgroup with memory, cpu and pids; in a container give it the "
            "host's cgroup namespace and a writable /sys/fs/cgroup");
  }

  void Landlock() {
    if (m_.landlock >= os::kLandlockMin) {
      return Ok("landlock", fmt::format("version {}", m_.landlock));
    }
    Advice("landlock", "not there: images are unpacked without confinement",
           "use a kernel of at least 5.19 with landlock among the security modules that it starts "
           "(lsm=)");
  }

  void Programs() {
    constexpr std::pair<const char*, const char*> kPrograms[] = {
        {"ip", "iproute2"}, {"nft", "nftables"}, {"skopeo", "skopeo"}, {"umoci", "umoci"}};
    for (const auto& [program, package] : kPrograms) {
      const std::string path = m_.find_program(program);
      if (!path.empty()) {
        Ok("program", path);
      } else {
        Problem("program", std::string(program) + " is not in PATH",
                std::string("apt-get install ") + package);
      }
    }
  }

  void Users() {
    for (const char* user : {kControlUser, kMoverUser}) {
      if (m_.has_user(user)) {
        Ok("user", user);
      } else {
        Advice("user", std::string("there is no user ") + user,
               "nothing: torpor up and the package make it");
      }
    }
  }

  void Memory() {
    auto text = m_.read("/proc/meminfo");
    int64_t kilobytes = 0;
    if (text.ok()) {
      const size_t at = text->find("MemTotal:");
      if (at != std::string::npos) kilobytes = atoll(text->c_str() + at + 9);
    }
    const std::string total = FormatBytes(kilobytes << 10);
    if ((kilobytes << 10) >= kLeastMemory) return Ok("memory", total);
    Advice("memory", total + ": 2Gi stay with the machine, little is left for actors",
           "use a larger machine, or set worker-memory to what actors may really have");
  }

  void Expedited() {
    auto text = m_.read("/sys/kernel/rcu_expedited");
    if (!text.ok()) return;  // a kernel without it
    if (atoi(text->c_str()) != 0) return Ok("rcu_expedited", "1");
    Advice("rcu_expedited",
           "0: making and ending network namespaces waits for full RCU grace periods, tens of "
           "milliseconds of each wake",
           "echo 1 > /sys/kernel/rcu_expedited (as root, at each boot; costs a little CPU)");
  }

  void DiskOf(const std::string& dir) {
    // Not made yet: its nearest parent says what it will have.
    std::string path = dir;
    while (path.size() > 1 && !m_.exists(path)) path.erase(std::max<size_t>(path.rfind('/'), 1));
    auto disk = m_.disk(path);
    if (!disk.ok()) {
      return Problem("disk", fmt::format("{}: {}", path, std::string(disk.status().message())),
                     "make the directory readable");
    }
    const std::string text = fmt::format("{}: {} of {} free", dir, FormatBytes(disk->free_bytes),
                                         FormatBytes(disk->total_bytes));
    if (disk->free_bytes < disk->total_bytes / 20 || disk->free_bytes < kGiB) {
      return Problem("disk", text, "free space there: pauses and wakes fail with DISK_FULL");
    }
    if (disk->free_inodes < kLeastInodes) {
      return Problem("disk", fmt::format("{}: {} inodes free", dir, disk->free_inodes),
                     "remove files, or make a file system with more inodes");
    }
    if (disk->free_bytes < kLeastDisk) {
      return Advice("disk", text, "a paused actor takes what its memory takes; give it more room");
    }
    Ok("disk", text);
  }

  void Ports(const std::vector<int>& wanted) {
    if (wanted.empty()) return;
    std::vector<int> taken;
    for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      if (auto text = m_.read(file); text.ok()) {
        const std::vector<int> ports = ListeningPorts(*text);
        taken.insert(taken.end(), ports.begin(), ports.end());
      }
    }
    for (int port : wanted) {
      if (std::find(taken.begin(), taken.end(), port) == taken.end()) {
        Ok("port", fmt::format("{} is free", port));
      } else {
        Problem("port", fmt::format("another process listens on port {}", port),
                fmt::format("ss -ltnp 'sport = :{}' shows it; stop it, or choose another address "
                            "(torpor up --help)",
                            port));
      }
    }
  }

 private:
  const Machine& m_;
  Findings* const out_;
};

}  // namespace

std::vector<int> ListeningPorts(const std::string& text) {
  std::vector<int> ports;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // the header
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state;
    words >> slot >> local >> remote >> state;
    const size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;  // TCP_LISTEN
    ports.push_back(static_cast<int>(strtol(local.c_str() + colon + 1, nullptr, 16)));
  }
  return ports;
}

Findings CheckMachine(const Machine& machine, const MachineQuestions& questions) {
  Findings out;
  Checker check(machine, &out);
  check.Root();
  check.Kernel();
  check.Namespaces();
  check.Cgroups();
  check.Landlock();
  check.Memory();
  check.Programs();
  check.Users();
  check.Expedited();
  check.DiskOf(questions.dir);
  check.Ports(questions.ports);
  return out;
}

Machine RealMachine() {
  Machine m;
  m.read = [](const std::string& path) -> StatusOr<std::string> {
    std::ifstream in(path);
    if (!in) return ErrnoStatus(ENOENT, "open " + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  m.exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  m.find_program = [](const std::string& program) -> std::string {
    const char* path = getenv("PATH");
    std::istringstream dirs(path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
    for (std::string dir; std::getline(dirs, dir, ':');) {
      const std::string file = dir + "/" + program;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
    return "";
  };
  m.has_user = [](const std::string& user) { return LookUpUser(user).ok(); };
  m.disk = [](const std::string& path) -> StatusOr<Disk> {
    struct statvfs st{};
    if (statvfs(path.c_str(), &st) != 0) return ErrnoStatus(errno, "statvfs " + path);
    const int64_t block = static_cast<int64_t>(st.f_frsize);
    // File systems such as btrfs count no inodes and say 0 of 0.
    const int64_t inodes = st.f_files == 0 ? INT64_MAX : static_cast<int64_t>(st.f_favail);
    return Disk{block * static_cast<int64_t>(st.f_bavail),
                block * static_cast<int64_t>(st.f_blocks), inodes};
  };
  m.root = geteuid() == 0;
  m.landlock = os::LandlockVersion();
  return m;
}

}  // namespace torpor::doctor
