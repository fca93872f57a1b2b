#include "worker/op_table.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <fmt/format.h>

#include "base/trace.h"
#include "base/uuid.h"
#include "model/reasons.h"

namespace torpor::worker {
namespace {

using torpor::v1::GetOperationRequest;
using torpor::v1::Operation;
using torpor::v1::OpHeader;

constexpr Duration kDefaultTimeout = std::chrono::minutes(2);
constexpr Duration kTimeoutMax = std::chrono::hours(1);
constexpr Duration kKeep = std::chrono::hours(24);
constexpr Duration kWaitMax = std::chrono::seconds(60);

Duration TimeoutOf(const OpHeader& header) {
  if (!header.has_timeout()) return kDefaultTimeout;
  return std::clamp<Duration>(FromProto(header.timeout()), Duration::zero(), kTimeoutMax);
}

Status CheckHeader(const OpHeader& header) {
  std::vector<FieldViolation> bad;
  if (!IsUuid(header.op_id())) bad.push_back({"op.op_id", "must be a uuid in lower case"});
  if (!IsUuid(header.actor_uid())) bad.push_back({"op.actor_uid", "must be a uuid in lower case"});
  if (header.generation() <= 0) bad.push_back({"op.generation", "must be above 0"});
  return bad.empty() ? OkStatus() : InvalidFields("FIELD_INVALID", bad);
}

Status Superseded() {
  return Fail(reasons::kSuperseded, "a request with a higher generation took its place");
}

}  // namespace

Op::Op(const OpHeader& header, std::string_view method, uint64_t body, Clock* clock)
    : clock_(clock),
      method_(method),
      body_(body),
      deadline_(clock->Now() + TimeoutOf(header)),
      superseded_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      phases_("worker", clock) {
  operation_.set_op_id(header.op_id());
  operation_.set_method(std::string(method));
  operation_.set_actor_uid(header.actor_uid());
  operation_.set_generation(header.generation());
  operation_.set_state(Operation::STATE_RUNNING);
  *operation_.mutable_start_time() = ToProto(clock->WallNow());
}

void Op::Supersede() { eventfd_write(superseded_.get(), 1); }

Status Op::CheckGoOn() const {
  pollfd asked = {.fd = superseded_.get(), .events = POLLIN, .revents = 0};
  if (poll(&asked, 1, 0) > 0) return Superseded();
  if (clock_->Now() >= deadline_) {
    return Fail(reasons::kDeadlineExceeded, "the operation's time is over");
  }
  return OkStatus();
}

uint64_t OpTable::HashMessage(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // maps have an order then
    message.SerializeToCodedStream(&coded);
  }
  return std::hash<std::string>()(bytes);
}

StatusOr<std::shared_ptr<Op>> OpTable::Begin(const OpHeader& header, std::string_view method,
                                             uint64_t body, std::shared_ptr<Op>* known) {
  RETURN_IF_ERROR(CheckHeader(header));
  auto op = std::make_shared<Op>(header, method, body, clock_);
  MutexLock lock(&mu_);
  Forget();
  while (true) {
    if (refused_.count(header.op_id()) > 0) return Superseded();
    if (auto it = ops_.find(header.op_id()); it != ops_.end()) {
      if (it->second->method_ != method || it->second->body_ != body) {
        return Fail(reasons::kRequestIdReused,
                    "this op_id belongs to another request; use a new one");
      }
      *known = it->second;
      return std::shared_ptr<Op>();
    }
    ActorFence& fence = actors_[header.actor_uid()];
    if (header.generation() < fence.highest) {
      return Fail(reasons::kStaleGeneration,
                  fmt::format("generation {} is below {}", header.generation(), fence.highest),
                  {{"highest", fmt::to_string(fence.highest)}});
    }
    if (fence.running == nullptr) break;
    int64_t running = fence.running->operation_.generation();
    if (header.generation() <= running) {
      return Fail(reasons::kOperationInProgress,
                  fmt::format("{} of this actor is running", fence.running->method_));
    }
    fence.running->Supersede();
    fence.highest = header.generation();
    if (!changed_.WaitUntil(&mu_, op->deadline()) && clock_->Now() >= op->deadline()) {
      return Fail(reasons::kOperationInProgress, "the superseded operation has not ended yet");
    }
  }
  ActorFence& fence = actors_[header.actor_uid()];
  fence.highest = header.generation();
  fence.seen = clock_->Now();
  fence.running = op;
  ops_[header.op_id()] = op;
  return op;
}

