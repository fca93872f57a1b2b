#include "os/netns/netns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include <fmt/format.h>

#include "model/names.h"

namespace torpor::os {
namespace {

constexpr char kDir[] = "/run/netns";

std::string PathOf(const std::string& name) { return fmt::format("{}/{}", kDir, name); }

Status CheckName(const std::string& name) {
  if (IsLabel(name)) return OkStatus();
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               "the name of a network namespace must be a label");
}

// A shared mount point, as `ip netns add` makes it: it would otherwise mount the directory over
// itself, and what was mounted in it before could never be removed.
Status MakeDirectory() {
  if (mkdir(kDir, 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, "mkdir /run/netns");
  UniqueFd dir(open(kDir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return ErrnoStatus(errno, "open /run/netns");
  // `ip` holds the same lock meanwhile; only one of all may mount.
  while (flock(dir.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "lock /run/netns");
  }
  if (mount("", kDir, "none", MS_SHARED | MS_REC, nullptr) == 0) return OkStatus();
  if (errno != EINVAL) return ErrnoStatus(errno, "share /run/netns");
  if (mount(kDir, kDir, "none", MS_BIND | MS_REC, nullptr) != 0 ||
      mount("", kDir, "none", MS_SHARED | MS_REC, nullptr) != 0) {
    return ErrnoStatus(errno, "mount /run/netns");
  }
  return OkStatus();
}

// Binds the calling thread's network namespace to `path`.
Status Publish(const std::string& path) {
  RETURN_IF_ERROR(MakeDirectory());
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444));
  if (!file.valid()) {
    if (errno == EEXIST) return Error(Code::kAlreadyExists, "ALREADY_EXISTS", path + " exists");
    return ErrnoStatus(errno, "create " + path);
  }
  if (mount("/proc/thread-self/ns/net", path.c_str(), "none", MS_BIND, nullptr) != 0) {
    Status status = ErrnoStatus(errno, "bind " + path);
    unlink(path.c_str());
    return status;
  }
  return OkStatus();
}

// Runs `work` in a thread of its own and waits: the namespace of a thread dies with it.
Status InThread(const std::function<Status()>& work) {
  Status status;
  std::thread thread([&] { status = work(); });
  thread.join();
  return status;
}

Status Enter(int fd) {
  if (setns(fd, CLONE_NEWNET) != 0) return ErrnoStatus(errno, "setns");
  return OkStatus();
}

}  // namespace

std::string NetNamespace::path() const { return PathOf(name_); }

StatusOr<NetNamespace> NetNamespace::Create(const std::string& name,
                                            std::function<Status()> set_up) {
  RETURN_IF_ERROR(CheckName(name));
  UniqueFd fd;
  RETURN_IF_ERROR(InThread([&]() -> Status {
    if (unshare(CLONE_NEWNET) != 0) return ErrnoStatus(errno, "unshare network namespace");
    if (set_up) RETURN_IF_ERROR(set_up());
    RETURN_IF_ERROR(Publish(PathOf(name)));
    fd = UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    return fd.valid() ? OkStatus() : ErrnoStatus(errno, "open network namespace");
  }));
  return NetNamespace(name, std::move(fd));
}

StatusOr<NetNamespace> NetNamespace::Open(const std::string& name) {
  RETURN_IF_ERROR(CheckName(name));
  UniqueFd fd(open(PathOf(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + PathOf(name));
  return NetNamespace(name, std::move(fd));
}

Status NetNamespace::Run(const std::function<Status()>& work) const {
  return InThread([&]() -> Status {
    RETURN_IF_ERROR(Enter(fd_.get()));
    return work();
  });
}

Status DeleteNetNamespace(const std::string& name) {
  RETURN_IF_ERROR(CheckName(name));
  std::string path = PathOf(name);
  // EINVAL: a file without a mount, left by a creator that died between the two.
  if (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno != EINVAL &&
      errno != ENOENT) {
    return ErrnoStatus(errno, "unmount " + path);
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "unlink " + path);
  return OkStatus();
}

StatusOr<std::vector<std::string>> ListNetNamespaces(std::string_view prefix) {
  std::vector<std::string> names;
  DIR* dir = opendir(kDir);
  if (dir == nullptr) {
    if (errno == ENOENT) return names;
    return ErrnoStatus(errno, "open /run/netns");
  }
  while (const dirent* entry = readdir(dir)) {
    std::string_view name(entry->d_name);
    if (name.substr(0, prefix.size()) == prefix && IsLabel(name)) names.emplace_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Status SetNetSysctl(const std::string& key, std::string_view value) {
  std::string path = "/proc/sys/" + key;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // A kernel without the feature (IPv6, say) has it off already.
  if (!fd.valid()) return errno == ENOENT ? OkStatus() : ErrnoStatus(errno, "open " + path);
  char now[64] = {};
  ssize_t size = read(fd.get(), now, sizeof(now) - 1);
  if (size > 0 && std::string_view(now, static_cast<size_t>(size)) == fmt::format("{}\n", value)) {
    return OkStatus();
  }
  fd = UniqueFd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open for writing " + path);
  if (write(fd.get(), value.data(), value.size()) < 0) return ErrnoStatus(errno, "write " + path);
  return OkStatus();
}

StatusOr<std::unique_ptr<NetnsThread>> NetnsThread::Start(const NetNamespace& ns) {
  auto thread = std::unique_ptr<NetnsThread>(new NetnsThread);
  RETURN_IF_ERROR(thread->Run([&ns] { return Enter(ns.fd()); }));
  return thread;
}

Status NetnsThread::Run(const std::function<Status()>& work) {
  std::promise<void> done;
  Status status;
  pool_->Run([&] {
    status = work();
    done.set_value();
  });
  done.get_future().wait();
  return status;
}

}  // namespace torpor::os
