#include "bench/memory_watch.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kDepthMax = 4;
constexpr Duration kInterval = std::chrono::milliseconds(10);
constexpr double kMi = 1 << 20;

// The value of the line "key value"; 0 without one.
int64_t Field(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  for (int64_t value = 0; in >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

std::string Search(const fs::path& dir, const std::string& prefix, int depth) {
  std::error_code error;
  fs::directory_iterator end;
  for (fs::directory_iterator it(dir, error); !error && it != end; it.increment(error)) {
    if (!it->is_directory(error)) continue;
    const std::string name = it->path().filename();
    // The sibling that a capture runs in is no part of the actor.
    const bool sibling = name.size() > 5 && name.compare(name.size() - 5, 5, "_ckpt") == 0;
    if (name.compare(0, prefix.size(), prefix) == 0 && !sibling) return it->path();
    if (depth > 1) {
      std::string found = Search(it->path(), prefix, depth - 1);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

std::string FindMemoryGroup(const std::string& memory_root, const std::string& actor_uid) {
  return actor_uid.empty() ? "" : Search(memory_root, actor_uid + "-", kDepthMax);
}

std::string MemoryRoot() {
  const std::string v1 = "/sys/fs/cgroup/memory";
  return fs::exists(v1 + "/memory.stat") ? v1 : "/sys/fs/cgroup";
}

MemoryCharge ReadMemoryCharge(const std::string& group) {
  MemoryCharge charge;
  std::error_code error;
  charge.exists = !group.empty() && fs::exists(group + "/memory.stat", error);
  if (!charge.exists) return charge;
  const std::string stat = group + "/memory.stat";
  if (fs::exists(group + "/memory.failcnt", error)) {
    std::ifstream(group + "/memory.failcnt") >> charge.limit_hits;
    charge.oom_kills = Field(group + "/memory.oom_control", "oom_kill");
    charge.file_cache = Field(stat, "cache") - Field(stat, "shmem");
  } else {
    charge.limit_hits = Field(group + "/memory.events", "max");
    charge.oom_kills = Field(group + "/memory.events", "oom_kill");
    charge.file_cache = Field(stat, "file") - Field(stat, "shmem");
  }
  charge.file_cache = std::max<int64_t>(0, charge.file_cache);
  return charge;
}

MemoryWatch::MemoryWatch(std::string memory_root)
    : root_(std::move(memory_root)), thread_([this] { Loop(); }) {}

MemoryWatch::~MemoryWatch() {
  stop_ = true;
  thread_.join();
}

void MemoryWatch::Loop() {
  while (!stop_) {
    {
      MutexLock lock(&mu_);
      for (auto& [uid, watched] : watched_) {
        MemoryCharge now = ReadMemoryCharge(watched.group);
        if (now.exists) watched.last = now;
      }
    }
    std::this_thread::sleep_for(kInterval);
  }
}

void MemoryWatch::BeforeHibernation(const std::string& uid) {
  Watched watched;
  watched.group = FindMemoryGroup(root_, uid);
  watched.before = watched.last = ReadMemoryCharge(watched.group);
  if (!watched.before.exists) return;
  MutexLock lock(&mu_);
  watched_[uid] = std::move(watched);
}

void MemoryWatch::AfterHibernation(const std::string& uid) {
  MutexLock lock(&mu_);
  auto it = watched_.find(uid);
  if (it == watched_.end()) return;
  const Watched& watched = it->second;
  // A group that is gone charges nothing.
  const MemoryCharge after = ReadMemoryCharge(watched.group);
  const MemoryCharge& last = after.exists ? after : watched.last;
  ++hibernations_;
  limit_hits_ += last.limit_hits - watched.before.limit_hits;
  oom_kills_ += last.oom_kills - watched.before.oom_kills;
  cache_after_ = std::max(cache_after_, after.file_cache);
  watched_.erase(it);
}

void MemoryWatch::AddResumed(const std::string& uid) {
  const MemoryCharge charge = ReadMemoryCharge(FindMemoryGroup(root_, uid));
  if (!charge.exists) return;
  MutexLock lock(&mu_);
  ++resumed_;
  oom_kills_ += charge.oom_kills;
  cache_resumed_ = std::max(cache_resumed_, charge.file_cache);
}

void MemoryWatch::Report(Recorder* recorder) const {
  // A few pages of the sandbox's own programs are no image.
  constexpr double kProgramsMax = 1;
  MutexLock lock(&mu_);
  if (hibernations_ > 0) {
    recorder->AddFigure(
        {"reclaim failures in captures", "times", static_cast<double>(limit_hits_), "<=", 0});
    recorder->AddFigure({"OOM kills", "times", static_cast<double>(oom_kills_), "<=", 0});
    recorder->AddFigure({"file cache charged to the actor after a hibernation", "MiB",
                         static_cast<double>(cache_after_) / kMi, "<=", kProgramsMax});
  }
  if (resumed_ > 0) {
    recorder->AddFigure({"file cache charged to the actor 5 s after a resume", "MiB",
                         static_cast<double>(cache_resumed_) / kMi, "<=", kProgramsMax});
  }
}

}  // namespace torpor::bench
