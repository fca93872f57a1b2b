#include "bench/scenario.h"

#include <charconv>
#include <sstream>

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "base/quantity.h"

namespace torpor::bench {
namespace {

struct Knob {
  KnobInfo info;
  std::function<bool(Scenario*, const std::string&)> set;  // false: not allowed
  std::function<std::string(const Scenario&)> get;
};

Status Bad(std::string_view message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

Knob Int(const char* name, int64_t Scenario::* field, int64_t min, int64_t max, const char* help) {
  auto set = [=](Scenario* s, const std::string& text) {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      return false;
    }
    s->*field = value;
    return true;
  };
  return {{name, fmt::format("a number from {} to {}", min, max), help},
          set,
          [=](const Scenario& s) { return fmt::to_string(s.*field); }};
}

// FormatBytes rounds; a recorded parameter must give the same run again.
std::string ExactBytes(int64_t bytes) {
  constexpr int64_t kKi = 1 << 10, kMi = 1 << 20;
  if (bytes % kMi == 0) return fmt::format("{}Mi", bytes / kMi);
  if (bytes % kKi == 0) return fmt::format("{}Ki", bytes / kKi);
  return fmt::to_string(bytes);
}

Knob Bytes(const char* name, int64_t Scenario::* field, bool all_allowed, const char* help) {
  auto set = [=](Scenario* s, const std::string& text) {
    if (text == "0") {
      s->*field = 0;
      return true;
    }
    if (all_allowed && text == "all") {
      s->*field = Scenario::kReadAll;
      return true;
    }
    auto value = ParseBytes(text);
    if (!value.ok()) return false;
    s->*field = *value;
    return true;
  };
  return {
      {name, all_allowed ? "a quantity like 64Mi, 0 or all" : "a quantity like 64Mi, or 0", help},
      set,
      [=](const Scenario& s) {
        int64_t value = s.*field;
        return value == Scenario::kReadAll ? "all" : value == 0 ? "0" : ExactBytes(value);
      }};
}

Knob Time(const char* name, Duration Scenario::* field, Duration min, Duration max,
          const char* help) {
  auto set = [=](Scenario* s, const std::string& text) {
    auto value = ParseDuration(text);
    if (!value.ok() || *value < min || *value > max) return false;
    s->*field = *value;
    return true;
  };
  return {{name,
           fmt::format("a duration like 500ms or 1m, {} to {}", FormatDuration(min),
                       FormatDuration(max)),
           help},
          set,
          [=](const Scenario& s) { return FormatDuration(s.*field); }};
}

Knob Choice(const char* name, std::string Scenario::* field, std::vector<std::string> allowed,
            const char* help) {
  return {{name, fmt::format("{}", fmt::join(allowed, "|")), help},
          [=](Scenario* s, const std::string& text) {
            if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) return false;
            s->*field = text;
            return true;
          },
          [=](const Scenario& s) { return s.*field; }};
}

Knob Flag(const char* name, bool Scenario::* field, const char* help) {
  return {{name, "true|false", help},
          [=](Scenario* s, const std::string& text) {
            if (text != "true" && text != "false") return false;
            s->*field = text == "true";
            return true;
          },
          [=](const Scenario& s) { return s.*field ? "true" : "false"; }};
}

bool IsProbability(const std::string& text) {
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && value >= 0 && value <= 1;
}

Knob Text(const char* name, std::string Scenario::* field, bool (*allowed)(const std::string&),
          const char* form, const char* help) {
  return {{name, form, help},
          [=](Scenario* s, const std::string& text) {
            if (!allowed(text)) return false;
            s->*field = text;
            return true;
          },
          [=](const Scenario& s) { return s.*field; }};
}

std::vector<Knob> PatternTable() {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using S = Scenario;
  const Duration zero{};
  return {
      Choice("durdir-template", &S::durdir_template, {"glutton-durdir-data", "glutton-durdir-full"},
             "-data keeps only the durable directory, -full the memory as well"),
      Bytes("durdir-file-size-bytes", &S::durdir_file_size, false, "file in the durable directory"),
      Choice("durdir-read-mode", &S::durdir_read_mode, {"data", "digest"},
             "whether a read brings the file or its digest"),
      Choice("sweperf-template", &S::sweperf_template, {"swebench-astropy-7336"}, "of sweperf"),
      Int("sweperf-total-steps", &S::sweperf_total_steps, 1, 100000, "of sweperf"),
      Int("sweperf-num-cycles", &S::sweperf_num_cycles, 1, 100000, "of sweperf"),
      Int("total-actors", &S::total_actors, 0, 100000,
          "actors, or rounds, where there are no users"),
      Int("spawn-concurrency", &S::spawn_concurrency, 1, 1000, "creates at the same time"),
      Text(
          "ladder", &S::ladder, [](const std::string& t) { return ParseLadder(t).ok(); },
          "users:duration,... or empty", "steps, each a run of its own"),
      Text("trace-probability", &S::trace_probability, IsProbability, "a number from 0 to 1",
           "share of calls that are traced"),
      Time("solo-time", &S::solo, zero, hours(1), "one user alone before the window, to compare"),
      Time("burst-period", &S::burst_period, milliseconds(10), hours(1), "of the waves"),
      Time("burst-ramp", &S::burst_ramp, zero, hours(1), "from no user to all, and back"),
      Int("min-hibernations", &S::min_hibernations, 0, 1000000,
          "the run goes on until so many were made"),
      Time("max-request-time", &S::max_request, zero, hours(1),
           "of requests open in a hibernation"),
      Time("slo", &S::slo, milliseconds(1), hours(1), "limit of the 95th percentile"),
      Int("rate", &S::rate, 0, 1000000, "requests per second; 0 = search the highest"),
      Flag("nginx", &S::nginx, "measure nginx as a plain proxy beside the router"),
      Choice("idle-state", &S::idle_state, {"running", "paused"}, "of idle actors"),
      Int("warm-pool", &S::warm_pool, Scenario::kPoolOfWorker, 64,
          "sandboxes kept ready; -1 = the worker's own choice, 0 = none, and runsc's commands "
          "only"),
      Time("freeze-after", &S::freeze_after, zero, hours(1), "idle actors are frozen; 0 = never"),
  };
}

std::vector<Knob> MakeTable() {
  using std::chrono::hours;
  using std::chrono::seconds;
  using S = Scenario;
  const Duration zero{};
  std::vector<Knob> table = {
      Choice("pattern", &S::pattern,
             {"cycle", "durdir", "counter_burst", "storm", "inflight", "ingress", "idle", "rounds",
              "spawn", "batches", "sweperf", "session", "mover"},
             "what is done"),
      Int("users", &S::users, 0, 1000, "users, each with an actor of its own"),
      Time("duration", &S::duration, seconds(1), hours(24), "length of the measured window"),
      Int("worker-count", &S::worker_count, 0, 100000,
          "actors that run at once, as slots of the one worker; 0 = its own limit"),
      Int("min-cores", &S::min_cores, 0, 100000, "cores that the machine must have"),
      Bytes("min-memory", &S::min_memory, false, "memory that the machine must have"),
      Bytes("actor-memory", &S::actor_memory, false, "memory limit of an actor"),
      Choice("sandbox-class", &S::sandbox_class, {"gvisor", "microvm", "fake"},
             "sandbox class; fake: a guest in the worker's process"),
      Choice("lifecycle-mode", &S::lifecycle_mode, {"pause", "suspend", "both"},
             "how actors hibernate; both: in turn"),
      Choice("resume-mode", &S::resume_mode, {"explicit", "implicit"},
             "explicit: ResumeActor; implicit: the first ping wakes"),
      Bytes("mem-target", &S::mem_target, false, "memory filled at the start"),
      Bytes("mem-churn", &S::mem_churn, false, "memory rewritten after each resume"),
      Bytes("mem-read", &S::mem_read, true, "memory read after each resume"),
      Time("min-wait-time", &S::min_wait, zero, hours(1), "shortest sleep"),
      Time("max-wait-time", &S::max_wait, zero, hours(1), "longest sleep"),
      Time("min-live-time", &S::min_live, zero, hours(1), "shortest time awake with pings"),
      Time("max-live-time", &S::max_live, zero, hours(1), "longest time awake with pings"),
      Int("max-pings-per-wake", &S::max_pings_per_wake, 0, 1000000, "pings of one wake at most"),
      Time("actor-deadline", &S::actor_deadline, seconds(1), hours(1), "limit of every call"),
      Choice("content", &S::content, {"random", "heap", "zero40"}, "what memory is filled with"),
      Choice("verify", &S::verify, {"off", "echo", "memory"},
             "echo: answers to pings; memory: also that no written byte is lost"),
      Choice("on-failure", &S::on_failure, {"replace", "keep", "stop"},
             "what a failed operation does to the user's actor"),
      Int("seed", &S::seed, 0, INT64_MAX, "of waits and live times"),
      Int("warmup", &S::warmup, 0, 1000, "cycles per user that are not measured"),
      Int("repeat", &S::repeat, 1, 100, "runs, each with a fresh data directory"),
  };
  std::vector<Knob> more = PatternTable();
  std::move(more.begin(), more.end(), std::back_inserter(table));
  return table;
}

const std::vector<Knob>& Table() {
  static const std::vector<Knob> table = MakeTable();
  return table;
}

const Knob* Find(std::string_view name) {
  for (const Knob& knob : Table()) {
    if (knob.info.name == name) return &knob;
  }
  return nullptr;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Knob& knob : Table()) names.push_back(knob.info.name);
  return names;
}

