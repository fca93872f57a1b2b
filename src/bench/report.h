#pragma once
// Results as text. Pure functions.

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/result.h"

namespace torpor::bench {

struct ReportOptions {
  std::string layout = "full";  // full | memory | operation | throughput
  bool locust_rounding = false;
};

std::string Report(const RunResult& result, const ReportOptions& options);
// The memory layout with a column for A, for B, and by how much B is better.
std::string ReportMemoryOfBoth(const RunResult& a, const RunResult& b);
// Only limits, machine and verdict, for a run without a scenario.
std::string ReportLimits(const RunResult& result);

}  // namespace torpor::bench
