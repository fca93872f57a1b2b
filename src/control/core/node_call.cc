#include "control/core/node_call.h"

#include <algorithm>

#include "google/rpc/status.pb.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(250);
constexpr Duration kQueryBackoffMax = std::chrono::seconds(5);
// GetOperation waits on the node; between two of them only this.
constexpr Duration kQueryAgain = std::chrono::milliseconds(200);

bool IsUnknown(Code code) {
  return code == Code::kUnavailable || code == Code::kCancelled || code == Code::kDeadlineExceeded;
}

// Refused for now by a node that is busy with the actor, or that has just registered again.
bool IsBusy(const Status& status) {
  std::string reason = ReasonOf(status);
  return reason == reasons::kOperationInProgress.name || reason == reasons::kStaleLease.name;
}

void AskLater(torpor::v1::NodeCall& call, bool unknown, Duration after, WallTime now) {
  call.set_unknown(unknown);
  call.set_queries(call.queries() + 1);
  *call.mutable_query_time() = ToProto(now + std::chrono::duration_cast<WallTime::duration>(after));
}

Status OperationStatus(const torpor::v1::Operation& operation) {
  Status status = ParseStatus(operation.error().SerializeAsString(), Code::kInternal,
                              "the node reports a failure without a cause");
  if (status.ok()) {
    status = Fail(reasons::kInternal, "the node reports a failure without a cause");
  }
  return status;
}

}  // namespace

Verdict Judge(Code code, std::string_view reason) {
  if (code == Code::kDataLoss || (code == Code::kInternal && IsCrashReason(reason))) {
    return Verdict::kCrash;
  }
  switch (code) {
    case Code::kUnavailable:
    case Code::kResourceExhausted:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
    case Code::kAborted:
    case Code::kInternal:
    case Code::kUnknown:
      return Verdict::kRetry;
    case Code::kFailedPrecondition:
      return reason == reasons::kStaleLease.name || reason == reasons::kActorBusy.name
                 ? Verdict::kRetry
                 : Verdict::kGiveUp;
    default:
      return Verdict::kGiveUp;
  }
}

Duration Backoff(int attempts, Duration cap) {
  Duration wait = kFirstBackoff * (int64_t{1} << std::clamp(attempts, 0, 20));
  return std::min(wait, cap);
}

CallOutcome Resolve(torpor::v1::NodeCall& call, const StatusOr<torpor::v1::Operation>& answer,
                    bool query, bool refused, WallTime now) {
  CallOutcome outcome;
  if (answer.ok()) {
    outcome.accepted = true;
    outcome.operation = *answer;
    if (answer->state() == torpor::v1::Operation::STATE_SUCCEEDED) {
      outcome.state = CallState::kSucceeded;
    } else if (answer->state() == torpor::v1::Operation::STATE_FAILED) {
      outcome.state = CallState::kFailed;
      outcome.error = OperationStatus(*answer);
    } else {
      AskLater(call, /*unknown=*/true, kQueryAgain, now);
    }
    return outcome;
  }
  const Status& status = answer.status();
  if (query) {
    if (status.code() != Code::kNotFound) {
      AskLater(call, /*unknown=*/true, Backoff(call.queries(), kQueryBackoffMax), now);
    } else if (refused) {
      outcome.state = CallState::kFailed;
      outcome.error = Fail(reasons::kDeadlineExceeded, "the node never began the operation");
    } else {
      AskLater(call, /*unknown=*/false, Duration::zero(), now);  // never began: send it again
    }
    return outcome;
  }
  if (IsUnknown(status.code())) {
    AskLater(call, /*unknown=*/true, Backoff(call.queries(), kQueryBackoffMax), now);
  } else if (IsBusy(status)) {
    AskLater(call, /*unknown=*/false, Backoff(call.queries(), kQueryBackoffMax), now);
  } else {
    outcome.state = CallState::kFailed;
    outcome.error = status;
  }
  return outcome;
}

torpor::v1::OpHeader* Header(torpor::v1::NodeCall& call) {
  switch (call.request_case()) {
    case torpor::v1::NodeCall::kStart:
      return call.mutable_start()->mutable_op();
    case torpor::v1::NodeCall::kCapture:
      return call.mutable_capture()->mutable_op();
    case torpor::v1::NodeCall::kUpload:
      return call.mutable_upload()->mutable_op();
    case torpor::v1::NodeCall::kDeleteLocal:
      return call.mutable_delete_local()->mutable_op();
    default:
      return call.mutable_stop()->mutable_op();
  }
}

void Renew(torpor::v1::NodeCall& call, std::string op_id, WallTime now) {
  call.set_op_id(op_id);
  Header(call)->set_op_id(std::move(op_id));
  call.set_unknown(false);
  call.clear_query_time();
  call.set_queries(0);
  *call.mutable_sent_time() = ToProto(now);
}

std::string MethodName(const torpor::v1::NodeCall& call) {
  switch (call.request_case()) {
    case torpor::v1::NodeCall::kStart:
      return "StartActor";
    case torpor::v1::NodeCall::kCapture:
      return "CaptureActor";
    case torpor::v1::NodeCall::kUpload:
      return "UploadSnapshot";
    case torpor::v1::NodeCall::kDeleteLocal:
      return "DeleteLocalSnapshots";
    default:
      return "StopActor";
  }
}

}  // namespace torpor::control::core
