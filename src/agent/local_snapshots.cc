#include "agent/local_snapshots.h"

#include <fcntl.h>

#include <algorithm>

#include <fmt/format.h>

#include "agent/local_sums.h"
#include "model/names.h"
#include "model/reasons.h"
#include "os/fs/remove.h"

namespace torpor::agent {
namespace {

using snapshot::kManifestName;
using snapshot::Manifest;
using torpor::v1::SnapshotFile;

Status Invalid(std::string_view what) { return Fail(reasons::kInvalidCheckpointResult, what); }

// The names of everything in `dir`, one directory deep; a deeper or unclean one is an error.
StatusOr<std::set<std::string>> AllFiles(const os::DirFd& dir) {
  std::set<std::string> out;
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, dir.List());
  for (const os::DirEntry& entry : entries) {
    if (!entry.is_directory) {
      out.insert(entry.name);
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<os::DirEntry> inner, dir.List(entry.name));
    for (const os::DirEntry& file : inner) out.insert(entry.name + "/" + file.name);
  }
  return out;
}

}  // namespace

StatusOr<std::vector<SnapshotFile>> LocalSnapshots::CheckCapture(
    const std::string& uid,
    const google::protobuf::RepeatedPtrField<SnapshotFile>& reported) const {
  ASSIGN_OR_RETURN(os::DirFd dir, dirs_->root().OpenDir(NodeDirs::ActorPath(uid, kCaptureDir)));
  ASSIGN_OR_RETURN(std::set<std::string> present, AllFiles(dir));
  present.erase(kManifestName);  // of a commit that was interrupted; it is written again
  std::vector<SnapshotFile> out;
  for (SnapshotFile file : reported) {
    if (!IsSnapshotFileName(file.name()) || file.name() == kManifestName) {
      return Invalid("the worker reported a file whose name is not allowed");
    }
    auto fd = dir.OpenRegular(file.name(), O_RDONLY);
    if (!fd.ok()) return Invalid(fmt::format("{} is missing or no regular file", file.name()));
    struct stat st;
    if (fstat(fd->get(), &st) != 0) return ErrnoStatus(errno, "stat " + file.name());
    if (file.logical_bytes() != 0 && file.logical_bytes() != st.st_size) {
      return Invalid(fmt::format("{} has {} bytes, not {} as reported", file.name(), st.st_size,
                                 file.logical_bytes()));
    }
    file.set_logical_bytes(st.st_size);
    file.set_populated_bytes(std::min<int64_t>(st.st_size, st.st_blocks * int64_t{512}));
    if (present.erase(file.name()) == 0) {
      return Invalid(fmt::format("{} was reported twice", file.name()));
    }
    out.push_back(std::move(file));
  }
  if (!present.empty()) {
    return Invalid(fmt::format("the capture holds {} that was not reported", *present.begin()));
  }
  return out;
}

Status LocalSnapshots::Commit(const std::string& uid, const std::string& name,
                              Manifest manifest) const {
  manifest.boot_id = boot_id_;
  ASSIGN_OR_RETURN(std::string json, snapshot::SerializeManifest(manifest));
  ASSIGN_OR_RETURN(os::DirFd actor, dirs_->OpenActor(uid));
  auto dir = actor.OpenDir(kCaptureDir);
  if (dir.status().code() == Code::kNotFound) {
    // Renamed by the commit that this one repeats?
    ASSIGN_OR_RETURN(Manifest there, Read(uid, name));
    if (there.meta.generation() == manifest.meta.generation()) return OkStatus();
    return Error(Code::kAlreadyExists, "ALREADY_EXISTS",
                 fmt::format("snapshot {} exists with another generation", name));
  }
  RETURN_IF_ERROR(dir.status());
  const os::Ownership group{os::Ownership::kKeep, dirs_->mover().gid};
  for (const snapshot::ManifestFile& file : manifest.files) {
    ASSIGN_OR_RETURN(UniqueFd fd, dir->OpenRegular(file.file.name(), O_RDONLY));
    RETURN_IF_ERROR(os::SetOwnerAndMode(fd.get(), group, 0440));
    size_t slash = file.file.name().find('/');
    if (slash == std::string::npos) continue;
    ASSIGN_OR_RETURN(os::DirFd inner, dir->OpenDir(file.file.name().substr(0, slash)));
    RETURN_IF_ERROR(os::SetOwnerAndMode(inner.fd(), group, 0750));
  }
  RETURN_IF_ERROR(dir->WriteFile(kManifestName, json, 0440, group));
  RETURN_IF_ERROR(os::SetOwnerAndMode(dir->fd(), group, 0750));
  return actor.RenameNoReplace(kCaptureDir, fmt::format("{}/{}", kLocalDir, name));
}

