#pragma once
// What the driver notes about one operation.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor::bench {

struct Outcome {
  Status status;
  double ms = 0;                    // as the driver saw it
  std::optional<double> server_ms;  // as the server says
  // A failure for which no server gave a reason.
  bool unexplained = false;
  // An answer that proves that state was lost: the run is void.
  bool corrupt = false;
  std::vector<torpor::v1::Phase> phases;  // of the operation, when it has any

  bool ok() const { return status.ok(); }
};

}  // namespace torpor::bench
