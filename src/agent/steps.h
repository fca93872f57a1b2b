#pragma once
// The operations of node.md 4, step by step. Each step is journaled before its effect; a returned
// error is the operation's outcome, with guest_alive or guest_ran in its metadata (common.proto).
//
// Run on the thread of the caller. `outcome` gets the result on success.

#include "agent/core.h"
#include "base/status.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

Status RunStart(const Core& core, Op& op, const torpor::v1::StartActorRequest& request,
                torpor::v1::Operation* outcome);
Status RunCapture(const Core& core, Op& op, const torpor::v1::CaptureActorRequest& request,
                  torpor::v1::Operation* outcome);
Status RunUpload(const Core& core, Op& op, const torpor::v1::UploadSnapshotRequest& request,
                 torpor::v1::Operation* outcome);
Status RunStop(const Core& core, Op& op, const torpor::v1::StopActorRequest& request,
               torpor::v1::Operation* outcome);
Status RunDeleteLocal(const Core& core, Op& op,
                      const torpor::v1::DeleteLocalSnapshotsRequest& request,
                      torpor::v1::Operation* outcome);

// CHECK, COMMIT and DONE of a capture whose files are complete; also what recovery does.
Status FinishCapture(const Core& core, Op& op, const torpor::v1::CaptureActorRequest& request,
                     const torpor::v1::CaptureResult& captured, torpor::v1::Operation* outcome);
// The outcome of a capture whose directory is committed already.
Status ReportCommitted(const Core& core, const torpor::v1::CaptureActorRequest& request,
                       const snapshot::Manifest& manifest, torpor::v1::Operation* outcome);

// A failed capture as the control plane judges it: `alive` goes into the metadata, and code and
// reason say the same. A guest that is gone is an INTERNAL crash reason (RUNTIME_FAILED unless the
// status has one), a guest that lives is never one (INTERNAL INTERNAL then). The reason that was
// replaced stays as metadata `cause`. Pure.
Status WithGuest(Status status, bool alive);

// Keys of ErrorInfo.metadata.
inline constexpr char kGuestAlive[] = "guest_alive";
inline constexpr char kGuestRan[] = "guest_ran";

}  // namespace torpor::agent