StatusOr<Manifest> LocalSnapshots::ReadPrepared(const std::string& uid) const {
  ASSIGN_OR_RETURN(std::string json, dirs_->root().ReadFile(NodeDirs::ActorPath(uid, kCaptureDir) +
                                                                "/" + kManifestName,
                                                            snapshot::kManifestBytesMax));
  return snapshot::ParseManifest(json);
}

StatusOr<Manifest> LocalSnapshots::Read(const std::string& uid, const std::string& name) const {
  ASSIGN_OR_RETURN(std::string json,
                   dirs_->root().ReadFile(NodeDirs::LocalPath(uid, name) + "/" + kManifestName,
                                          snapshot::kManifestBytesMax));
  return snapshot::ParseManifest(json);
}

StatusOr<Manifest> LocalSnapshots::Verify(const torpor::v1::ActorIdentity& actor,
                                          const std::string& name, int64_t generation) {
  auto manifest = Read(actor.uid(), name);
  if (manifest.status().code() == Code::kNotFound) {
    return Fail(reasons::kLocalSnapshotGone, fmt::format("this node has no snapshot {}", name));
  }
  if (manifest.status().code() == Code::kDataLoss) {
    return Fail(reasons::kLocalSnapshotGone,
                fmt::format("the manifest of snapshot {} cannot be read: {}", name,
                            std::string(manifest.status().message())));
  }
  RETURN_IF_ERROR(manifest.status());
  RETURN_IF_ERROR(snapshot::CheckIdentity(*manifest, actor));
  if (manifest->meta.generation() != generation) {
    return Fail(reasons::kSnapshotIdentity,
                fmt::format("snapshot {} is generation {}, not {}", name,
                            manifest->meta.generation(), generation));
  }
  if (manifest->boot_id != boot_id_) {
    RETURN_IF_ERROR(CheckAfterReboot({actor.uid(), name}, *manifest));
  }
  ASSIGN_OR_RETURN(os::DirFd dir, dirs_->root().OpenDir(NodeDirs::LocalPath(actor.uid(), name)));
  for (const snapshot::ManifestFile& file : manifest->files) {
    auto stat = dir.Stat(file.file.name());
    if (!stat.ok() || !S_ISREG(stat->st_mode) || stat->st_size != file.file.logical_bytes()) {
      return Fail(
          reasons::kSnapshotCorrupt,
          fmt::format("{} is missing or has another size than in the manifest", file.file.name()));
    }
  }
  return manifest;
}

Status LocalSnapshots::CheckAfterReboot(const Key& key, const Manifest& manifest) {
  {
    MutexLock lock(&mu_);
    auto it = survived_.find(key);
    if (it != survived_.end() && it->second) return OkStatus();
  }
  ASSIGN_OR_RETURN(os::DirFd dir,
                   dirs_->root().OpenDir(NodeDirs::LocalPath(key.first, key.second)));
  auto sums = ReadSums(dir);
  Status status =
      sums.ok() ? CheckSums(dir, manifest, *sums)
                : Fail(reasons::kLocalSnapshotGone,
                       "the machine was restarted before the sums of this snapshot were known");
  MutexLock lock(&mu_);
  survived_[key] = status.ok();
  return status;
}

StatusOr<torpor::v1::LocalSums> LocalSnapshots::Sum(const std::string& uid, const std::string& name,
                                                    const std::function<bool()>& stop) const {
  ASSIGN_OR_RETURN(os::DirFd dir, dirs_->root().OpenDir(NodeDirs::LocalPath(uid, name)));
  ASSIGN_OR_RETURN(Manifest manifest, Read(uid, name));
  return ComputeSums(dir, manifest, stop);
}

Status LocalSnapshots::WriteSums(const std::string& uid, const std::string& name,
                                 const torpor::v1::LocalSums& sums) const {
  ASSIGN_OR_RETURN(std::string json, ToJson(sums));
  ASSIGN_OR_RETURN(os::DirFd dir, dirs_->root().OpenDir(NodeDirs::LocalPath(uid, name)));
  return dir.WriteFile(snapshot::kSumsName, json, 0440, {os::Ownership::kKeep, dirs_->mover().gid});
}

