#pragma once
// What an operator can set of the control plane. Plain values, fixed once the control plane is
// made.

#include <cstdint>
#include <map>
#include <string>

#include "ateapi/ateapi.pb.h"
#include "base/time.h"

namespace torpor::control {

struct Settings {
  // Fills SnapshotConfig.storage_location of a template that leaves it empty; not empty.
  std::string default_storage_location;
  // SandboxConfig.config_name -> its class.
  std::map<std::string, ateapi::SandboxClass> sandbox_configs = {
      {"gvisor", ateapi::SANDBOX_CLASS_GVISOR}};

  // Timeouts of node operations, counted by the node from receipt.
  Duration start_timeout = std::chrono::minutes(2);  // plus the longest wakeup probe
  Duration capture_timeout = std::chrono::minutes(10);
  Duration upload_timeout = std::chrono::minutes(30);
  Duration stop_timeout = std::chrono::minutes(1);
  // How long a call of an API client waits at most.
  Duration wait_max = std::chrono::minutes(10);

  Duration lease_ttl = std::chrono::seconds(20);
  Duration lease_renew_every = std::chrono::seconds(5);
  Duration lease_slack = std::chrono::seconds(2);

  // A node with less free disk than this share loses local copies of what is also durable, so many
  // actors at a time, those first that were used longest ago.
  double disk_free_min = 0.1;
  size_t evictions_max = 16;

  // How long a resume waits at least for a worker that is about to report: its process or node was
  // started anew, or the control plane has just started and knows none.
  Duration registration_wait = std::chrono::seconds(20);

  // Between the golden actor RUNNING and its snapshot, unless every container has a wakeup probe.
  Duration golden_warmup = std::chrono::seconds(10);

  // What an actor takes of a worker when its template sets no limits.
  int64_t default_memory_bytes = int64_t{512} << 20;
  int64_t default_cpu_milli = 1000;

  // The idle clocks of the actors that a router served stand still when it is silent for so long,
  // and go on when it is taken for gone.
  Duration router_silent_after = std::chrono::seconds(10);
  Duration router_gone_after = std::chrono::minutes(2);

  // Pauses the longest idle actor when a resume finds every worker full.
  bool pause_under_pressure = true;
  Duration pressure_idle_min = std::chrono::seconds(10);

  int64_t events_per_atespace_max = 100000;
  Duration events_kept = std::chrono::hours(24 * 7);
  int reports_per_actor_max = 20;
  // Calls that wait: for one actor, and in all. Beyond: RATE_LIMITED.
  size_t waiting_per_actor_max = 1000;
  size_t waiting_max = 100000;
};

}  // namespace torpor::control
