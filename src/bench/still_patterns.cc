// Patterns whose figures are not the times of calls: what idle actors cost, what rounds of
// create-run-delete leave, how long many actors take to be there.
#include <dirent.h>

#include <filesystem>
#include <fstream>

#include "base/uuid.h"
#include "bench/machine.h"
#include "bench/pattern.h"

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr double kMi = 1 << 20;

class IdlePattern : public Pattern {
 public:
  explicit IdlePattern(PatternContext context)
      : context_(std::move(context)), scenario_(context_.world->scenario) {}

  Status SetUp(const WhileRunning&) override {
    const int64_t count = scenario_.total_actors;
    const bool paused = scenario_.idle_state == "paused";
    // Only so many run at once as need to.
    constexpr int64_t kBatch = 8;
    for (int64_t done = 0; done < count;) {
      const int64_t batch = paused ? std::min(kBatch, count - done) : count;
      ASSIGN_OR_RETURN(auto actors, StartActors(context_, batch));
      for (auto& [name, view] : actors) {
        if (!paused) break;
        Outcome outcome = context_.world->control->Pause(name, &view);
        context_.recorder->Add("PauseActor", outcome, true);
        RETURN_IF_ERROR(outcome.status);
      }
      done += batch;
    }
    return OkStatus();
  }

  Status Run() override {
    constexpr auto kCalm = seconds(10);  // until what the set-up began has ended
    context_.sleep(kCalm);
    const World& world = *context_.world;
    std::map<pid_t, int64_t> before;
    auto all = [&] { return PidsBelow(ReadProcessTable(), world.stack->supervisor_pid()); };
    for (pid_t pid : all()) before[pid] = CpuNs(pid);
    const MonotonicTime begin = Clock::Real()->Now();
    context_.recorder->BeginWindow(scenario_.duration);
    context_.sleep(scenario_.duration);
    const double ns = ToMs(Clock::Real()->Now() - begin) * 1e6;
    std::set<pid_t> roles = {world.stack->supervisor_pid()};
    for (const auto& [role, pid] : world.stack->RolePids()) roles.insert(pid);
    double cpu = 0, cpu_of_roles = 0, pss = 0;
    int64_t processes = 0;
    for (pid_t pid : all()) {
      ++processes;
      const double used = static_cast<double>(CpuNs(pid) - before[pid]);
      cpu += used;
      if (roles.count(pid) == 0) continue;
      cpu_of_roles += used;
      pss += static_cast<double>(PssBytes(pid));
    }
    const bool paused = scenario_.idle_state == "paused";
    auto add = [&](const std::string& name, double value, const std::string& unit, double bound) {
      context_.recorder->AddFigure({name, unit, value, bound > 0 ? "<=" : "", bound});
    };
    const bool bounded = scenario_.total_actors > 0;
    add("processor time of roles and sandboxes", 100 * cpu / ns, "% of a core",
        !bounded ? 0
        : paused ? 1
                 : 2);
    add("of it the roles'", 100 * cpu_of_roles / ns, "% of a core", 0);
    add("PSS of all roles", pss / kMi, "MiB", bounded && paused ? 150 : 0);
    add("processes", static_cast<double>(processes), "", 0);
    return OkStatus();
  }

 private:
  const PatternContext context_;
  const Scenario& scenario_;
};

// Of the whole machine, as nothing else may run beside a benchmark.
std::map<std::string, int64_t> Leftovers(const World& world) {
  std::map<std::string, int64_t> left;
  const std::vector<pid_t> pids = PidsBelow(ReadProcessTable(), world.stack->supervisor_pid());
  left["processes"] = static_cast<int64_t>(pids.size());
  auto entries = [](const std::string& dir) {
    int64_t count = 0;
    std::error_code error;
    fs::directory_iterator end;
    for (fs::directory_iterator it(dir, error); !error && it != end; it.increment(error)) ++count;
    return count;
  };
  int64_t fds = 0, mounts = 0, groups = 0, bytes = 0;
  std::error_code error;
  for (pid_t pid : pids) fds += entries(fmt::format("/proc/{}/fd", pid));
  for (pid_t pid : pids) {
    std::ifstream file(fmt::format("/proc/{}/mountinfo", pid));
    for (std::string line; std::getline(file, line);) ++mounts;
  }
  for (const auto& root : fs::directory_iterator("/sys/fs/cgroup", error)) {
    const fs::path torpor = root.path() / "torpor";
    fs::recursive_directory_iterator end;
    for (fs::recursive_directory_iterator it(torpor, error); !error && it != end;
         it.increment(error)) {
      if (it->is_directory(error)) ++groups;
    }
  }
  for (const char* part : {"/node", "/store"}) {
    fs::recursive_directory_iterator end;
    for (fs::recursive_directory_iterator it(world.stack->dir() + part, error); !error && it != end;
         it.increment(error)) {
      std::error_code gone;
      if (it->is_regular_file(gone)) bytes += static_cast<int64_t>(it->file_size(gone));
    }
  }
  left["open files"] = fds;
  left["mounts"] = mounts;
  left["cgroups"] = groups;
  left["network namespaces"] = entries("/run/netns");
  left["bytes in node directory and store"] = bytes;
  return left;
}

