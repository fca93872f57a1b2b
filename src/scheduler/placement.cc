#include "scheduler/placement.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace torpor::scheduler {
namespace {

constexpr int kRejectedMax = 20;
constexpr size_t kNamedMax = 8;

bool Matches(const std::map<std::string, std::string>& labels,
             const std::map<std::string, std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& want) {
    auto have = labels.find(want.first);
    return have != labels.end() && have->second == want.second;
  });
}

double Share(int64_t used, int64_t capacity) {
  return capacity > 0 ? static_cast<double>(used) / static_cast<double>(capacity) : 1.0;
}

// The fullest dimension, 0 to 1: what fills first decides how loaded a worker is.
double Load(const WorkerView& worker) {
  return std::max({Share(worker.allocated.memory_bytes, worker.capacity.memory_bytes),
                   Share(worker.allocated.cpu_milli, worker.capacity.cpu_milli),
                   Share(worker.allocated.actors, worker.capacity.actors)});
}

bool IsFull(Obstacle obstacle) {
  return obstacle == Obstacle::kActorsFull || obstacle == Obstacle::kMemoryFull ||
         obstacle == Obstacle::kCpuFull;
}

bool IsKnown(const torpor::v1::CpuFeatures* cpu) { return cpu != nullptr && !cpu->names().empty(); }

// Whether memory that is captured on the worker runs wherever it ran before.
bool IsOtherCpu(const WorkerView& worker, const Request& request) {
  if (!IsKnown(request.cpu)) return false;
  return !IsKnown(worker.cpu) || worker.cpu->names_size() != request.cpu->names_size() ||
         !MissingFeatures(worker.cpu, request.cpu).empty();
}

std::string Named(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kNamedMax);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(count);
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (count < names.size()) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

std::string Why(const WorkerView& worker, const Request& request, Obstacle obstacle) {
  if (obstacle == Obstacle::kNone && worker.uid == request.failed_worker) {
    return "the last attempt failed there";
  }
  if (obstacle == Obstacle::kNone) {
    return IsOtherCpu(worker, request) ? "more loaded, farther from the snapshot or of another CPU"
                                       : "more loaded or farther from the snapshot";
  }
  std::string text = ObstacleText(obstacle);
  if (obstacle == Obstacle::kOtherCpu) {
    text += ": " + Named(MissingFeatures(worker.cpu, request.cpu));
  }
  return text;
}

// "3 workers full (memory), 1 worker draining"
std::string Summary(const Decision& decision) {
  std::string summary;
  for (const auto& [obstacle, count] : decision.obstacles) {
    if (!summary.empty()) summary += ", ";
    summary +=
        fmt::format("{} {} {}", count, count == 1 ? "worker" : "workers", ObstacleText(obstacle));
    if (obstacle == Obstacle::kOtherCpu) summary += fmt::format(" ({})", Named(decision.missing));
  }
  return summary;
}

// `other_cpu`: a worker that would do, too, has another CPU than the snapshot's.
std::string WhyChosen(const WorkerView& chosen, const Request& request, bool other_cpu) {
  if (!request.preferred_node.empty() && chosen.node_name == request.preferred_node) {
    return "on the node that holds the snapshot";
  }
  return other_cpu && !IsOtherCpu(chosen, request) ? "least loaded of those with the snapshot's CPU"
                                                   : "least loaded";
}

}  // namespace

std::vector<std::string> MissingFeatures(const torpor::v1::CpuFeatures* have,
                                         const torpor::v1::CpuFeatures* needed) {
  std::vector<std::string> missing;
  if (!IsKnown(have) || !IsKnown(needed)) return missing;
  if (have->architecture() != needed->architecture()) return {needed->architecture()};
  std::set_difference(needed->names().begin(), needed->names().end(), have->names().begin(),
                      have->names().end(), std::back_inserter(missing));
  return missing;
}

std::string ObstacleText(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::kNone:
      return "suitable";
    case Obstacle::kOtherClass:
      return "of another class";
    case Obstacle::kSelector:
      return "not selected by the labels";
    case Obstacle::kNotReady:
      return "not ready";
    case Obstacle::kDraining:
      return "draining";
    case Obstacle::kDiskPressure:
      return "on a node whose disk is nearly full";
    case Obstacle::kNodeSilent:
      return "on a node that does not renew its lease";
    case Obstacle::kNodeAwaited:
      return "on a node that has not reported since the start of the control plane";
    case Obstacle::kOtherNode:
      return "not on the node that holds the snapshot";
    case Obstacle::kOtherCpu:
      return "without CPU features of the snapshot";
    case Obstacle::kActorsFull:
      return "full (actors)";
    case Obstacle::kMemoryFull:
      return "full (memory)";
    case Obstacle::kCpuFull:
      return "full (cpu)";
    case Obstacle::kTooSmall:
      return "too small";
  }
  return "unknown";
}