std::vector<std::string> LocalSnapshots::WithoutSums(const std::string& uid) const {
  std::vector<std::string> out;
  auto entries = dirs_->root().List(NodeDirs::ActorPath(uid, kLocalDir));
  if (!entries.ok()) return out;
  for (const os::DirEntry& entry : *entries) {
    if (!entry.is_directory || !IsLabel(entry.name)) continue;
    if (dirs_->root().Exists(NodeDirs::LocalPath(uid, entry.name) + "/" + snapshot::kSumsName)) {
      continue;
    }
    auto manifest = Read(uid, entry.name);
    if (manifest.ok() && manifest->boot_id == boot_id_) out.push_back(entry.name);
  }
  return out;
}

StatusOr<std::vector<torpor::v1::LocalCopy>> LocalSnapshots::List(const std::string& uid) const {
  auto entries = dirs_->root().List(NodeDirs::ActorPath(uid, kLocalDir));
  if (entries.status().code() == Code::kNotFound) return std::vector<torpor::v1::LocalCopy>();
  RETURN_IF_ERROR(entries.status());
  std::vector<torpor::v1::LocalCopy> out;
  for (const os::DirEntry& entry : *entries) {
    if (!entry.is_directory || !IsLabel(entry.name)) continue;
    auto manifest = Read(uid, entry.name);
    if (!manifest.ok()) continue;
    if (manifest->boot_id != boot_id_) {
      auto dir = dirs_->root().OpenDir(NodeDirs::LocalPath(uid, entry.name));
      if (!dir.ok()) continue;
      auto sums = ReadSums(*dir);
      if (!sums.ok() || !CheckSizes(*dir, *manifest, *sums).ok()) continue;
      MutexLock lock(&mu_);
      auto known = survived_.find({uid, entry.name});
      if (known != survived_.end() && !known->second) continue;
    }
    torpor::v1::LocalCopy copy;
    copy.set_actor_uid(uid);
    copy.set_snapshot_name(entry.name);
    copy.set_generation(manifest->meta.generation());
    copy.set_fidelity(manifest->meta.fidelity());
    int64_t bytes = 0;
    for (const auto& file : manifest->files) bytes += file.file.populated_bytes();
    copy.set_bytes(bytes);
    out.push_back(std::move(copy));
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.generation() < b.generation(); });
  return out;
}

Status LocalSnapshots::Delete(const std::string& uid, const std::string& name, WallTime now) {
  MutexLock lock(&mu_);
  if (pins_.count({uid, name}) > 0) {
    return Error(Code::kFailedPrecondition, "ACTOR_BUSY",
                 fmt::format("snapshot {} is being read", name));
  }
  auto dir = dirs_->root().OpenDir(NodeDirs::ActorPath(uid, kLocalDir));
  if (dir.status().code() == Code::kNotFound) return OkStatus();
  RETURN_IF_ERROR(dir.status());
  survived_.erase({uid, name});
  return os::Retire(*dir, name, now);
}

void LocalSnapshots::Pin(const std::string& uid, const std::string& name) {
  MutexLock lock(&mu_);
  ++pins_[{uid, name}];
}

void LocalSnapshots::Unpin(const std::string& uid, const std::string& name) {
  MutexLock lock(&mu_);
  auto it = pins_.find({uid, name});
  if (it != pins_.end() && --it->second == 0) pins_.erase(it);
  unpinned_.SignalAll();
}

bool LocalSnapshots::WaitUnpinned(const std::string& uid, const std::string& name,
                                  MonotonicTime deadline) {
  MutexLock lock(&mu_);
  while (pins_.count({uid, name}) > 0) {
    if (!unpinned_.WaitUntil(&mu_, deadline)) return pins_.count({uid, name}) == 0;
  }
  return true;
}

bool LocalSnapshots::IsPinned(const std::string& uid, const std::string& name) const {
  MutexLock lock(&mu_);
  return pins_.count({uid, name}) > 0;
}

std::vector<std::string> ChoosePrune(const std::vector<torpor::v1::LocalCopy>& copies,
                                     int64_t acknowledged) {
  std::vector<std::string> out;
  for (const torpor::v1::LocalCopy& copy : copies) {
    if (copy.generation() < acknowledged) out.push_back(copy.snapshot_name());
  }
  return out;
}

}  // namespace torpor::agent
