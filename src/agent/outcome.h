#pragma once
// Asking another process for an operation until its outcome is known.

#include <functional>

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/common.pb.h"

namespace torpor::agent {

using OperationCall = std::function<StatusOr<torpor::v1::Operation>(Duration timeout)>;
using OperationQuery = std::function<StatusOr<torpor::v1::Operation>(
    const torpor::v1::GetOperationRequest& request, Duration timeout)>;

// A callee that is gone for this long is restarted, and what it ran has ended with it.
inline constexpr Duration kUnreachableMax = std::chrono::seconds(5);
// A callee ends an operation shortly after its deadline: a teardown takes up to 30 s.
inline constexpr Duration kOutcomeGrace = std::chrono::seconds(40);

// Sends `call` and, when its answer is lost or says RUNNING, asks `query` until the operation
// ended. An id that the callee does not know is refused there for good, so it cannot start later:
// then the error of the call is returned. UNAVAILABLE when the callee cannot be reached for
// `unreachable_max`; DEADLINE_EXCEEDED when it still runs some time after `deadline`.
StatusOr<torpor::v1::Operation> CallUntilKnown(const torpor::v1::OpHeader& header,
                                               MonotonicTime deadline, Clock* clock,
                                               const OperationCall& call,
                                               const OperationQuery& query,
                                               Duration unreachable_max = kUnreachableMax);

// The same for an operation that was sent earlier.
StatusOr<torpor::v1::Operation> AskUntilKnown(const std::string& op_id, MonotonicTime deadline,
                                              Clock* clock, const OperationQuery& query,
                                              Duration unreachable_max = kUnreachableMax);

// Errors that leave open whether the callee has accepted the request.
bool IsUnknownOutcome(const Status& status);

// An id for an inner call that must be the same after a restart: a uuid made of both texts.
std::string DeriveOpId(const std::string& op_id, const std::string& purpose);

google::rpc::Status ToRpcStatus(const Status& status);
Status FromRpcStatus(const google::rpc::Status& status);
// A FAILED operation as the status it failed with; OK for any other.
Status OutcomeStatus(const torpor::v1::Operation& operation);

}  // namespace torpor::agent