class RoundsPattern : public Pattern {
 public:
  explicit RoundsPattern(PatternContext context) : context_(std::move(context)) {}

  Status SetUp(const WhileRunning&) override {
    constexpr int kFirst = 5;  // make what is made once
    for (int i = 0; i < kFirst; ++i) RETURN_IF_ERROR(Round());
    context_.sleep(kCalm);
    before_ = Leftovers(*context_.world);
    return OkStatus();
  }

  Status Run() override {
    context_.recorder->BeginWindow(context_.world->scenario.duration);
    int64_t rounds = 0;
    while (rounds < context_.world->scenario.total_actors && !context_.stopped()) {
      RETURN_IF_ERROR(Round());
      ++rounds;
    }
    context_.recorder->EndWindow();
    // Deleting goes on behind the answer.
    std::map<std::string, int64_t> after;
    for (int look = 0; look < kLooks && !context_.stopped(); ++look) {
      context_.sleep(kCalm);
      after = Leftovers(*context_.world);
      bool none = true;
      for (const auto& [what, count] : after) none &= count <= before_[what];
      if (none) break;
    }
    context_.recorder->AddFigure({"rounds", "times", static_cast<double>(rounds), "", 0});
    for (const auto& [what, count] : after) {
      context_.recorder->AddFigure(
          {what + " more than before", "", static_cast<double>(count - before_[what]), "<=", 0});
    }
    return OkStatus();
  }

 private:
  static constexpr auto kCalm = seconds(3);
  static constexpr int kLooks = 20;

  Status Round() {
    ASSIGN_OR_RETURN(auto actors, StartActors(context_, 1));
    const std::string& name = actors[0].first;
    Outcome ping = Glutton(context_.world->PosterOf(name), Glutton::Verify::kEcho).Ping("here");
    context_.recorder->Add("GluttonPing", ping);
    RETURN_IF_ERROR(ping.status);
    Outcome gone = context_.world->control->Delete(name);
    context_.recorder->Add("DeleteActor", gone);
    return gone.status;
  }

  const PatternContext context_;
  std::map<std::string, int64_t> before_;
};

class SpawnPattern : public Pattern {
 public:
  explicit SpawnPattern(PatternContext context)
      : context_(std::move(context)), scenario_(context_.world->scenario) {}

  Status SetUp(const WhileRunning&) override { return OkStatus(); }

  Status Run() override {
    Recorder* recorder = context_.recorder;
    recorder->BeginWindow(scenario_.duration);
    const MonotonicTime begin = Clock::Real()->Now();
    std::atomic<int64_t> next{0}, failed{0};
    const int64_t count = scenario_.total_actors;
    OnThreads(std::min(count, scenario_.spawn_concurrency), [&](int64_t) {
      while (next++ < count && !context_.stopped()) {
        Outcome outcome = Spawn();
        recorder->Add("ActorTimeToReady", outcome);
        if (!outcome.ok()) ++failed;
      }
    });
    Outcome all;
    all.ms = ToMs(Clock::Real()->Now() - begin);
    if (failed > 0) all.status = Status(Code::kInternal, "not every actor became ready");
    recorder->Add("TimeToAllReady", all);
    recorder->EndWindow();
    return OkStatus();
  }

 private:
  // From the creation to the first answer, which wakes the actor.
  Outcome Spawn() {
    const MonotonicTime begin = Clock::Real()->Now();
    const std::string name = "sb-" + IdSource::Real()->NewUuid();
    context_.world->Note(name);
    Outcome outcome = context_.world->control->Create(name);
    if (outcome.ok()) {
      outcome = Glutton(context_.world->PosterOf(name), Glutton::Verify::kEcho).Ping("first");
    }
    outcome.ms = ToMs(Clock::Real()->Now() - begin);
    return outcome;
  }

  const PatternContext context_;
  const Scenario& scenario_;
};

}  // namespace

std::unique_ptr<Pattern> MakeIdlePattern(PatternContext context) {
  return std::make_unique<IdlePattern>(std::move(context));
}

std::unique_ptr<Pattern> MakeRoundsPattern(PatternContext context) {
  return std::make_unique<RoundsPattern>(std::move(context));
}

std::unique_ptr<Pattern> MakeSpawnPattern(PatternContext context) {
  return std::make_unique<SpawnPattern>(std::move(context));
}

}  // namespace torpor::bench
