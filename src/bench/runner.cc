#include "bench/runner.h"

#include <unistd.h>

#include <fstream>

#include <fmt/ranges.h>

#include "base/uuid.h"
#include "bench/limits.h"
#include "bench/machine.h"
#include "bench/pattern.h"

namespace torpor::bench {
namespace {

using std::chrono::milliseconds;

constexpr int kCyclesPerBlockMin = 3;

Limit MakeLimit(std::string name, std::string what, const std::vector<BareSamples>& blocks,
                std::vector<double> BareSamples::* field) {
  Limit limit;
  limit.name = std::move(name);
  limit.what = std::move(what);
  for (const BareSamples& block : blocks) {
    limit.samples.insert(limit.samples.end(), (block.*field).begin(), (block.*field).end());
  }
  limit.ms = Summarize(limit.samples);
  // Halves instead of single blocks: a block is too short for a steady median.
  std::vector<double> first, last;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<double>& half = i < (blocks.size() + 1) / 2 ? first : last;
    half.insert(half.end(), (blocks[i].*field).begin(), (blocks[i].*field).end());
  }
  if (!first.empty() && !last.empty()) {
    limit.drift = Summarize(last).p50 / Summarize(first).p50 - 1;
  }
  return limit;
}

}  // namespace

std::vector<Limit> LimitsOf(const std::vector<BareSamples>& blocks) {
  std::vector<Limit> limits = {
      MakeLimit("L1", "bare checkpoint", blocks, &BareSamples::checkpoint),
      MakeLimit("L1+", "until the sandbox is gone", blocks, &BareSamples::gone),
      MakeLimit("L2", "bare restore to the first 200", blocks, &BareSamples::restore),
      MakeLimit("L2-", "until the command ended", blocks, &BareSamples::restore_run)};
  if (limits[0].samples.empty()) limits.clear();
  for (Limit& limit : limits) {
    limit.command = limit.name[1] == '1' ? "runsc checkpoint -image-path DIR ID"
                                         : "runsc restore -bundle B -image-path DIR -detach ID";
  }
  return limits;
}

Runner::Runner(RunOptions options, BareRuntime bare, os::Reaper* reaper)
    : options_(std::move(options)), bare_(std::move(bare)), reaper_(reaper) {}

StatusOr<std::unique_ptr<Runner>> Runner::Create(RunOptions options, os::Reaper* reaper) {
  ASSIGN_OR_RETURN(BareRuntime bare, FindBareRuntime(options.runsc, options.platform));
  return std::unique_ptr<Runner>(new Runner(std::move(options), std::move(bare), reaper));
}

void Runner::Say(const std::string& line) const {
  if (options_.progress != nullptr) options_.progress(line);
}

void Runner::Sleep(Duration duration) const {
  const MonotonicTime end = Clock::Real()->Now() + duration;
  while (!options_.stopped() && Clock::Real()->Now() < end) {
    std::this_thread::sleep_for(std::min<Duration>(milliseconds(100), end - Clock::Real()->Now()));
  }
}

RunResult Runner::NewResult(const Scenario& scenario) const {
  RunResult result;
  result.scenario = scenario.name;
  result.started = FormatRfc3339(Clock::Real()->WallNow());
  result.parameters = KnobValues(scenario);
  result.overrides = options_.overrides;
  result.build = ReadBuild(options_.revision);
  result.machine =
      ReadMachine(options_.world.attach_dir.empty() ? kStackParent : options_.world.attach_dir);
  result.runtime =
      fmt::format("runsc {} ({})", bare_.target.features.version, bare_.target.platform);
  result.page_cache = "as the run leaves it, nothing dropped or read ahead";
  return result;
}

StatusOr<std::unique_ptr<World>> Runner::Start(const Scenario& scenario, const StackOptions& spec) {
  WorldOptions options = options_.world;
  options.stack = spec;
  options.stack.image_layout_dir = options.image_layout_dir;
  options.stack.runsc = bare_.target.binary;
  options.stack.platform = bare_.target.platform;
  return StartWorld(options, scenario);
}

Status Runner::MeasureBare(World* world, int cycles, std::vector<BareSamples>* blocks) {
  if (cycles == 0 || world->config.empty() || options_.stopped()) return OkStatus();
  ASSIGN_OR_RETURN(auto bare, BareRuns::Create(bare_, world->stack->dir(), reaper_));
  BareSamples samples;
  RETURN_IF_ERROR(bare->Block(world->config, world->scenario, cycles, options_.stopped, &samples));
  blocks->push_back(std::move(samples));
  return OkStatus();
}

