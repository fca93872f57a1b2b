#include "agent/garbage_collector.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/log.h"
#include "model/names.h"
#include "os/fs/remove.h"

namespace torpor::agent {
namespace {

constexpr Duration kListTimeout = std::chrono::minutes(1);
constexpr Duration kWorkerTimeout = std::chrono::seconds(5);
constexpr std::string_view kSocketSuffix = ".sock";

WallTime Changed(const struct stat& st) {
  // Of a directory ctime follows renames of itself, mtime those inside it.
  const timespec& last = st.st_ctim.tv_sec > st.st_mtim.tv_sec ? st.st_ctim : st.st_mtim;
  return WallTime(std::chrono::seconds(last.tv_sec)) +
         std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(last.tv_nsec));
}

bool IsBelow(const std::string& path, const std::string& top) {
  return path == top || path.rfind(top + "/", 0) == 0;
}

// The slot of worker-<slot>.sock, support-<slot>.sock and door-<slot>.sock.
std::string SlotOfSocket(const std::string& name) {
  if (name.size() <= kSocketSuffix.size() ||
      name.compare(name.size() - kSocketSuffix.size(), std::string::npos, kSocketSuffix) != 0) {
    return "";
  }
  for (std::string_view prefix : {"worker-", "support-", "door-"}) {
    if (name.rfind(prefix, 0) != 0) continue;
    std::string slot =
        name.substr(prefix.size(), name.size() - prefix.size() - kSocketSuffix.size());
    return IsLabel(slot) ? slot : "";
  }
  return "";
}

}  // namespace

Status GarbageCollector::Pass() {
  GarbageFacts facts;
  Status status = Observe(&facts);
  if (!status.ok()) {
    verdicts_.Reset();
    if (!warned_) {
      LogWarning("garbage collection deletes nothing until it knows what must stay",
                 {{"error", std::string(status.message())}});
    }
    warned_ = true;
    return status;
  }
  warned_ = false;
  Remove(verdicts_.Confirm(JudgeGarbage(facts, rules_)));
  return core_.dirs->SweepAll();
}

// The directories are listed before the control plane is asked, so that an actor that comes in
// between is in its answer.
Status GarbageCollector::Observe(GarbageFacts* facts) const {
  RETURN_IF_ERROR(ObserveTrees(facts));
  RETURN_IF_ERROR(ObserveSockets(facts));
  torpor::v1::ListNodeActorsRequest request;
  request.set_lease_id(core_.operations->lease());
  auto live = registry_->ListNodeActors(request, kListTimeout);
  if (!live.ok()) return Annotate(live.status(), "asking the control plane");
  for (const torpor::v1::NodeActor& actor : live->actors()) {
    auto& names = facts->live[actor.actor_uid()];
    names.insert(actor.keep_snapshot_names().begin(), actor.keep_snapshot_names().end());
  }
  if (facts->live.empty() && !facts->trees.empty()) {
    return Error(Code::kUnavailable, "INTERNAL",
                 fmt::format("the control plane knows no actor of this node, which has {}",
                             facts->trees.size()));
  }
  return ObserveWorkers(facts);
}

Status GarbageCollector::ObserveTrees(GarbageFacts* facts) const {
  // Unreadable journals mean that open operations are not known.
  RETURN_IF_ERROR(Annotate(core_.dirs->journals().List().status(), "reading the journals"));
  std::set<std::string> in_journal;
  for (const torpor::v1::Operation& operation : core_.operations->Current()) {
    in_journal.insert(operation.actor_uid());
  }
  const std::string top = core_.dirs->path() + "/actors";
  auto mounts = mounts_(top);
  if (!mounts.ok()) return Annotate(mounts.status(), "reading the mount table");
  ASSIGN_OR_RETURN(std::vector<std::string> uids, core_.dirs->ListActors());
  const WallTime now = core_.clock->WallNow();
  for (const std::string& uid : uids) {
    auto stat = core_.dirs->root().Stat(NodeDirs::ActorPath(uid));
    if (!stat.ok()) continue;  // removed just now
    GarbageFacts::Tree tree;
    tree.uid = uid;
    tree.age = now - Changed(*stat);
    tree.resident = core_.residents->Get(uid).has_value();
    tree.in_journal = in_journal.count(uid) > 0;
    for (const std::string& point : *mounts) tree.mounted |= IsBelow(point, top + "/" + uid);
    ObserveSnapshots(uid, &tree);
    facts->trees.push_back(std::move(tree));
  }
  return OkStatus();
}

void GarbageCollector::ObserveSnapshots(const std::string& uid, GarbageFacts::Tree* tree) const {
  auto entries = core_.dirs->root().List(NodeDirs::ActorPath(uid, kLocalDir));
  if (!entries.ok()) return;
  for (const os::DirEntry& entry : *entries) {
    auto stat = core_.dirs->root().Stat(NodeDirs::LocalPath(uid, entry.name));
    if (!entry.is_directory || !IsLabel(entry.name) || !stat.ok()) continue;
    tree->snapshots.push_back({entry.name, core_.clock->WallNow() - Changed(*stat),
                               core_.snapshots->IsPinned(uid, entry.name)});
  }
}

