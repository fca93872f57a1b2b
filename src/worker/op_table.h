#pragma once
// The operations of a worker: what runs, what ended how, and which requests may begin.
//
// The rules of every method with an OpHeader: a repeated op_id joins or returns the first outcome;
// the same id with another method or body is INVALID_ARGUMENT REQUEST_ID_REUSED; a generation below
// the highest seen of the actor is FAILED_PRECONDITION STALE_GENERATION; one operation per actor at
// a time, else ABORTED OPERATION_IN_PROGRESS; a higher generation asks the running operation to end
// (SUPERSEDED) and waits for it. Held in memory: the worker's sandboxes do not outlive it, so its
// operations need not either. Outcomes are kept 24 h, at most kOutcomesMax of them.
//
// Thread-safe. Work runs on the calling thread.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "model/operation_metrics.h"
#include "model/phases.h"
#include "torpor/v1/common.pb.h"

namespace torpor::worker {

// One running operation, as its work sees it.
class Op {
 public:
  Op(const torpor::v1::OpHeader& header, std::string_view method, uint64_t body, Clock* clock);

  MonotonicTime deadline() const { return deadline_; }
  PhaseRecorder* phases() { return &phases_; }
  // Readable once the operation has been superseded.
  int superseded_fd() const { return superseded_.get(); }
  // OK, or ABORTED SUPERSEDED, or DEADLINE_EXCEEDED: asked between steps.
  Status CheckGoOn() const;
  // Filled by the work when it succeeds.
  torpor::v1::Operation* result() { return &operation_; }

 private:
  friend class OpTable;
  void Supersede();

  Clock* const clock_;
  const std::string method_;
  const uint64_t body_;
  const MonotonicTime deadline_;
  UniqueFd superseded_;  // closed with the end: outcomes are kept for long
  PhaseRecorder phases_;
  torpor::v1::Operation operation_;  // of the worker thread while it runs, then constant
  bool done_ = false;                // guarded by the table's mutex
  MonotonicTime ended_;
};

class OpTable {
 public:
  static constexpr size_t kOutcomesMax = 20000;

  explicit OpTable(Clock* clock, OperationMetrics metrics = {})
      : clock_(clock), metrics_(std::move(metrics)) {}

  // `request` is the whole message, its field `op` is the header. Returns when the operation ended;
  // an error means that it was not accepted.
  template <typename Request>
  StatusOr<torpor::v1::Operation> Run(std::string_view method, const Request& request,
                                      const std::function<Status(Op&)>& work) {
    Request body = request;
    // A resend may be traced anew and have less time left; it is the same request.
    body.mutable_op()->clear_traceparent();
    body.mutable_op()->clear_timeout();
    return RunHashed(request.op(), method, HashMessage(body), work);
  }

  // NOT_FOUND OPERATION_NOT_FOUND for an unknown id.
  StatusOr<torpor::v1::Operation> Get(const torpor::v1::GetOperationRequest& request) EXCLUDES(mu_);

 private:
  static uint64_t HashMessage(const google::protobuf::Message& message);
  StatusOr<torpor::v1::Operation> RunHashed(const torpor::v1::OpHeader& header,
                                            std::string_view method, uint64_t body,
                                            const std::function<Status(Op&)>& work) EXCLUDES(mu_);
  // Returns the operation to run, or sets `*known` to one to join.
  StatusOr<std::shared_ptr<Op>> Begin(const torpor::v1::OpHeader& header, std::string_view method,
                                      uint64_t body, std::shared_ptr<Op>* known) EXCLUDES(mu_);
  void Forget() REQUIRES(mu_);
  torpor::v1::Operation Snapshot(const Op& op) const REQUIRES(mu_);

  struct ActorFence {
    int64_t highest = 0;
    MonotonicTime seen;
    std::shared_ptr<Op> running;
  };

  Clock* const clock_;
  const OperationMetrics metrics_;
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<Op>> ops_ GUARDED_BY(mu_);
  std::multimap<MonotonicTime, std::string> ended_ GUARDED_BY(mu_);  // op ids by their end
  std::map<std::string, ActorFence> actors_ GUARDED_BY(mu_);
  std::map<std::string, MonotonicTime> refused_ GUARDED_BY(mu_);  // ids that must never start
};

}  // namespace torpor::worker