Status TakeEntry(Scenario* scenario, const std::string& key, const std::string& value) {
  if (key == "name") {
    scenario->name = value;
  } else if (key == "about") {
    scenario->about = value;
  } else if (key == "source") {
    scenario->source = value;
  } else if (key == "needs") {
    scenario->needs = value;
  } else {
    return SetKnob(scenario, key, value);
  }
  return OkStatus();
}

}  // namespace

const std::vector<KnobInfo>& Knobs() {
  static const std::vector<KnobInfo> infos = [] {
    std::vector<KnobInfo> out;
    for (const Knob& knob : Table()) out.push_back(knob.info);
    return out;
  }();
  return infos;
}

Status SetKnob(Scenario* scenario, std::string_view knob, const std::string& value) {
  const Knob* found = Find(knob);
  if (found == nullptr) {
    return Bad(fmt::format("unknown key '{}'; allowed: name, about, source, needs, {}", knob,
                           fmt::join(Names(), ", ")));
  }
  if (!found->set(scenario, value)) {
    return Bad(fmt::format("{} is '{}', but must be {}", knob, value, found->info.allowed));
  }
  return OkStatus();
}

StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file) {
  Scenario scenario;
  std::set<std::string> seen;
  auto at = [&](const YAML::Node& node) {
    return fmt::format("{}:{}", file, node.Mark().line + 1);
  };
  // yaml-cpp reports errors by exception; this is the one place that meets them.
  try {
    YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return Bad(file + ":1: must be a map of keys to values");
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      if (!seen.insert(key).second) {
        return Bad(fmt::format("{}: {} is given twice", at(entry.first), key));
      }
      if (!entry.second.IsScalar()) {
        return Bad(fmt::format("{}: {} must be a single value", at(entry.first), key));
      }
      Status taken = TakeEntry(&scenario, key, entry.second.as<std::string>());
      if (!taken.ok()) return Annotate(taken, at(entry.first));
    }
  } catch (const YAML::Exception& e) {
    return Bad(fmt::format("{}:{}: {}", file, e.mark.line + 1, e.msg));
  }
  if (scenario.name.empty()) return Bad(file + ":1: name is missing");
  Status checked = CheckScenario(scenario);
  if (!checked.ok()) return Annotate(checked, file);
  return scenario;
}