StatusOr<Operation> OpTable::RunHashed(const OpHeader& header, std::string_view method,
                                       uint64_t body, const std::function<Status(Op&)>& work) {
  std::shared_ptr<Op> known;
  ASSIGN_OR_RETURN(std::shared_ptr<Op> op, Begin(header, method, body, &known));
  if (op == nullptr) {
    MutexLock lock(&mu_);
    // Its own deadline ends it, so this ends, too.
    while (!known->done_) changed_.Wait(&mu_);
    return known->operation_;
  }
  LogTrace trace(header.traceparent());
  Status status = work(*op);
  Operation& operation = op->operation_;
  operation.set_state(status.ok() ? Operation::STATE_SUCCEEDED : Operation::STATE_FAILED);
  if (!status.ok()) {
    operation.clear_result();
    operation.mutable_error()->ParseFromString(SerializeStatus(status));
  }
  for (torpor::v1::Phase& phase : op->phases_.phases()) {
    *operation.add_phases() = std::move(phase);
  }
  *operation.mutable_end_time() = ToProto(clock_->WallNow());
  metrics_.Ended(operation);
  MutexLock lock(&mu_);
  op->done_ = true;
  op->ended_ = clock_->Now();
  ended_.emplace(op->ended_, operation.op_id());
  ActorFence& fence = actors_[operation.actor_uid()];
  fence.running = nullptr;  // so nobody supersedes it any more
  op->superseded_.Reset();
  fence.seen = op->ended_;
  changed_.SignalAll();
  return operation;
}

Operation OpTable::Snapshot(const Op& op) const {
  if (op.done_) return op.operation_;
  Operation running;
  running.set_op_id(op.operation_.op_id());
  running.set_method(op.method_);
  running.set_actor_uid(op.operation_.actor_uid());
  running.set_generation(op.operation_.generation());
  running.set_state(Operation::STATE_RUNNING);
  *running.mutable_start_time() = op.operation_.start_time();
  for (torpor::v1::Phase& phase : op.phases_.phases()) *running.add_phases() = std::move(phase);
  return running;
}

StatusOr<Operation> OpTable::Get(const GetOperationRequest& request) {
  if (!IsUuid(request.op_id())) {
    return InvalidFields("FIELD_INVALID", {{"op_id", "must be a uuid in lower case"}});
  }
  MonotonicTime until =
      clock_->Now() + std::clamp<Duration>(FromProto(request.wait()), Duration::zero(), kWaitMax);
  MutexLock lock(&mu_);
  auto it = ops_.find(request.op_id());
  if (it == ops_.end()) {
    if (request.refuse_if_unknown()) refused_[request.op_id()] = clock_->Now();
    return Fail(reasons::kOperationNotFound, "no operation with this op_id");
  }
  std::shared_ptr<Op> op = it->second;
  while (!op->done_ && clock_->Now() < until) (void)changed_.WaitUntil(&mu_, until);
  return Snapshot(*op);
}

void OpTable::Forget() {
  MonotonicTime now = clock_->Now();
  while (!ended_.empty() && (ended_.size() > kOutcomesMax || now - ended_.begin()->first > kKeep)) {
    ops_.erase(ended_.begin()->second);
    ended_.erase(ended_.begin());
  }
  if (actors_.size() > kOutcomesMax) {
    std::erase_if(actors_, [&](const auto& entry) {
      return entry.second.running == nullptr && now - entry.second.seen > kKeep;
    });
  }
  if (refused_.size() > kOutcomesMax) {
    std::erase_if(refused_, [&](const auto& entry) { return now - entry.second > kKeep; });
  }
}

}  // namespace torpor::worker