StatusOr<Repeat> Runner::RunRepeat(const Scenario& scenario, const StackOptions& spec, int cycles,
                                   std::vector<BareSamples>* blocks) {
  const MachineLoad before = ReadLoad();
  ASSIGN_OR_RETURN(std::unique_ptr<World> world, Start(scenario, spec));
  Recorder recorder(Clock::Real());
  PatternContext context;
  context.world = world.get();
  context.recorder = &recorder;
  context.sleep = [this](Duration d) { Sleep(d); };
  context.stopped = options_.stopped;
  context.say = [this](const std::string& line) { Say(line); };
  ASSIGN_OR_RETURN(std::unique_ptr<Pattern> pattern, MakePattern(context));
  Status bundle;
  WhileRunning read_bundle = [&](const ActorView& view) {
    auto config = BundleOfActor(world->stack->node_dir(), view.uid, kContainer);
    bundle = config.status();
    if (config.ok()) world->config = std::move(*config);
  };
  // Only a sandbox with glutton in it can be run bare.
  const bool bare = cycles > 0 && scenario.sandbox_class == "gvisor" &&
                    (scenario.pattern == "cycle" || scenario.pattern == "storm");
  RETURN_IF_ERROR(pattern->SetUp(bare ? read_bundle : nullptr));
  RETURN_IF_ERROR(bundle);
  RETURN_IF_ERROR(MeasureBare(world.get(), cycles, blocks));

  CpuWatch cpu({getpid(), world->stack->supervisor_pid()});
  const std::map<std::string, pid_t> roles = world->stack->RolePids();
  RETURN_IF_ERROR(pattern->Run());
  double ended = 0;
  for (const auto& [role, pid] : world->stack->RolePids()) {
    auto it = roles.find(role);
    if (it == roles.end() || it->second != pid) ++ended;
  }
  recorder.AddFigure({"roles that ended and were started again", "", ended, "<=", 0});
  Repeat repeat = recorder.Finish();
  cpu.Finish(&repeat);
  repeat.before = before;
  repeat.after = ReadLoad();
  if (repeat.corruptions == 0) RETURN_IF_ERROR(MeasureBare(world.get(), cycles, blocks));
  return repeat;
}

StatusOr<RunResult> Runner::Run(const Scenario& scenario) {
  RunResult result = NewResult(scenario);
  const int64_t wanted = options_.limit_samples > 0 ? options_.limit_samples : SamplesNeeded(50);
  const int64_t blocks_wanted = 2 * scenario.repeat;
  const int cycles = !options_.limits
                         ? 0
                         : static_cast<int>(std::max<int64_t>(
                               kCyclesPerBlockMin, (wanted + blocks_wanted - 1) / blocks_wanted));
  std::vector<BareSamples> blocks;
  for (int64_t i = 0; i < scenario.repeat; ++i) {
    Say(fmt::format("{}: repeat {} of {}", scenario.name, i + 1, scenario.repeat));
    ASSIGN_OR_RETURN(Repeat repeat, RunRepeat(scenario, {}, cycles, &blocks));
    if (options_.stopped()) return Error(Code::kCancelled, "CANCELLED", "stopped by a signal");
    result.repeats.push_back(std::move(repeat));
    if (result.repeats.back().corruptions > 0) break;
  }
  result.limits = LimitsOf(blocks);
  CombineRepeats(&result);
  CompareWithLimits(&result);
  Judge(&result);
  return result;
}

// The same request once directly, once through the router, in turn: both see the same machine.
Status Runner::MeasureRequests(World* world, const ActorView& actor, const std::string& name,
                               RunResult* result) {
  constexpr int kDiscarded = 100;
  HttpConnection door(DialDoor(actor.address, actor.uid, actor.generation, kActorPort));
  Glutton direct(
      [&](const std::string& path, const std::string& body) {
        return door.Exchange({"POST", path, "bench", "application/x-protobuf", body},
                             Clock::Real()->Now() + world->scenario.actor_deadline);
      },
      Glutton::Verify::kEcho);
  Glutton routed(world->PosterOf(name), Glutton::Verify::kEcho);
  Limit through_door, through_router;
  through_door.name = "L9";
  through_door.what = "request through the door";
  through_door.command =
      "CONNECT <uid>.<generation>.actor.torpor over the door's socket, then POST /ping";
  through_router.name = "router";
  through_router.what = "the same through the router";
  through_router.command = "POST /ping to the router";
  for (int64_t i = -kDiscarded; i < options_.requests && !options_.stopped(); ++i) {
    for (auto [glutton, limit] :
         {std::pair(&direct, &through_door), std::pair(&routed, &through_router)}) {
      Outcome outcome = glutton->Ping("ping");
      if (!outcome.ok()) return Annotate(outcome.status, limit->what);
      if (i >= 0) limit->samples.push_back(outcome.ms);
    }
  }
  for (Limit* limit : {&through_door, &through_router}) {
    limit->ms = Summarize(limit->samples);
    result->limits.push_back(std::move(*limit));
  }
  return OkStatus();
}

