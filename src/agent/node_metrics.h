#pragma once
// What the node agent counts beside its operations (model/operation_metrics.h). Handles: copies
// count in the same place, and default-constructed ones count nothing.

#include "base/metrics.h"

namespace torpor::agent {

struct NodeMetrics {
  NodeMetrics() = default;
  explicit NodeMetrics(MetricRegistry* registry);

  HistogramFamily snapshot_bytes;  // of each capture, by class
  GaugeFamily disk_bytes;          // kind: snapshots, images
  GaugeFamily disk_pressure;       // 1 = no new actors
  CounterFamily flushes;           // where: images
  CounterFamily recovery_actions;  // after a restart of the agent
  CounterFamily garbage;           // kind: actor, snapshot, socket
};

}  // namespace torpor::agent
