#include "agent/node_metrics.h"

namespace torpor::agent {

NodeMetrics::NodeMetrics(MetricRegistry* registry)
    : snapshot_bytes(registry->Histogram("torpor_node_snapshot_bytes",
                                         "Bytes on the disk of each capture.", {"class"},
                                         {1e6, 4e6, 16e6, 64e6, 256e6, 1e9, 4e9, 16e9, 64e9})),
      disk_bytes(registry->Gauge("torpor_node_disk_bytes",
                                 "What takes space below the node directory.", {"kind"})),
      disk_pressure(registry->Gauge("torpor_node_disk_pressure",
                                    "1 while the node wants no new actors for lack of space.")),
      flushes(registry->Counter("torpor_node_fsync_total",
                                "Flushes to the disk; none on the way of a pause or wake.",
                                {"where"})),
      recovery_actions(registry->Counter("torpor_node_recovery_actions_total",
                                         "What a restarted agent did about what it found.",
                                         {"action"})),
      garbage(registry->Counter("torpor_node_garbage_total",
                                "Things removed because nobody needed them any more.", {"kind"})) {}

}  // namespace torpor::agent
