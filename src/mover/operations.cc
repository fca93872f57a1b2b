#include "mover/operations.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "base/trace.h"
#include "base/uuid.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::mover {
namespace {

constexpr Duration kWaitMax = std::chrono::seconds(60);
constexpr Duration kTimeoutMax = std::chrono::hours(24);

// Equal for equal requests, whatever their trace and timeout.
std::string Fingerprint(std::string_view method, const google::protobuf::Message& body) {
  std::unique_ptr<google::protobuf::Message> copy(body.New());
  copy->CopyFrom(body);
  const auto* field = copy->GetDescriptor()->FindFieldByName("op");
  auto* header = copy->GetReflection()->MutableMessage(copy.get(), field);
  for (const char* name : {"timeout", "traceparent"}) {
    header->GetReflection()->ClearField(header, header->GetDescriptor()->FindFieldByName(name));
  }
  std::string bytes(method);
  bytes += '\n';
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    copy->SerializeToCodedStream(&out);
  }
  return snapshot::Sha256Hex(bytes);
}

StatusOr<Duration> TimeoutOf(const torpor::v1::OpHeader& header, Duration timeout_default) {
  if (!header.has_timeout()) return timeout_default;
  Duration timeout = FromProto(header.timeout());
  if (timeout <= Duration::zero() || timeout > kTimeoutMax) {
    return Fail(reasons::kFieldInvalid, "op.timeout must be above 0 and at most 24h");
  }
  return timeout;
}

Status Unknown(const std::string& op_id) {
  return Fail(reasons::kOperationNotFound, "no operation has this id; it was not started here",
              {{"op_id", op_id}});
}

}  // namespace

StatusOr<torpor::v1::Operation> Operations::Run(std::string_view method,
                                                const torpor::v1::OpHeader& header,
                                                const google::protobuf::Message& body,
                                                Duration timeout_default, const Work& work) {
  const std::string op_id = header.op_id();
  if (!IsUuid(op_id)) return Fail(reasons::kFieldInvalid, "op.op_id must be a uuid");
  ASSIGN_OR_RETURN(Duration timeout, TimeoutOf(header, timeout_default));
  const std::string fingerprint = Fingerprint(method, body);
  std::shared_ptr<RunningOperation> running;
  {
    MutexLock lock(&mu_);
    Forget();
    std::shared_ptr<Entry>& entry = entries_[op_id];
    if (entry == nullptr) {
      running = std::make_shared<RunningOperation>(clock_, clock_->Now() + timeout);
      entry = std::make_shared<Entry>();
      entry->fingerprint = fingerprint;
      entry->running = running;
      entry->operation.set_op_id(op_id);
      entry->operation.set_method(std::string(method));
      entry->operation.set_actor_uid(header.actor_uid());
      entry->operation.set_generation(header.generation());
      entry->operation.set_state(torpor::v1::Operation::STATE_RUNNING);
      *entry->operation.mutable_start_time() = ToProto(clock_->WallNow());
    } else if (entry->fingerprint.empty()) {
      return Fail(reasons::kSuperseded, "the operation was given up before it arrived",
                  {{"op_id", op_id}});
    } else if (entry->fingerprint != fingerprint) {
      return Fail(reasons::kFieldInvalid, "op.op_id is known with another method or body",
                  {{"op_id", op_id}});
    }
  }
  if (running != nullptr) {
    LogTrace trace(header.traceparent());
    Finish(op_id, work(running.get()));
  }
  return WaitForEnd(op_id);
}

void Operations::Finish(const std::string& op_id, Status status) {
  MutexLock lock(&mu_);
  std::shared_ptr<Entry> entry = entries_[op_id];
  torpor::v1::Operation outcome = Snapshot(*entry);
  outcome.MergeFrom(*entry->running->result());
  outcome.set_state(status.ok() ? torpor::v1::Operation::STATE_SUCCEEDED
                                : torpor::v1::Operation::STATE_FAILED);
  if (!status.ok()) {
    outcome.clear_result();
    outcome.mutable_error()->ParseFromString(SerializeStatus(status));
  }
  *outcome.mutable_end_time() = ToProto(clock_->WallNow());
  metrics_.Ended(outcome);
  entry->operation = std::move(outcome);
  entry->running.reset();
  entry->ended = clock_->Now();
  ended_order_.push_back(op_id);
  ended_.SignalAll();
}

torpor::v1::Operation Operations::Snapshot(const Entry& entry) const {
  torpor::v1::Operation out = entry.operation;
  if (entry.running == nullptr) return out;
  out.set_done_bytes(entry.running->transfer()->done_bytes());
  out.set_total_bytes(entry.running->transfer()->total_bytes());
  for (torpor::v1::Phase& phase : entry.running->phases()->phases()) {
    *out.add_phases() = std::move(phase);
  }
  return out;
}

torpor::v1::Operation Operations::WaitForEnd(const std::string& op_id) {
  MutexLock lock(&mu_);
  // Held here, so that it is not forgotten while we wait.
  std::shared_ptr<Entry> entry = entries_[op_id];
  while (entry->running != nullptr) ended_.Wait(&mu_);
  return entry->operation;
}

StatusOr<torpor::v1::Operation> Operations::Get(const torpor::v1::GetOperationRequest& request) {
  const std::string& op_id = request.op_id();
  if (!IsUuid(op_id)) return Fail(reasons::kFieldInvalid, "op_id must be a uuid");
  const Duration wait = std::clamp(FromProto(request.wait()), Duration::zero(), kWaitMax);
  const auto until = std::chrono::steady_clock::now() + wait;
  MutexLock lock(&mu_);
  auto it = entries_.find(op_id);
  if (it == entries_.end() || it->second->fingerprint.empty()) {
    if (request.refuse_if_unknown() && it == entries_.end()) {
      auto refused = std::make_shared<Entry>();
      refused->ended = clock_->Now();
      entries_[op_id] = std::move(refused);
      ended_order_.push_back(op_id);
      Forget();
    }
    return Unknown(op_id);
  }
  std::shared_ptr<Entry> entry = it->second;
  while (entry->running != nullptr && ended_.WaitUntil(&mu_, until)) {
  }
  return Snapshot(*entry);
}

StatusOr<torpor::v1::Operation> Operations::Cancel(const std::string& op_id) {
  MutexLock lock(&mu_);
  auto it = entries_.find(op_id);
  if (it == entries_.end() || it->second->fingerprint.empty()) return Unknown(op_id);
  if (it->second->running != nullptr) it->second->running->transfer()->Cancel();
  return Snapshot(*it->second);
}

void Operations::CancelAll() {
  MutexLock lock(&mu_);
  for (auto& [op_id, entry] : entries_) {
    if (entry->running != nullptr) entry->running->transfer()->Cancel();
  }
}

void Operations::Forget() {
  const MonotonicTime now = clock_->Now();
  while (!ended_order_.empty()) {
    auto it = entries_.find(ended_order_.front());
    const bool old = now - it->second->ended > kOutcomeAge;
    if (!old && ended_order_.size() <= kOutcomesMax) return;
    entries_.erase(it);
    ended_order_.pop_front();
  }
}

}  // namespace torpor::mover
