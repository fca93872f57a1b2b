#pragma once
// torpor::Status on the wire of gRPC and back.
//
// The details of a status travel as a serialized google.rpc.Status in the trailer
// grpc-status-details-bin, where every gRPC library looks for them. Pure functions.

#include <grpcpp/support/status.h>

#include "base/status.h"

namespace torpor::rpc {

// Every error leaves with one ErrorInfo: a status without one gets the reason that its code implies
// (INTERNAL where it implies none). Message and details are cut to what the metadata limit of
// common clients (8 KiB) lets through: violations are dropped from the end, the ErrorInfo never.
grpc::Status ToGrpc(const Status& status);

// Errors made by gRPC itself (no connection, deadline, cancelled) carry no details, so ReasonOf is
// empty: that tells "the transport failed" from "the server answered".
Status FromGrpc(const grpc::Status& status);

// The end of a unary handler: `result` becomes the response or the error.
template <typename Response>
grpc::Status Answer(StatusOr<Response> result, Response* response) {
  if (!result.ok()) return ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace torpor::rpc
