#include "agent/node_dirs.h"

#include <fcntl.h>

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include "base/uuid.h"
#include "model/reasons.h"
#include "os/fs/remove.h"

namespace torpor::agent {
namespace {

struct Part {
  const char* name;
  mode_t mode;
  bool movers;  // the mover's group may enter
  bool reset;   // belongs to one activation
};

constexpr Part kParts[] = {{kBundles, 0700, false, true},    {kState, 0700, false, true},
                           {kCaptureDir, 0700, false, true}, {kRestoreDir, 0770, true, true},
                           {kSystemInfo, 0755, false, true}, {kDurableDir, 0700, false, true},
                           {kLogs, 0700, false, false},      {kLocalDir, 0750, true, false},
                           {kVolumes, 0700, false, false}};

constexpr size_t kRecordBytesMax = 1 << 20;
constexpr char kAside[] = ".aside";

os::Ownership GroupOf(os::Ownership mover) { return {os::Ownership::kKeep, mover.gid}; }

}  // namespace

StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string out;
  auto status = google::protobuf::util::MessageToJsonString(message, &out, options);
  if (!status.ok()) return Fail(reasons::kInternal, "a record cannot be written as JSON");
  return out;
}

Status FromJson(const std::string& json, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  auto status = google::protobuf::util::JsonStringToMessage(json, message, options);
  if (status.ok()) return OkStatus();
  return Error(Code::kDataLoss, "INTERNAL", "a record is not the JSON that was written");
}

StatusOr<std::unique_ptr<NodeDirs>> NodeDirs::Open(const std::string& path, os::Ownership mover) {
  ASSIGN_OR_RETURN(os::DirFd root, os::DirFd::OpenPath(path));
  // Everybody passes through to the own sockets; the mover also makes its socket there, and the
  // sticky bit keeps it from removing anybody else's.
  RETURN_IF_ERROR(os::SetOwnerAndMode(root.fd(), {}, 0755));
  RETURN_IF_ERROR(root.MkdirOrOpen("run", 01771, GroupOf(mover)).status());
  ASSIGN_OR_RETURN(os::DirFd journals, root.MkdirOrOpen("journal", 0700));
  RETURN_IF_ERROR(root.MkdirOrOpen("actors", 0750, GroupOf(mover)).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("images", 0755).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("images/blobs", 0755, mover).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("images/rootfs", 0755).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("images/tmp", 0700).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("cache", 0755).status());
  RETURN_IF_ERROR(root.MkdirOrOpen("cache/snapshots", 0750, mover).status());
  return std::unique_ptr<NodeDirs>(new NodeDirs(path, std::move(root), std::move(journals), mover));
}

std::string NodeDirs::ActorPath(const std::string& uid) { return "actors/" + uid; }
std::string NodeDirs::ActorPath(const std::string& uid, const std::string& part) {
  return fmt::format("actors/{}/{}", uid, part);
}
std::string NodeDirs::LocalPath(const std::string& uid, const std::string& name) {
  return fmt::format("actors/{}/{}/{}", uid, kLocalDir, name);
}

torpor::v1::ActorDirs NodeDirs::ToMessage(const std::string& uid) {
  torpor::v1::ActorDirs dirs;
  dirs.set_root(ActorPath(uid));
  dirs.set_bundles(ActorPath(uid, kBundles));
  dirs.set_capture(ActorPath(uid, kCaptureDir));
  dirs.set_restore(ActorPath(uid, kRestoreDir));
  dirs.set_durable(ActorPath(uid, kDurableDir));
  dirs.set_system_info(ActorPath(uid, kSystemInfo));
  dirs.set_volumes(ActorPath(uid, kVolumes));
  dirs.set_state(ActorPath(uid, kState));
  dirs.set_logs(ActorPath(uid, kLogs));
  return dirs;
}

StatusOr<os::DirFd> NodeDirs::OpenActor(const std::string& uid) const {
  return root_.OpenDir(ActorPath(uid));
}

StatusOr<os::DirFd> NodeDirs::EnsureActor(const std::string& uid) const {
  ASSIGN_OR_RETURN(os::DirFd actor, root_.MkdirOrOpen(ActorPath(uid), 0750, GroupOf(mover_)));
  for (const Part& part : kParts) {
    if (part.reset || actor.Exists(part.name)) continue;
    RETURN_IF_ERROR(actor.MkdirExclusive(part.name, part.mode,
                                         part.movers ? GroupOf(mover_) : os::Ownership{}));
  }
  return actor;
}

StatusOr<std::vector<std::string>> NodeDirs::ListActors() const {
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, root_.List("actors"));
  std::vector<std::string> out;
  for (const os::DirEntry& entry : entries) {
    if (entry.is_directory && IsUuid(entry.name)) out.push_back(entry.name);
  }
  return out;
}

