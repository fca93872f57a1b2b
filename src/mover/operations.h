#pragma once
// The operations of this mover by id: joined when repeated, waited for, cancelled, remembered.
//
// Thread-safe. In memory only (mover.h says why). Outcomes are kept for a day, at most
// kOutcomesMax; an id that was refused while unknown never starts.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "model/operation_metrics.h"
#include "model/phases.h"
#include "snapshot/transfer/transfer.h"
#include "torpor/v1/common.pb.h"

namespace torpor::mover {

inline constexpr size_t kOutcomesMax = 10000;
inline constexpr Duration kOutcomeAge = std::chrono::hours(24);

// What the work of one operation sees. Owned by the table.
class RunningOperation {
 public:
  RunningOperation(Clock* clock, MonotonicTime deadline)
      : transfer_(clock, deadline), phases_("mover", clock) {}
  snapshot::Transfer* transfer() { return &transfer_; }
  PhaseRecorder* phases() { return &phases_; }
  // The result part of the outcome; set by the work, on its thread.
  torpor::v1::Operation* result() { return &result_; }

 private:
  snapshot::Transfer transfer_;
  PhaseRecorder phases_;
  torpor::v1::Operation result_;
};

class Operations {
 public:
  using Work = std::function<Status(RunningOperation*)>;

  explicit Operations(Clock* clock, OperationMetrics metrics = {})
      : clock_(clock), metrics_(std::move(metrics)) {}

  // Runs `work` on this thread, or joins when the id is known, and answers the outcome. `body` is
  // the serialized request. INVALID_ARGUMENT for a bad header or an id known with another method or
  // body, ABORTED SUPERSEDED for an id that was refused.
  StatusOr<torpor::v1::Operation> Run(std::string_view method, const torpor::v1::OpHeader& header,
                                      const google::protobuf::Message& body,
                                      Duration timeout_default, const Work& work) EXCLUDES(mu_);
  // NOT_FOUND OPERATION_NOT_FOUND.
  StatusOr<torpor::v1::Operation> Get(const torpor::v1::GetOperationRequest& request) EXCLUDES(mu_);
  StatusOr<torpor::v1::Operation> Cancel(const std::string& op_id) EXCLUDES(mu_);
  void CancelAll() EXCLUDES(mu_);

 private:
  struct Entry {
    std::string fingerprint;  // of method and body; empty = refused while unknown
    torpor::v1::Operation operation;
    std::shared_ptr<RunningOperation> running;  // null once it has ended
    MonotonicTime ended;
  };

  torpor::v1::Operation Snapshot(const Entry& entry) const REQUIRES(mu_);
  torpor::v1::Operation WaitForEnd(const std::string& op_id) EXCLUDES(mu_);
  void Finish(const std::string& op_id, Status status) EXCLUDES(mu_);
  void Forget() REQUIRES(mu_);

  Clock* const clock_;
  const OperationMetrics metrics_;
  Mutex mu_;
  CondVar ended_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ GUARDED_BY(mu_);
  std::deque<std::string> ended_order_ GUARDED_BY(mu_);  // oldest end first
};

}  // namespace torpor::mover