Status CheckScenario(const Scenario& s) {
  if (s.min_wait > s.max_wait) return Bad("min-wait-time is above max-wait-time");
  if (s.min_live > s.max_live) return Bad("min-live-time is above max-live-time");
  if (s.actor_memory == 0) return Bad("actor-memory must be above 0");
  if (s.mem_target == 0 && (s.mem_churn != 0 || s.mem_read != 0)) {
    return Bad("mem-churn and mem-read need a mem-target above 0");
  }
  const bool has_users = s.pattern == "cycle" || s.pattern == "durdir" ||
                         s.pattern == "counter_burst" || s.pattern == "storm" ||
                         s.pattern == "inflight";
  if (has_users && s.users == 0) return Bad("users must be above 0 for pattern " + s.pattern);
  if (s.burst_ramp * 2 > s.burst_period) return Bad("burst-ramp is above half of burst-period");
  if (s.mem_churn > s.mem_target) return Bad("mem-churn is above mem-target");
  if (s.mem_read > s.mem_target) return Bad("mem-read is above mem-target");
  return OkStatus();
}

StatusOr<std::vector<LadderStep>> ParseLadder(const std::string& text) {
  std::vector<LadderStep> steps;
  std::istringstream in(text);
  for (std::string step; std::getline(in, step, ',');) {
    const size_t colon = step.find(':');
    LadderStep parsed;
    const char* begin = step.data();
    const char* middle = begin + std::min(colon, step.size());
    auto [end, error] = std::from_chars(begin, middle, parsed.users);
    if (colon == std::string::npos || error != std::errc() || end != middle || parsed.users < 1) {
      return Bad("'" + step + "' is not users:duration");
    }
    ASSIGN_OR_RETURN(parsed.duration, ParseDuration(step.substr(colon + 1)));
    if (parsed.duration <= Duration::zero()) return Bad("'" + step + "' has no duration");
    steps.push_back(parsed);
  }
  return steps;
}

Status CheckRunnable(const Scenario& s, int64_t cores, int64_t memory_bytes) {
  auto refuse = [&](const std::string& why) {
    return Error(Code::kFailedPrecondition, "NOT_IMPLEMENTED", s.name + " cannot run here: " + why);
  };
  if (!s.needs.empty()) return refuse("it needs " + s.needs);
  if (s.sandbox_class == "microvm") return refuse("this version has no micro-VM runtime");
  if (cores < s.min_cores) {
    return refuse(fmt::format("it needs {} cores, this machine has {}", s.min_cores, cores));
  }
  if (memory_bytes < s.min_memory) {
    return refuse(fmt::format("it needs {} of memory, this machine has {}",
                              FormatBytes(s.min_memory), FormatBytes(memory_bytes)));
  }
  return OkStatus();
}

std::string ImageOf(const Scenario& s) {
  return s.pattern == "counter_burst" || s.pattern == "inflight" ? "counter" : "glutton";
}

std::map<std::string, std::string> KnobValues(const Scenario& scenario) {
  std::map<std::string, std::string> values;
  for (const Knob& knob : Table()) values[knob.info.name] = knob.get(scenario);
  return values;
}

StatusOr<std::vector<Scenario>> BuiltinScenarios() {
  std::vector<Scenario> scenarios;
  for (const ScenarioText& text : BuiltinScenarioTexts()) {
    ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(text.text, text.file));
    scenarios.push_back(std::move(scenario));
  }
  return scenarios;
}

}  // namespace torpor::bench