bool Runner::Wants(const std::string& limit) const {
  return options_.only.empty() ||
         std::find(options_.only.begin(), options_.only.end(), limit) != options_.only.end();
}

// L9 on a running actor, then L1 and L2 with its bundle; its image's bytes are what L5 compresses.
Status Runner::MeasureActor(const Scenario& scenario, RunResult* result, Repeat* repeat) {
  ASSIGN_OR_RETURN(std::unique_ptr<World> world, Start(scenario, {}));
  CpuWatch cpu({getpid(), world->stack->supervisor_pid()});
  const std::string actor = "sb-" + IdSource::Real()->NewUuid();
  world->Note(actor);
  RETURN_IF_ERROR(world->control->Create(actor).status);
  ActorView view;
  RETURN_IF_ERROR(world->control->Resume(actor, &view).status);
  ASSIGN_OR_RETURN(world->config, BundleOfActor(world->stack->node_dir(), view.uid, kContainer));
  if (Wants("L9")) {
    Say("L9: requests through door and router");
    RETURN_IF_ERROR(MeasureRequests(world.get(), view, actor, result));
  }
  Glutton glutton(world->PosterOf(actor), Glutton::Verify::kOff);
  if (Wants("L5") && scenario.mem_target > 0) {
    RETURN_IF_ERROR(glutton.Fill(scenario.mem_target, scenario.content).status);
  }
  RETURN_IF_ERROR(world->control->Pause(actor, &view).status);
  if (Wants("L5")) {
    Say("L5: zstd on the actor's image");
    ASSIGN_OR_RETURN(std::vector<Limit> zstd,
                     MeasureZstd(world->stack->node_dir() + "/actors/" + view.uid,
                                 world->stack->dir() + "/zstd", options_.stopped));
    result->limits.insert(result->limits.end(), zstd.begin(), zstd.end());
  }
  if (Wants("L1") || Wants("L2")) {
    const int64_t samples = options_.limit_samples > 0 ? options_.limit_samples : SamplesNeeded(50);
    std::vector<BareSamples> blocks;
    for (int i = 0; i < 2; ++i) {
      Say(fmt::format("L1, L2: bare checkpoints and restores, block {} of 2", i + 1));
      RETURN_IF_ERROR(MeasureBare(world.get(), static_cast<int>((samples + 1) / 2), &blocks));
    }
    std::vector<Limit> bare = LimitsOf(blocks);
    result->limits.insert(result->limits.begin(), bare.begin(), bare.end());
  }
  cpu.Finish(repeat);
  repeat->driver_cpu = 0;  // back-to-back requests use all of it, that is their point
  return OkStatus();
}

StatusOr<RunResult> Runner::Limits(const Scenario& scenario) {
  RunResult result = NewResult(scenario);
  result.scenario.clear();
  Repeat repeat;
  repeat.before = ReadLoad();
  if (Wants("L1") || Wants("L2") || Wants("L5") || Wants("L9")) {
    RETURN_IF_ERROR(MeasureActor(scenario, &result, &repeat));
  }
  const std::string dir = fmt::format("{}/torpor-limits-{}", kStackParent, getpid());
  for (const auto& [name, measure] : MachineLimits()) {
    if (!Wants(name) || options_.stopped()) continue;
    Say(name);
    ASSIGN_OR_RETURN(std::vector<Limit> limits, measure(dir, options_.stopped));
    result.limits.insert(result.limits.end(), limits.begin(), limits.end());
  }
  if (options_.stopped()) return Error(Code::kCancelled, "CANCELLED", "stopped by a signal");
  repeat.after = ReadLoad();
  result.repeats.push_back(std::move(repeat));
  CompareWithLimits(&result);
  Judge(&result);
  return result;
}

}  // namespace torpor::bench
