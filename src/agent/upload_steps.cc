#include <fmt/format.h>

#include "agent/steps.h"
#include "base/log.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;
using torpor::v1::UploadSnapshotRequest;

// The local copy is gone: fine if this generation has reached object storage before.
Status AnswerFromRemote(const Core& core, const Op& op, const UploadSnapshotRequest& request,
                        Operation* outcome) {
  torpor::v1::StatSnapshotRequest ask;
  ask.set_uri(request.uri());
  ASSIGN_OR_RETURN(torpor::v1::StatSnapshotResponse remote,
                   core.mover->StatSnapshot(ask, op.TimeLeft()));
  if (!remote.committed()) {
    return Fail(reasons::kLocalSnapshotGone,
                fmt::format("snapshot {} is neither on this node nor in object storage",
                            request.snapshot_name()));
  }
  torpor::v1::UploadResult* result = outcome->mutable_upload();
  result->set_manifest_sha256(remote.manifest_sha256());
  result->set_fidelity(remote.meta().fidelity());
  result->set_stored_bytes(remote.stored_bytes());
  result->set_already_present(true);
  return OkStatus();
}

Status Transfer(const Core& core, Op& op, const UploadSnapshotRequest& request,
                const snapshot::Manifest& manifest, Operation* outcome) {
  auto wanted = request.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED ? request.fidelity()
                                                                       : manifest.meta.fidelity();
  ASSIGN_OR_RETURN(std::vector<snapshot::ManifestFile> files,
                   snapshot::NarrowFiles(manifest, wanted));
  torpor::v1::UploadRequest upload;
  *upload.mutable_op() = request.op();
  *upload.mutable_op()->mutable_timeout() = ToProto(op.TimeLeft());
  *upload.mutable_actor() = manifest.actor;
  upload.set_uri(request.uri());
  upload.set_source_dir(NodeDirs::LocalPath(request.actor().uid(), request.snapshot_name()));
  for (const snapshot::ManifestFile& file : files) *upload.add_files() = file.file;
  *upload.mutable_meta() = manifest.meta;
  upload.mutable_meta()->set_fidelity(wanted);
  *upload.mutable_bases() = request.bases();
  double offset = op.phases()->ElapsedMs();
  auto operation = CallUntilKnown(
      upload.op(), op.deadline(), core.clock,
      [&](Duration timeout) { return core.mover->Upload(upload, timeout); },
      [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
        return core.mover->GetOperation(get, timeout);
      },
      core.unreachable_max);
  if (!operation.ok()) return FailedPhase(op, "upload", offset, operation.status());
  op.phases()->AddAll(operation->phases(), offset);
  RETURN_IF_ERROR(OutcomeStatus(*operation));
  *outcome->mutable_upload() = operation->upload();
  return OkStatus();
}

// Keeps prune and delete away from the directory while it is read.
class PinnedUpload {
 public:
  PinnedUpload(const Core& core, Uploads::Upload upload) : core_(core), upload_(std::move(upload)) {
    core_.snapshots->Pin(upload_.actor_uid, upload_.snapshot_name);
    core_.uploads->Add(upload_);
  }
  ~PinnedUpload() {
    core_.uploads->Remove(upload_.op_id);
    core_.snapshots->Unpin(upload_.actor_uid, upload_.snapshot_name);
  }
  PinnedUpload(const PinnedUpload&) = delete;
  PinnedUpload& operator=(const PinnedUpload&) = delete;

 private:
  const Core& core_;
  const Uploads::Upload upload_;
};

}  // namespace

Status RunUpload(const Core& core, Op& op, const UploadSnapshotRequest& request,
                 Operation* outcome) {
  RETURN_IF_ERROR(op.Step("UPLOAD", /*may_stop=*/true));
  // Pinned before it is looked at, so that it cannot go in between.
  auto peek = core.snapshots->Read(request.actor().uid(), request.snapshot_name());
  int64_t generation = peek.ok() ? peek->meta.generation() : 0;
  PinnedUpload pin(core, {op.id(), request.actor().uid(), request.snapshot_name(), generation});
  auto manifest = core.snapshots->Verify(request.actor(), request.snapshot_name(), generation);
  if (manifest.status().code() == Code::kDataLoss &&
      ReasonOf(manifest.status()) == reasons::kLocalSnapshotGone.name) {
    return AnswerFromRemote(core, op, request, outcome);
  }
  RETURN_IF_ERROR(manifest.status());
  return Transfer(core, op, request, *manifest, outcome);
}

}  // namespace torpor::agent