Status NodeDirs::Renew(const os::DirFd& actor, const char* name, WallTime now) const {
  for (const Part& part : kParts) {
    if (std::string_view(part.name) != name) continue;
    RETURN_IF_ERROR(os::Retire(actor, name, now));
    return actor.MkdirExclusive(name, part.mode, part.movers ? GroupOf(mover_) : os::Ownership{});
  }
  return Fail(reasons::kInternal, "no such part of an actor's directories");
}

Status NodeDirs::Reset(const std::string& uid, WallTime now) const {
  ASSIGN_OR_RETURN(os::DirFd actor, EnsureActor(uid));
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> volumes, actor.List(kVolumes));
  for (const os::DirEntry& volume : volumes) {
    // Never anything but rmdir: what is mounted there belongs to somebody else.
    Status status = actor.Rmdir(fmt::format("{}/{}", kVolumes, volume.name));
    if (!status.ok()) {
      return Fail(reasons::kVolumeBusy, fmt::format("volume {} is still mounted or not empty; "
                                                    "nothing was deleted",
                                                    volume.name));
    }
  }
  GiveBack(uid);
  for (const Part& part : kParts) {
    if (part.reset) RETURN_IF_ERROR(Renew(actor, part.name, now));
  }
  return OkStatus();
}

Status NodeDirs::FreshCapture(const std::string& uid, WallTime now) const {
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  return Renew(actor, kCaptureDir, now);
}

Status NodeDirs::DropCapture(const std::string& uid, WallTime now) const {
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  return os::Retire(actor, kCaptureDir, now);
}

Status NodeDirs::SetAside(const std::string& uid) const {
  constexpr off_t kBytes = 256 << 10;  // a manifest, its directory entries, the journal's records
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  ASSIGN_OR_RETURN(UniqueFd fd, actor.OpenRegular(kAside, O_WRONLY | O_CREAT, 0600));
  int error = posix_fallocate(fd.get(), 0, kBytes);
  if (error == 0) return OkStatus();
  GiveBack(uid);
  return ErrnoStatus(error, "setting space aside");
}

void NodeDirs::GiveBack(const std::string& uid) const {
  auto actor = OpenActor(uid);
  if (actor.ok()) (void)actor->Unlink(kAside).ok();  // usually there is none
}

Status NodeDirs::FreshRestore(const std::string& uid, WallTime now) const {
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  return Renew(actor, kRestoreDir, now);
}

Status NodeDirs::RetireActor(const std::string& uid, WallTime now) const {
  ASSIGN_OR_RETURN(os::DirFd actors, root_.OpenDir("actors"));
  return os::Retire(actors, uid, now);
}

Status NodeDirs::SweepActor(const std::string& uid) const {
  auto actor = OpenActor(uid);
  if (actor.status().code() == Code::kNotFound) return OkStatus();
  RETURN_IF_ERROR(actor.status());
  Status status = os::SweepRetired(*actor);
  auto local = actor->OpenDir(kLocalDir);
  if (local.ok()) {
    Status more = os::SweepRetired(*local);
    if (status.ok()) status = more;
  }
  return status;
}

Status NodeDirs::SweepAll() const {
  ASSIGN_OR_RETURN(os::DirFd actors, root_.OpenDir("actors"));
  Status first = os::SweepRetired(actors);
  ASSIGN_OR_RETURN(std::vector<std::string> uids, ListActors());
  for (const std::string& uid : uids) {
    Status status = SweepActor(uid);
    if (first.ok()) first = status;
  }
  for (const char* dir : {"images/rootfs", "images/tmp"}) {
    ASSIGN_OR_RETURN(os::DirFd images, root_.OpenDir(dir));
    Status status = os::SweepRetired(images);
    if (first.ok()) first = status;
  }
  return first;
}

Status NodeDirs::WriteRunning(const std::string& uid,
                              const torpor::v1::RunningRecord& record) const {
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  ASSIGN_OR_RETURN(std::string json, ToJson(record));
  return actor.WriteFile(kRunningFile, json, 0600);
}

StatusOr<torpor::v1::RunningRecord> NodeDirs::ReadRunning(const std::string& uid) const {
  ASSIGN_OR_RETURN(os::DirFd actor, OpenActor(uid));
  ASSIGN_OR_RETURN(std::string json, actor.ReadFile(kRunningFile, kRecordBytesMax));
  torpor::v1::RunningRecord record;
  RETURN_IF_ERROR(FromJson(json, &record));
  return record;
}

}  // namespace torpor::agent
