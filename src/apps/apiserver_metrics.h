#pragma once
// What the apiserver counts: operations, API calls, commits of the store, the writer's queue.

#include <functional>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "control/store/store.h"
#include "torpor/v1/ops.pb.h"

namespace torpor {

// Thread-safe.
class ApiserverMetrics {
 public:
  explicit ApiserverMetrics(MetricRegistry* registry);

  // `store` with its commits timed.
  std::unique_ptr<control::Store> Measure(std::unique_ptr<control::Store> store) const;
  // An operation has ended: counts it and logs one line with its phases and trace.
  void Ended(const std::string& actor_uid, const torpor::v1::OperationReport& report) const;
  // By method and code.
  HistogramFamily requests() const { return requests_; }
  void CountQueue(std::function<size_t()> queued) const;

 private:
  MetricRegistry* const registry_;
  HistogramFamily operations_;
  HistogramFamily phases_;
  HistogramFamily requests_;
  HistogramFamily commits_;
};

}  // namespace torpor
