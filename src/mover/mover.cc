#include "mover/mover.h"

#include "base/log.h"
#include "base/uuid.h"
#include "model/names.h"
#include "model/reasons.h"
#include "snapshot/format/layout.h"
#include "snapshot/load/load.h"
#include "snapshot/load/read_manifest.h"
#include "snapshot/save/save.h"

namespace torpor::mover {
namespace {

using torpor::v1::ActorIdentity;
using torpor::v1::Operation;
using torpor::v1::OpHeader;

// Defaults of api.md 11, for callers that set no timeout.
constexpr Duration kUploadTimeout = std::chrono::minutes(30);
constexpr Duration kFetchTimeout = std::chrono::minutes(10);
constexpr Duration kPullTimeout = std::chrono::minutes(10);
constexpr Duration kOldUpload = std::chrono::hours(24);

Status Bad(std::string_view message) { return Fail(reasons::kFieldInvalid, message); }

Status CheckActor(const OpHeader& op, const ActorIdentity& actor) {
  if (!IsLabel(actor.atespace())) return Bad("actor.atespace must be a label");
  if (!IsLabel(actor.name())) return Bad("actor.name must be a label");
  if (!IsUuid(actor.uid())) return Bad("actor.uid must be a uuid");
  if (op.actor_uid() != actor.uid()) return Bad("op.actor_uid and actor.uid differ");
  return OkStatus();
}

// Only below the tree of the actor that the request is about.
Status CheckDirectory(const std::string& path, const ActorIdentity& actor) {
  if (!IsCleanRelativePath(path)) {
    return Bad("a directory must be a clean path relative to the node directory");
  }
  if (path.rfind("actors/" + actor.uid() + "/", 0) == 0) return OkStatus();
  return Fail(reasons::kNotAllowed,
              fmt::format("{} is not below the directory of actor {}", path, actor.uid()));
}

Status CheckFiles(const torpor::v1::UploadRequest& request) {
  if (static_cast<size_t>(request.files_size()) > snapshot::kManifestFilesMax) {
    return Bad(fmt::format("more than {} files", snapshot::kManifestFilesMax));
  }
  for (const torpor::v1::SnapshotFile& file : request.files()) {
    if (!IsSnapshotFileName(file.name())) return Bad("a file name is not clean");
  }
  return OkStatus();
}

// What is stored: what the agent committed locally, narrowed to the files and meta of the request.
StatusOr<snapshot::Manifest> DurableManifest(const snapshot::Manifest& local,
                                             const torpor::v1::UploadRequest& request) {
  RETURN_IF_ERROR(snapshot::CheckIdentity(local, request.actor()));
  if (local.meta.generation() != request.meta().generation()) {
    return Fail(reasons::kSnapshotIdentity,
                fmt::format("source_dir holds generation {}, not {}", local.meta.generation(),
                            request.meta().generation()));
  }
  if (request.meta().fidelity() > local.meta.fidelity()) {
    return Fail(reasons::kFidelityNotCaptured, "the capture does not hold that fidelity");
  }
  snapshot::Manifest out = local;
  out.meta = request.meta();
  out.files.clear();
  for (const torpor::v1::SnapshotFile& wanted : request.files()) {
    auto entry = std::find_if(local.files.begin(), local.files.end(),
                              [&](const auto& file) { return file.file.name() == wanted.name(); });
    if (entry == local.files.end() || entry->file.logical_bytes() != wanted.logical_bytes()) {
      return Bad(fmt::format("file {} is not in the local manifest with that size", wanted.name()));
    }
    out.files.push_back(*entry);
  }
  return out;
}

StatusOr<snapshot::Manifest> ReadLocal(const os::DirFd& source) {
  auto text = source.ReadFile(snapshot::kManifestName, snapshot::kManifestBytesMax);
  if (text.status().code() == Code::kNotFound) {
    return Fail(reasons::kLocalSnapshotGone, "source_dir has no manifest.json");
  }
  if (!text.ok()) return text.status();
  return snapshot::ParseManifest(*text);
}

// A snapshot below an actor's tree must be that actor's; one below a tag is whoever's it was.
Status CheckOwner(const snapshot::SnapshotPlace& place, const snapshot::Manifest& manifest) {
  if (place.owner == snapshot::Owner::kTag) return OkStatus();
  if (manifest.actor.uid() == place.owner_uid && manifest.actor.atespace() == place.atespace) {
    return OkStatus();
  }
  return Fail(reasons::kSnapshotIdentity,
              fmt::format("the snapshot at this address is of actor {} in {}", manifest.actor.uid(),
                          manifest.actor.atespace()));
}

}  // namespace

// Two uploads to one address would mix their objects; the second is turned away.
class Mover::UploadHold {
 public:
  UploadHold(Mover* mover, const std::string& uri) : mover_(mover), uri_(uri) {
    MutexLock lock(&mover_->uploads_mu_);
    held_ = mover_->uploads_.insert(uri_).second;
  }
  ~UploadHold() {
    MutexLock lock(&mover_->uploads_mu_);
    if (held_) mover_->uploads_.erase(uri_);
  }
  UploadHold(const UploadHold&) = delete;
  UploadHold& operator=(const UploadHold&) = delete;
  bool held() const { return held_; }

