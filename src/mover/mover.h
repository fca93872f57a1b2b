#pragma once
// The mover: carries snapshots between the node directory and object storage, and images from
// registries. It mirrors torpor.v1.Mover method for method; mover/rpc puts it on a socket.
//
// It holds the credentials and gets no sandbox. Every path is opened beneath the node directory
// without following a link, a snapshot is written only below the tree of its own actor, and only to
// storage that the configuration allows.
//
// Thread-safe. Upload, Fetch and PullImage block until their operation has ended and answer with
// its outcome; a caller that leaves cancels nothing. A Status other than OK means "not accepted"
// (bad or forbidden request); a failure of the work is an Operation with state FAILED. An operation
// id given again joins or returns the first outcome (operations.h). Operations are not journaled:
// after a restart of the mover the id is unknown and the caller sends the request again, which is
// right because both directions are idempotent.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "mover/image_puller.h"
#include "mover/operations.h"
#include "objstore/registry.h"
#include "os/fs/dir_fd.h"
#include "snapshot/transfer/resources.h"
#include "torpor/v1/mover.pb.h"

namespace torpor::mover {

struct MoverOptions {
  std::string node_dir;                      // absolute; exists
  std::vector<std::string> allowed_storage;  // addresses at or below which snapshots may lie
  snapshot::ResourceOptions resources;       // memory, processors, compression
  OperationMetrics metrics;
};

class Mover {
 public:
  // `stores`, `images` and `clock` outlive the mover. Errors are those of opening the node
  // directory and INVALID_ARGUMENT for a malformed allowed address or too little memory.
  static StatusOr<std::unique_ptr<Mover>> Create(const MoverOptions& options,
                                                 const objstore::StoreRegistry* stores,
                                                 ImagePuller* images, Clock* clock);

  StatusOr<torpor::v1::Operation> Upload(const torpor::v1::UploadRequest& request)
      EXCLUDES(uploads_mu_);
  StatusOr<torpor::v1::Operation> Fetch(const torpor::v1::FetchRequest& request);
  StatusOr<torpor::v1::Operation> PullImage(const torpor::v1::PullImageRequest& request);
  StatusOr<torpor::v1::StatSnapshotResponse> StatSnapshot(
      const torpor::v1::StatSnapshotRequest& request);
  StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& request) {
    return operations_.Get(request);
  }
  StatusOr<torpor::v1::Operation> CancelOperation(
      const torpor::v1::CancelOperationRequest& request) {
    return operations_.Cancel(request.op_id());
  }
  // Ends uploads in the allowed storage that have been open for a day: no operation lasts so long.
  // What fails is logged.
  void AbortOldUploads() const;
  // For the end of the process: running operations end with CANCELLED soon.
  void CancelAll() { operations_.CancelAll(); }

 private:
  class UploadHold;

  Mover(const MoverOptions& options, const objstore::StoreRegistry* stores, ImagePuller* images,
        Clock* clock, os::DirFd node_dir, std::vector<objstore::Uri> allowed,
        std::unique_ptr<snapshot::Resources> resources);

  // Parses the address, and refuses what the configuration does not allow.
  StatusOr<objstore::Uri> CheckStorage(const std::string& uri) const;
  Status DoUpload(const torpor::v1::UploadRequest& request, RunningOperation* op);
  Status DoFetch(const torpor::v1::FetchRequest& request, RunningOperation* op);
  Status DoPullImage(const torpor::v1::PullImageRequest& request, RunningOperation* op);

  const objstore::StoreRegistry* const stores_;
  ImagePuller* const images_;
  const os::DirFd node_dir_;
  const std::vector<objstore::Uri> allowed_;
  const std::unique_ptr<snapshot::Resources> resources_;
  Clock* const clock_;
  Operations operations_;
  Mutex uploads_mu_;
  std::set<std::string> uploads_ GUARDED_BY(uploads_mu_);  // addresses that are being written
};

}  // namespace torpor::mover