Status GarbageCollector::ObserveWorkers(GarbageFacts* facts) const {
  std::set<std::string> hosted;
  for (const WorkerSlot& slot : core_.workers->All()) {
    auto list = slot.client->ListWorkloads(kWorkerTimeout);
    if (!list.ok()) return Annotate(list.status(), "asking worker " + slot.worker_id);
    for (const torpor::v1::Resident& resident : list->residents()) {
      hosted.insert(resident.actor_uid());
    }
  }
  for (GarbageFacts::Tree& tree : facts->trees) tree.resident |= hosted.count(tree.uid) > 0;
  return OkStatus();
}

Status GarbageCollector::ObserveSockets(GarbageFacts* facts) const {
  std::vector<std::string> ids = core_.workers->Ids();
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, core_.dirs->root().List("run"));
  for (const os::DirEntry& entry : entries) {
    const std::string slot = SlotOfSocket(entry.name);
    // A configured slot's worker may be about to serve it.
    if (slot.empty() || std::find(ids.begin(), ids.end(), slot) != ids.end()) continue;
    auto stat = core_.dirs->root().Stat("run/" + entry.name);
    if (!stat.ok() || !S_ISSOCK(stat->st_mode) || !IsSilent(entry.name)) continue;
    facts->silent_sockets[entry.name] = core_.clock->WallNow() - Changed(*stat);
  }
  return OkStatus();
}

bool GarbageCollector::IsSilent(const std::string& socket_name) const {
  auto run = core_.dirs->root().OpenDir("run");
  if (!run.ok()) return false;
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = run->ProcPath(socket_name);
  if (!fd.valid() || path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, path.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return false;
  return errno == ECONNREFUSED;
}

void GarbageCollector::Remove(const Garbage& garbage) {
  for (const std::string& uid : garbage.trees) {
    Status status = RemoveActor(uid);
    if (status.ok()) {
      core_.metrics.garbage.Add({"actor"});
      LogInfo("directories of an actor that is gone were removed", {{"actor", uid}});
    } else {
      LogWarning("directories of an actor that is gone stay for now",
                 {{"actor", uid}, {"error", std::string(status.message())}});
    }
  }
  for (const auto& [uid, name] : garbage.snapshots) {
    Status status = core_.snapshots->Delete(uid, name, core_.clock->WallNow());
    if (status.ok()) {
      core_.metrics.garbage.Add({"snapshot"});
      LogInfo("a local generation that nobody wants was removed",
              {{"actor", uid}, {"snapshot", name}});
    }
  }
  for (const std::string& name : garbage.sockets) {
    if (IsSilent(name) && core_.dirs->root().Unlink("run/" + name).ok()) {
      core_.metrics.garbage.Add({"socket"});
      LogInfo("socket of a worker that is gone was removed", {{"socket", name}});
    }
  }
}

Status GarbageCollector::RemoveActor(const std::string& uid) {
  // No operation begins on it while it is looked at again and renamed away.
  if (!core_.operations->TryHold(uid)) {
    return Error(Code::kAborted, "OPERATION_IN_PROGRESS", "an operation runs");
  }
  auto mounts = mounts_(core_.dirs->path() + "/" + NodeDirs::ActorPath(uid));
  Status status = mounts.status();
  if (status.ok() && !mounts->empty()) {
    status = Error(Code::kUnavailable, "VOLUME_BUSY", mounts->front() + " is mounted");
  }
  if (status.ok()) status = core_.dirs->RetireActor(uid, core_.clock->WallNow());
  core_.operations->Release(uid);
  return status;
}

void GarbageCollector::MeasureDisk() {
  int64_t bytes = 0;
  int64_t largest = 0;
  auto uids = core_.dirs->ListActors();
  if (!uids.ok()) return;
  for (const std::string& uid : *uids) {
    auto copies = core_.snapshots->List(uid);
    if (!copies.ok()) continue;
    for (const torpor::v1::LocalCopy& copy : *copies) {
      bytes += copy.bytes();
      largest = std::max(largest, copy.bytes());
    }
  }
  const int64_t images = core_.images->bytes();
  MutexLock lock(&mu_);
  snapshot_bytes_ = bytes;
  image_bytes_ = images;
  largest_capture_ = std::max(largest_capture_, largest);
}

torpor::v1::DiskUsage GarbageCollector::Disk() const {
  torpor::v1::DiskUsage out;
  auto space = core_.dirs->root().Space();
  MutexLock lock(&mu_);
  out.set_snapshot_bytes(snapshot_bytes_);
  out.set_image_bytes(image_bytes_);
  if (!space.ok()) return out;
  out.set_total_bytes(space->total_bytes);
  out.set_used_bytes(space->total_bytes - space->free_bytes);
  out.set_pressure(IsDiskPressure(space->free_bytes, space->total_bytes, largest_capture_));
  return out;
}

}  // namespace torpor::agent
