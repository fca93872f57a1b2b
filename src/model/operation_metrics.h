#pragma once
// What a role says of each operation that ended on it: metrics, and one log line with all phases.
//
//   torpor_<role>_operation_seconds{op,outcome,reason}   outcome: ok or failed
//   torpor_<role>_phase_seconds{op,phase}
//
// Thread-safe. A default-constructed one says nothing.

#include <string>

#include "base/metrics.h"
#include "torpor/v1/common.pb.h"

namespace torpor {

class OperationMetrics {
 public:
  OperationMetrics() = default;
  OperationMetrics(MetricRegistry* registry, const std::string& role);

  // `operation` has ended; called on its thread, whose log lines carry its trace.
  void Ended(const torpor::v1::Operation& operation) const;

 private:
  bool silent_ = true;
  HistogramFamily operations_;
  HistogramFamily phases_;
};

// "restore 41.2, probe 3.0": names and milliseconds, in the order in which they began.
std::string PhasesText(const google::protobuf::RepeatedPtrField<torpor::v1::Phase>& phases);

}  // namespace torpor