Obstacle CheckWorker(const WorkerView& worker, const Request& request) {
  if (worker.sandbox_class != request.sandbox_class) return Obstacle::kOtherClass;
  for (const auto& selector : request.selectors) {
    if (!Matches(worker.labels, selector)) return Obstacle::kSelector;
  }
  if (!request.required_node.empty() && worker.node_name != request.required_node) {
    return Obstacle::kOtherNode;
  }
  if (!MissingFeatures(worker.cpu, request.cpu).empty()) return Obstacle::kOtherCpu;
  if (!worker.node_alive) return Obstacle::kNodeSilent;
  if (worker.node_awaited) return Obstacle::kNodeAwaited;
  if (!worker.ready) return Obstacle::kNotReady;
  if (worker.draining) return Obstacle::kDraining;
  // A wake from the node's own copy frees more than it takes; it would have to wait for ever.
  if (worker.disk_full && worker.node_name != request.required_node) return Obstacle::kDiskPressure;
  const Amount& capacity = worker.capacity;
  const Amount& needs = request.needs;
  if (needs.actors > capacity.actors || needs.memory_bytes > capacity.memory_bytes ||
      needs.cpu_milli > capacity.cpu_milli) {
    return Obstacle::kTooSmall;
  }
  if (worker.allocated.actors + needs.actors > capacity.actors) return Obstacle::kActorsFull;
  if (worker.allocated.memory_bytes + needs.memory_bytes > capacity.memory_bytes) {
    return Obstacle::kMemoryFull;
  }
  if (worker.allocated.cpu_milli + needs.cpu_milli > capacity.cpu_milli) return Obstacle::kCpuFull;
  return Obstacle::kNone;
}

Decision Place(const std::vector<WorkerView>& workers, const Request& request) {
  Decision decision;
  decision.choice.set_question("worker");
  std::vector<Obstacle> obstacles(workers.size());
  std::tuple<bool, bool, bool, double, std::string> best;
  std::set<std::string> missing;
  bool other_cpu = false;
  for (size_t i = 0; i < workers.size(); ++i) {
    obstacles[i] = CheckWorker(workers[i], request);
    if (obstacles[i] == Obstacle::kOtherCpu) {
      for (std::string& name : MissingFeatures(workers[i].cpu, request.cpu)) {
        missing.insert(std::move(name));
      }
    }
    if (obstacles[i] != Obstacle::kNone) {
      ++decision.obstacles[obstacles[i]];
      decision.full_only |= IsFull(obstacles[i]);
      decision.awaited |=
          obstacles[i] == Obstacle::kNotReady || obstacles[i] == Obstacle::kNodeAwaited;
      continue;
    }
    bool elsewhere =
        !request.preferred_node.empty() && workers[i].node_name != request.preferred_node;
    bool other = IsOtherCpu(workers[i], request);
    other_cpu |= other;
    std::tuple<bool, bool, bool, double, std::string> rank(workers[i].uid == request.failed_worker,
                                                           elsewhere, other, Load(workers[i]),
                                                           workers[i].uid);
    if (decision.worker < 0 || rank < best) {
      best = rank;
      decision.worker = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (static_cast<int>(i) == decision.worker) continue;
    if (decision.choice.rejected_size() == kRejectedMax) break;
    auto* rejected = decision.choice.add_rejected();
    rejected->set_candidate(workers[i].name);
    rejected->set_reason(Why(workers[i], request, obstacles[i]));
  }
  decision.missing.assign(missing.begin(), missing.end());
  decision.summary = workers.empty() ? "no worker is registered" : Summary(decision);
  if (decision.worker >= 0) {
    const WorkerView& chosen = workers[static_cast<size_t>(decision.worker)];
    decision.choice.set_answer(chosen.name);
    decision.choice.set_reason(WhyChosen(chosen, request, other_cpu));
    decision.full_only = false;
    decision.awaited = false;
  } else {
    decision.choice.set_reason(decision.summary);
  }
  return decision;
}

}  // namespace torpor::scheduler