 private:
  Mover* const mover_;
  const std::string uri_;
  bool held_ = false;
};

StatusOr<std::unique_ptr<Mover>> Mover::Create(const MoverOptions& options,
                                               const objstore::StoreRegistry* stores,
                                               ImagePuller* images, Clock* clock) {
  std::vector<objstore::Uri> allowed;
  for (const std::string& text : options.allowed_storage) {
    auto uri = objstore::ParseUri(text);
    if (!uri.ok()) return Annotate(uri.status(), "allowed-storage");
    allowed.push_back(std::move(*uri));
  }
  ASSIGN_OR_RETURN(os::DirFd node_dir, os::DirFd::OpenPath(options.node_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<snapshot::Resources> resources,
                   snapshot::Resources::Create(options.resources, clock));
  return std::unique_ptr<Mover>(new Mover(options, stores, images, clock, std::move(node_dir),
                                          std::move(allowed), std::move(resources)));
}

Mover::Mover(const MoverOptions& options, const objstore::StoreRegistry* stores,
             ImagePuller* images, Clock* clock, os::DirFd node_dir,
             std::vector<objstore::Uri> allowed, std::unique_ptr<snapshot::Resources> resources)
    : stores_(stores),
      images_(images),
      node_dir_(std::move(node_dir)),
      allowed_(std::move(allowed)),
      resources_(std::move(resources)),
      clock_(clock),
      operations_(clock, options.metrics) {}

StatusOr<objstore::Uri> Mover::CheckStorage(const std::string& text) const {
  ASSIGN_OR_RETURN(objstore::Uri uri, objstore::ParseUri(text));
  for (const objstore::Uri& allowed : allowed_) {
    if (objstore::IsAtOrBelow(uri, allowed)) return uri;
  }
  return Fail(reasons::kStoreDenied,
              "this storage is not in --allowed-storage of the mover; use another "
              "storage_location or allow it");
}

void Mover::AbortOldUploads() const {
  for (const objstore::Uri& uri : allowed_) {
    auto abort = [&]() -> Status {
      ASSIGN_OR_RETURN(objstore::Place at, stores_->Resolve(uri));
      return at.store->AbortUploads(at.key, clock_->WallNow() - kOldUpload);
    };
    const Status status = abort();
    if (status.ok()) continue;
    LogWarning("parts of uploads that died may lie in the storage",
               {{"storage", uri.ToString()}, {"error", std::string(status.message())}});
  }
}

StatusOr<Operation> Mover::Upload(const torpor::v1::UploadRequest& request) {
  RETURN_IF_ERROR(CheckActor(request.op(), request.actor()));
  RETURN_IF_ERROR(CheckDirectory(request.source_dir(), request.actor()));
  RETURN_IF_ERROR(CheckFiles(request));
  RETURN_IF_ERROR(CheckStorage(request.uri()).status());
  ASSIGN_OR_RETURN(snapshot::SnapshotPlace place, snapshot::ParseSnapshotUri(request.uri()));
  RETURN_IF_ERROR(snapshot::CheckMayWrite(place, request.actor()));
  if (request.bases_size() > 0) {
    return Fail(reasons::kNotImplemented, "uploads against a base are not served");
  }
  return operations_.Run("Upload", request.op(), request, kUploadTimeout,
                         [&](RunningOperation* op) { return DoUpload(request, op); });
}

Status Mover::DoUpload(const torpor::v1::UploadRequest& request, RunningOperation* op) {
  PhaseRecorder::Scope phase(op->phases(), "upload");
  UploadHold hold(this, request.uri());
  if (!hold.held()) {
    return phase.Fail(Fail(reasons::kOperationInProgress,
                           "another upload to this address is running; wait for it"));
  }
  auto upload = [&]() -> Status {
    ASSIGN_OR_RETURN(objstore::Place at, stores_->Resolve(request.uri()));
    torpor::v1::UploadResult* result = op->result()->mutable_upload();
    auto there = snapshot::ReadManifest(*at.store, at.key, "");
    if (there.ok()) {
      RETURN_IF_ERROR(snapshot::CheckIdentity(there->manifest, request.actor()));
      if (there->manifest.meta.generation() != request.meta().generation()) {
        return Fail(reasons::kSnapshotIdentity, "another generation is committed at this address");
      }
      *result = snapshot::ResultOf(there->manifest, there->text);
      result->set_already_present(true);
      return OkStatus();
    }
    if (there.status().code() != Code::kNotFound) return there.status();
    auto source = node_dir_.OpenDir(request.source_dir());
    if (source.status().code() == Code::kNotFound) {
      return Fail(reasons::kLocalSnapshotGone, "source_dir does not exist");
    }
    if (!source.ok()) return source.status();
    ASSIGN_OR_RETURN(snapshot::Manifest local, ReadLocal(*source));
    snapshot::SaveArgs args;
    ASSIGN_OR_RETURN(args.manifest, DurableManifest(local, request));
    args.source = &*source;
    args.store = at.store.get();
    args.prefix = at.key;
    args.resources = resources_.get();
    args.transfer = op->transfer();
    ASSIGN_OR_RETURN(*result, snapshot::SaveSnapshot(std::move(args)));
    phase.SetBytes(result->sent_bytes());
    return OkStatus();
  };
  return phase.Fail(upload());
}

StatusOr<Operation> Mover::Fetch(const torpor::v1::FetchRequest& request) {
  RETURN_IF_ERROR(CheckActor(request.op(), request.actor()));
  if (request.target_dir().empty()) {
    return Fail(reasons::kNotImplemented, "target_dir is missing; there is no cache to fill");
  }
  RETURN_IF_ERROR(CheckDirectory(request.target_dir(), request.actor()));
  RETURN_IF_ERROR(CheckStorage(request.snapshot().uri()).status());
  ASSIGN_OR_RETURN(snapshot::SnapshotPlace place,
                   snapshot::ParseSnapshotUri(request.snapshot().uri()));
  RETURN_IF_ERROR(snapshot::CheckMayRead(place, request.actor()));
  return operations_.Run("Fetch", request.op(), request, kFetchTimeout,
                         [&](RunningOperation* op) { return DoFetch(request, op); });
}

Status Mover::DoFetch(const torpor::v1::FetchRequest& request, RunningOperation* op) {
  PhaseRecorder::Scope phase(op->phases(), "fetch");
  auto fetch = [&]() -> Status {
    ASSIGN_OR_RETURN(snapshot::SnapshotPlace place,
                     snapshot::ParseSnapshotUri(request.snapshot().uri()));
    ASSIGN_OR_RETURN(objstore::Place at, stores_->Resolve(request.snapshot().uri()));
    auto target = node_dir_.OpenDir(request.target_dir());
    if (target.status().code() == Code::kNotFound) return Bad("target_dir does not exist");
    if (!target.ok()) return target.status();
    snapshot::LoadArgs args;
    args.target = &*target;
    args.store = at.store.get();
    args.prefix = at.key;
    args.manifest_sha256 = request.snapshot().manifest_sha256();
    args.fidelity = request.fidelity();
    args.accept = [&](const snapshot::Manifest& manifest) { return CheckOwner(place, manifest); };
    args.resources = resources_.get();
    args.transfer = op->transfer();
    ASSIGN_OR_RETURN(*op->result()->mutable_fetch(), snapshot::LoadSnapshot(args));
    phase.SetBytes(op->result()->fetch().fetched_bytes());
    return OkStatus();
  };
  return phase.Fail(fetch());
}

StatusOr<Operation> Mover::PullImage(const torpor::v1::PullImageRequest& request) {
  RETURN_IF_ERROR(ParseImageReference(request.reference()).status());
  if (!request.architecture().empty() && !IsLabel(request.architecture())) {
    return Bad("architecture must be a word such as amd64");
  }
  return operations_.Run("PullImage", request.op(), request, kPullTimeout,
                         [&](RunningOperation* op) { return DoPullImage(request, op); });
}

Status Mover::DoPullImage(const torpor::v1::PullImageRequest& request, RunningOperation* op) {
  PhaseRecorder::Scope phase(op->phases(), "image");
  Status status = images_->Pull(request.reference(), request.architecture(), op->transfer());
  phase.SetBytes(op->transfer()->done_bytes());
  return phase.Fail(std::move(status));
}

StatusOr<torpor::v1::StatSnapshotResponse> Mover::StatSnapshot(
    const torpor::v1::StatSnapshotRequest& request) {
  ASSIGN_OR_RETURN(objstore::Uri uri, CheckStorage(request.uri()));
  RETURN_IF_ERROR(snapshot::ParseSnapshotUri(request.uri()).status());
  ASSIGN_OR_RETURN(objstore::Place at, stores_->Resolve(uri));
  torpor::v1::StatSnapshotResponse out;
  auto committed = snapshot::ReadManifest(*at.store, at.key, "");
  if (committed.status().code() == Code::kNotFound) return out;
  if (!committed.ok()) return committed.status();
  out.set_committed(true);
  out.set_manifest_sha256(committed->sha256);
  *out.mutable_meta() = committed->manifest.meta;
  out.set_stored_bytes(snapshot::ResultOf(committed->manifest, committed->text).stored_bytes());
  return out;
}

}  // namespace torpor::mover
