#pragma once
// A benchmark scenario: a name and a set of knobs, whose names are those of the public load
// generator.
//
//   name: glutton_1user_500mi_gvisor_pause
//   about: one user pauses and resumes an actor that holds 500 MiB
//   source: pull request 1917 of the public system
//   mem-target: 500Mi
//
// `pattern` says what is done with the knobs; `needs` names what this version lacks to run it.
//
// Pure functions. Errors are INVALID_ARGUMENT and name file, line, knob and what is allowed.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::bench {

struct Scenario {
  std::string name;
  std::string about;
  std::string source;
  std::string needs;  // empty = this version can run it

  // cycle: hibernate, sleep, wake, work. durdir: the same with files in a durable directory.
  // counter_burst: users come and go in waves. storm: all wake at once. inflight: requests are open
  // while actors hibernate. ingress: open-loop load on the router. idle: nothing happens. rounds:
  // create, run, delete. spawn: from create to the first answer. Those after it: see `needs`.
  std::string pattern = "cycle";
  int64_t users = 1;
  Duration duration = std::chrono::seconds(60);
  int64_t worker_count = 0;  // actors that run at once; 0 = as many as the worker allows
  int64_t min_cores = 0;     // of the machine
  int64_t min_memory = 0;
  int64_t actor_memory = 256 << 20;
  std::string sandbox_class = "gvisor";         // gvisor | microvm | fake: a guest without sandbox
  std::string lifecycle_mode = "pause";         // pause | suspend | both: in turn
  std::string resume_mode = "explicit";         // explicit | implicit: the first ping wakes
  int64_t mem_target = 0;                       // bytes of memory filled at the start
  int64_t mem_churn = 0;                        // bytes rewritten after each resume
  int64_t mem_read = 0;                         // bytes read after each resume; kReadAll
  Duration min_wait = std::chrono::seconds(1);  // asleep, between hibernation and resume
  Duration max_wait = std::chrono::seconds(1);
  Duration min_live{};  // awake, while pings are sent
  Duration max_live{};
  int64_t max_pings_per_wake = 1;
  std::string durdir_template = "glutton-durdir-data";  // -data: VOLUMES, -full: MEMORY
  int64_t durdir_file_size = 8 << 20;
  std::string durdir_read_mode = "data";  // data | digest
  std::string sweperf_template = "swebench-astropy-7336";
  int64_t sweperf_total_steps = 21;
  int64_t sweperf_num_cycles = 4;
  int64_t total_actors = 0;  // of the patterns that have no users
  int64_t spawn_concurrency = 10;
  std::string ladder;  // users:duration,... ; empty = one step
  std::string trace_probability = "0";
  Duration solo{};  // first one user alone for so long, to compare with
  Duration burst_period = std::chrono::seconds(30);
  Duration burst_ramp = std::chrono::seconds(10);
  int64_t min_hibernations = 0;                    // go on after the window until so many were made
  Duration max_request = std::chrono::seconds(3);  // how long an open request takes at most
  Duration slo = std::chrono::milliseconds(25);    // of the 95th percentile
  int64_t rate = 0;                                // requests per second; 0 = search the highest
  std::string idle_state = "running";              // running | paused
  bool nginx = true;                               // measured beside the router
  int64_t warm_pool = kPoolOfWorker;  // sandboxes kept for a template; 0 = no pool, commands only
  Duration freeze_after{};            // idle actors are frozen; 0 = never
  Duration actor_deadline = std::chrono::seconds(120);
  std::string content = "random";      // random | heap | zero40
  std::string verify = "memory";       // off | echo | memory
  std::string on_failure = "replace";  // replace | keep | stop
  int64_t seed = 1;
  int64_t warmup = 2;  // cycles per user before the measured window
  int64_t repeat = 5;

  static constexpr int64_t kReadAll = -1;
  static constexpr int64_t kPoolOfWorker = -1;
};

struct KnobInfo {
  std::string name;
  std::string allowed;
  std::string help;
};
const std::vector<KnobInfo>& Knobs();

// `file` stands for the text in errors.
StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file);
Status SetKnob(Scenario* scenario, std::string_view knob, const std::string& value);
// Checks what one knob alone cannot tell, such as min above max.
Status CheckScenario(const Scenario& scenario);
// Users and length of each step of `ladder`; empty when there is none.
struct LadderStep {
  int64_t users = 0;
  Duration duration{};
};
StatusOr<std::vector<LadderStep>> ParseLadder(const std::string& text);
// FAILED_PRECONDITION with what is missing: in this version, or on a machine of that size.
Status CheckRunnable(const Scenario& scenario, int64_t cores, int64_t memory_bytes);
// The workload whose image the scenario's actors run: glutton or counter.
std::string ImageOf(const Scenario& scenario);
// Every knob with its value, in a form that SetKnob takes.
std::map<std::string, std::string> KnobValues(const Scenario& scenario);

// Those of bench/scenarios, compiled in; sorted by name.
struct ScenarioText {
  const char* file;
  const char* text;
};
const std::vector<ScenarioText>& BuiltinScenarioTexts();
StatusOr<std::vector<Scenario>> BuiltinScenarios();

}  // namespace torpor::bench
