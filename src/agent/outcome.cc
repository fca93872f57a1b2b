#include "agent/outcome.h"

#include <thread>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/log.h"
#include "google/rpc/status.pb.h"
#include "model/reasons.h"

namespace torpor::agent {

using torpor::v1::Operation;

google::rpc::Status ToRpcStatus(const Status& status) {
  google::rpc::Status out;
  // The bytes were made by SerializeStatus just now.
  CHECK(out.ParseFromString(SerializeStatus(status)));
  return out;
}

Status FromRpcStatus(const google::rpc::Status& status) {
  return ParseStatus(status.SerializeAsString(), Code::kInternal, "an error without details");
}

Status OutcomeStatus(const Operation& operation) {
  if (operation.state() != Operation::STATE_FAILED) return OkStatus();
  Status status = FromRpcStatus(operation.error());
  if (!status.ok()) return status;
  return Fail(reasons::kInternal, "the operation failed without saying why");
}

bool IsUnknownOutcome(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kCancelled ||
         status.code() == Code::kDeadlineExceeded;
}

std::string DeriveOpId(const std::string& op_id, const std::string& purpose) {
  std::string text = op_id + "/" + purpose;
  XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  std::string hex = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  hex[12] = '8';  // version 8: made by the application's own rule
  hex[16] = 'a';
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

StatusOr<Operation> AskUntilKnown(const std::string& op_id, MonotonicTime deadline, Clock* clock,
                                  const OperationQuery& query, Duration unreachable_max) {
  const MonotonicTime give_up = deadline + kOutcomeGrace;
  MonotonicTime reached = clock->Now();
  Duration pause = std::chrono::milliseconds(20);
  for (;;) {
    torpor::v1::GetOperationRequest get;
    get.set_op_id(op_id);
    get.set_refuse_if_unknown(true);
    Duration wait = std::min<Duration>(std::chrono::seconds(30), give_up - clock->Now());
    *get.mutable_wait() = ToProto(std::max(wait, Duration(0)));
    auto answer = query(get, wait + std::chrono::seconds(5));
    MonotonicTime now = clock->Now();
    if (answer.ok()) {
      if (answer->state() != Operation::STATE_RUNNING) return answer;
      reached = now;
    } else if (!IsUnknownOutcome(answer.status())) {
      return answer;
    }
    if (now >= give_up) {
      return Fail(reasons::kDeadlineExceeded, "the operation has still not ended",
                  {{"op_id", op_id}});
    }
    if (now - reached >= unreachable_max) return answer.ok() ? answer : answer.status();
    if (!answer.ok()) {
      std::this_thread::sleep_for(pause);
      pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(500));
    }
  }
}

StatusOr<Operation> CallUntilKnown(const torpor::v1::OpHeader& header, MonotonicTime deadline,
                                   Clock* clock, const OperationCall& call,
                                   const OperationQuery& query, Duration unreachable_max) {
  auto answer = call(std::max(Duration(0), deadline - clock->Now()) + kOutcomeGrace);
  if (answer.ok() && answer->state() != Operation::STATE_RUNNING) return answer;
  if (!answer.ok() && !IsUnknownOutcome(answer.status())) return answer;
  auto known = AskUntilKnown(header.op_id(), deadline, clock, query, unreachable_max);
  if (!known.ok() && known.status().code() == Code::kNotFound && !answer.ok()) {
    return answer.status();
  }
  return known;
}

}  // namespace torpor::agent
