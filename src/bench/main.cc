#include "bench/main.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/ranges.h>

#include "base/log.h"
#include "base/options.h"
#include "bench/ab.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "bench/runner.h"
#include "os/process/reaper.h"

namespace torpor::bench {
namespace {

constexpr char kDefaultScenario[] = "glutton_1user_500mi_gvisor_pause";
constexpr int kCorruptExit = 3;

constexpr char kUsage[] =
    "torpor bench: how fast actors sleep and wake, and how close that is to what runsc can do\n\n"
    "  torpor bench list                    scenarios and knobs\n"
    "  torpor bench run SCENARIO... [flags] run, print a report, write JSON\n"
    "  torpor bench ab SCENARIO --a SPEC --b SPEC [flags]\n"
    "                                       two variants in turn; SPEC: "
    "bin=PATH,opt=--F=V,env=K=V\n"
    "  torpor bench limits [flags]          what the machine can do without Torpor\n"
    "  torpor bench report FILE... [flags]  print results again\n\n"
    "torpor bench run --help shows the flags.\n";

std::atomic<bool> signalled{false};

int Fail(const Status& status) {
  fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

struct BenchFlags {
  std::map<std::string, std::string> knobs;  // empty = not given
  std::vector<std::string> scenario_files;
  std::string image_layout_dir, runsc, platform, revision, attach_dir, attach_router, out_dir = ".";
  std::string layout = "full";
  bool limits = true, golden = true, locust_rounding = false;
  int64_t limit_samples = 0, requests = 2000, blocks = kAbBlocksMin;
  std::vector<std::string> only;
  std::string a, b, max_regression = "0";
  Duration settle{};
};

void DeclareReport(Options* o, BenchFlags* f) {
  o->Choice("layout", &f->layout, {"full", "memory", "operation", "throughput"},
            "form of the table");
  o->Bool("locust-rounding", &f->locust_rounding, "round as the public load generator does");
}

void DeclareRun(Options* o, BenchFlags* f) {
  DeclareReport(o, f);
  o->String("image-layout-dir", &f->image_layout_dir,
            "directory of OCI layouts with images.txt (default: images beside the build)");
  o->String("runsc", &f->runsc, "path of runsc (default: from PATH)");
  o->String("platform", &f->platform, "gVisor platform (default: systrap where there is one)");
  o->String("revision", &f->revision, "git revision of this build, for the record");
  o->String("dir", &f->attach_dir, "data directory of a running torpor up to measure");
  o->String("router", &f->attach_router, "address of its router");
  o->String("out", &f->out_dir, "directory for JSON results");
  o->Strings("scenario-file", &f->scenario_files, "a scenario of your own, as YAML");
  o->Bool("limits", &f->limits, "measure bare checkpoint and restore around every repeat");
  o->Bool("golden", &f->golden, "start actors from a golden snapshot");
  o->Int("limit-samples", &f->limit_samples, 0, 100000, "of each limit; 0 = enough for a median");
  o->Int("requests", &f->requests, 1, 1000000, "through door and router each, for limits");
  o->DurationFlag("settle", &f->settle, Duration::zero(), std::chrono::hours(1),
                  "how long to wait for a load below 0.5 before the start");
  o->Strings("only", &f->only, "of the limits: L1,L2,L4,L5,L6,L8,L9 (default: all)");
  o->String("a", &f->a, "variant A of ab: bin=PATH,opt=--FLAG=VALUE,env=NAME=VALUE");
  o->String("b", &f->b, "variant B of ab");
  o->Int("blocks", &f->blocks, kAbBlocksMin, 1000, "of ab: one repeat of each variant");
  o->String("max-regression", &f->max_regression,
            "of ab: exit 1 when B / A is above it with certainty, e.g. 1.10; 0 = never");
  for (const KnobInfo& knob : Knobs()) o->String(knob.name, &f->knobs[knob.name], knob.help);
}

Status Parse(Options* options, const std::vector<std::string>& args) {
  options->AllowPositional();
  // Only flags: a setting from the environment would not be in the record.
  const std::vector<std::string> no_environment;
  return options->Parse(args, &no_environment);
}

// The overrides that were given, applied to `scenario`.
StatusOr<std::map<std::string, std::string>> Override(const BenchFlags& flags, Scenario* scenario) {
  std::map<std::string, std::string> given;
  for (const auto& [knob, value] : flags.knobs) {
    if (value.empty()) continue;
    Status set = SetKnob(scenario, knob, value);
    if (!set.ok()) return Annotate(set, "--" + knob);
    given[knob] = value;
  }
  RETURN_IF_ERROR(CheckScenario(*scenario));
  return given;
}

StatusOr<std::string> ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, "open " + path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

StatusOr<std::vector<Scenario>> AllScenarios(const BenchFlags& flags) {
  ASSIGN_OR_RETURN(std::vector<Scenario> all, BuiltinScenarios());
  for (const std::string& path : flags.scenario_files) {
    ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path));
    ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(text, path));
    std::erase_if(all, [&](const Scenario& s) { return s.name == scenario.name; });
    all.push_back(std::move(scenario));
  }
  return all;
}

StatusOr<Scenario> FindScenario(const BenchFlags& flags, const std::string& name) {
  ASSIGN_OR_RETURN(std::vector<Scenario> all, AllScenarios(flags));
  for (Scenario& scenario : all) {
    if (scenario.name == name) return scenario;
  }
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               "no scenario " + name + "; torpor bench list shows them");
}

int List(const std::vector<std::string>& args) {
  BenchFlags flags;
  Options options("bench");
  options.Strings("scenario-file", &flags.scenario_files, "a scenario of your own, as YAML");
  Status parsed = Parse(&options, args);
  if (!parsed.ok()) return Fail(parsed);
  auto scenarios = AllScenarios(flags);
  if (!scenarios.ok()) return Fail(scenarios.status());
  printf("scenarios (all need root, runsc and the images of the workloads):\n");
  const Machine machine = ReadMachine("/");
  for (const Scenario& s : *scenarios) {
    printf("\n  %s\n    %s\n    source: %s\n", s.name.c_str(), s.about.c_str(), s.source.c_str());
    Status runnable = CheckRunnable(s, machine.cores, machine.memory_bytes);
    if (!runnable.ok()) printf("    %s\n", std::string(runnable.message()).c_str());
    printf("   ");
    const auto defaults = KnobValues(Scenario());
    for (const auto& [knob, value] : KnobValues(s)) {
      if (value != defaults.at(knob)) printf(" %s=%s", knob.c_str(), value.c_str());
    }
    printf("\n");
  }
  printf("\nknobs (flags of run; keys of a scenario file), with their defaults:\n\n");
  const auto defaults = KnobValues(Scenario());
  for (const KnobInfo& knob : Knobs()) {
    printf("  %-20s %-10s %s (%s)\n", knob.name.c_str(), defaults.at(knob.name).c_str(),
           knob.help.c_str(), knob.allowed.c_str());
  }
  return 0;
}

StatusOr<RunOptions> MakeRunOptions(const BenchFlags& flags) {
  if (geteuid() != 0) {
    return Error(Code::kPermissionDenied, "NOT_ALLOWED",
                 "sandboxes need root; try sudo torpor bench");
  }
  if (flags.attach_dir.empty() != flags.attach_router.empty()) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 "--dir and --router are given together or not at all");
  }
  RunOptions run;
  std::filesystem::path images = flags.image_layout_dir;
  if (images.empty()) {
    images = std::filesystem::path(SelfPath()).parent_path().parent_path().parent_path() / "images";
  }
  run.world.image_layout_dir = std::filesystem::absolute(images);
  run.runsc = flags.runsc;
  run.platform = flags.platform;
  run.revision = flags.revision;
  run.world.attach_dir = flags.attach_dir;
  run.world.attach_router = flags.attach_router;
  run.limits = flags.limits;
  run.world.golden = flags.golden;
  for (const std::string& list : flags.only) {
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) {
      static const std::set<std::string> known = {"L1", "L2", "L4", "L5", "L6", "L8", "L9"};
      if (known.count(name) == 0) {
        return Error(
            Code::kInvalidArgument, "FIELD_INVALID",
            fmt::format("--only names no limit {}; there are {}", name, fmt::join(known, ", ")));
      }
      run.only.push_back(name);
    }
  }
  run.limit_samples = flags.limit_samples;
  run.requests = flags.requests;
  run.stopped = [] { return signalled.load(); };
  run.progress = [](const std::string& line) { fprintf(stderr, "%s\n", line.c_str()); };
  return run;
}

Status Save(const RunResult& result, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::string stamp = result.started.substr(0, 19);
  std::erase_if(stamp, [](char c) { return c == ':' || c == '-'; });
  const std::string path = fmt::format("{}/{}-{}.json", directory,
                                       result.scenario.empty() ? "limits" : result.scenario, stamp);
  std::ofstream file(path, std::ios::binary);
  file << ToJson(result);
  file.close();
  if (!file) return ErrnoStatus(errno, "write " + path);
  fprintf(stderr, "written: %s\n", path.c_str());
  return OkStatus();
}

void Settle(Duration limit) {
  constexpr double kQuiet = 0.5;
  const MonotonicTime end = Clock::Real()->Now() + limit;
  if (ReadLoad().load1 <= kQuiet || limit == Duration::zero()) return;
  fprintf(stderr, "waiting for a quiet machine (load %.2f)\n", ReadLoad().load1);
  while (!signalled && ReadLoad().load1 > kQuiet && Clock::Real()->Now() < end) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// What every measuring verb holds while it runs.
struct Ground {
  MachineLock lock;
  std::unique_ptr<os::Reaper> reaper;
};

StatusOr<std::unique_ptr<Ground>> TakeGround() {
  struct sigaction action{};
  action.sa_handler = [](int) { signalled = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  ASSIGN_OR_RETURN(MachineLock lock, MachineLock::Take());
  RETURN_IF_ERROR(RemoveLeftovers());
  ASSIGN_OR_RETURN(auto reaper, os::Reaper::Start());
  return std::make_unique<Ground>(Ground{std::move(lock), std::move(reaper)});
}

int ExitCode(const RunResult& result) {
  if (result.verdict == "corrupt") return kCorruptExit;
  // Counts that must be 0 are no matter of noise; a time or share that was missed is in the report.
  for (const Figure& figure : result.figures) {
    if (figure.unit == "times" && !figure.met()) return 1;
  }
  for (const Row& row : result.rows) {
    if (row.failures > 0) return 1;
  }
  return 0;
}

// The scenario with the overrides applied, and a runner for it.
StatusOr<std::unique_ptr<Runner>> MakeRunner(const BenchFlags& flags, Scenario* scenario,
                                             os::Reaper* reaper) {
  ASSIGN_OR_RETURN(auto overrides, Override(flags, scenario));
  ASSIGN_OR_RETURN(RunOptions run, MakeRunOptions(flags));
  const Machine machine = ReadMachine("/");
  RETURN_IF_ERROR(CheckRunnable(*scenario, machine.cores, machine.memory_bytes));
  run.overrides = std::move(overrides);
  ASSIGN_OR_RETURN(auto runner, Runner::Create(std::move(run), reaper));
  Settle(flags.settle);
  return runner;
}

int RunLadder(const BenchFlags& flags, const Scenario& scenario, os::Reaper* reaper);

int RunOne(const BenchFlags& flags, Scenario scenario, bool only_limits, os::Reaper* reaper) {
  if (!scenario.ladder.empty()) return RunLadder(flags, scenario, reaper);
  auto runner = MakeRunner(flags, &scenario, reaper);
  if (!runner.ok()) return Fail(runner.status());
  auto result = only_limits ? (*runner)->Limits(scenario) : (*runner)->Run(scenario);
  if (!result.ok()) return Fail(result.status());
  printf("%s\n", only_limits ? ReportLimits(*result).c_str()
                             : Report(*result, {flags.layout, flags.locust_rounding}).c_str());
  fflush(stdout);
  Status saved = Save(*result, flags.out_dir);
  return saved.ok() ? ExitCode(*result) : Fail(saved);
}

// Every step as a run of its own, named by its users.
int RunLadder(const BenchFlags& flags, const Scenario& scenario, os::Reaper* reaper) {
  auto steps = ParseLadder(scenario.ladder);
  if (!steps.ok()) return Fail(steps.status());
  int worst = 0;
  for (const LadderStep& step : *steps) {
    Scenario one = scenario;
    one.ladder.clear();
    one.name += fmt::format("_{}u", step.users);
    one.users = step.users;
    one.duration = step.duration;
    worst = std::max(worst, RunOne(flags, one, false, reaper));
    if (signalled) break;
  }
  return worst;
}

// All blocks of both variants, only one stack alive at a time; the limits before the first and
// after the last.
StatusOr<AbResult> RunAb(const BenchFlags& flags, const Scenario& scenario, Runner* runner) {
  const double max_regression = std::atof(flags.max_regression.c_str());
  StackOptions specs[2];
  ASSIGN_OR_RETURN(specs[0], ParseSpec(flags.a));
  ASSIGN_OR_RETURN(specs[1], ParseSpec(flags.b));
  RunResult sides[2] = {runner->NewResult(scenario), runner->NewResult(scenario)};
  sides[0].overrides["a"] = flags.a;
  sides[1].overrides["b"] = flags.b;
  const auto seed = static_cast<uint64_t>(scenario.seed);
  const std::vector<bool> b_first = BFirst(seed, flags.blocks);
  std::vector<BareSamples> blocks;
  for (size_t block = 0; block < b_first.size(); ++block) {
    for (int turn = 0; turn < 2; ++turn) {
      const size_t side = (turn == 1) != b_first[block] ? 1 : 0;
      const bool edge = (block == 0 && turn == 0) || (block + 1 == b_first.size() && turn == 1);
      const int cycles = flags.limits && edge ? static_cast<int>(SamplesNeeded(50) / 4) : 0;
      fprintf(stderr, "%s: block %zu of %zu, %c\n", scenario.name.c_str(), block + 1,
              b_first.size(), side == 0 ? 'A' : 'B');
      ASSIGN_OR_RETURN(Repeat repeat, runner->RunRepeat(scenario, specs[side], cycles, &blocks));
      if (signalled) return Error(Code::kCancelled, "CANCELLED", "stopped by a signal");
      sides[side].repeats.push_back(std::move(repeat));
    }
  }
  sides[0].limits = sides[1].limits = LimitsOf(blocks);
  return CompareAb(std::move(sides[0]), std::move(sides[1]), seed, max_regression);
}

int Ab(const std::vector<std::string>& args) {
  BenchFlags flags;
  Options options("bench");
  DeclareRun(&options, &flags);
  Status parsed = Parse(&options, args);
  if (!parsed.ok()) return Fail(parsed);
  if (options.asked() || options.positional().size() != 1) {
    printf("%s", options.Answer("torpor bench ab SCENARIO --a SPEC --b SPEC [flags]").c_str());
    return options.asked() ? 0 : 2;
  }
  auto scenario = FindScenario(flags, options.positional()[0]);
  if (!scenario.ok()) return Fail(scenario.status());
  auto ground = TakeGround();
  if (!ground.ok()) return Fail(ground.status());
  auto runner = MakeRunner(flags, &*scenario, (*ground)->reaper.get());
  if (!runner.ok()) return Fail(runner.status());
  auto result = RunAb(flags, *scenario, runner->get());
  if (!result.ok()) return Fail(result.status());
  printf("%s\n", ReportAb(*result).c_str());
  for (RunResult* side : {&result->a, &result->b}) {
    side->scenario += side == &result->a ? "-a" : "-b";
    Status saved = Save(*side, flags.out_dir);
    if (!saved.ok()) return Fail(saved);
  }
  return result->void_reasons.empty() && result->regressions.empty() ? 0 : 1;
}

int Run(const std::vector<std::string>& args, bool only_limits) {
  BenchFlags flags;
  Options options("bench");
  DeclareRun(&options, &flags);
  Status parsed = Parse(&options, args);
  if (!parsed.ok()) return Fail(parsed);
  if (options.asked()) {
    printf("%s", options
                     .Answer(only_limits ? "torpor bench limits [flags]"
                                         : "torpor bench run SCENARIO... [flags]")
                     .c_str());
    return 0;
  }
  std::vector<std::string> names = options.positional();
  if (only_limits && names.empty()) names.push_back(kDefaultScenario);
  if (names.empty()) {
    return Fail(Error(Code::kInvalidArgument, "FIELD_INVALID",
                      "name a scenario; torpor bench list shows them"));
  }
  std::vector<Scenario> scenarios;
  for (const std::string& name : names) {
    auto scenario = FindScenario(flags, name);
    if (!scenario.ok()) return Fail(scenario.status());
    scenarios.push_back(std::move(*scenario));
  }
  auto ground = TakeGround();
  if (!ground.ok()) return Fail(ground.status());
  int worst = 0;
  for (const Scenario& scenario : scenarios) {
    worst = std::max(worst, RunOne(flags, scenario, only_limits, (*ground)->reaper.get()));
    if (signalled) break;
  }
  return worst;
}

int ReportFiles(const std::vector<std::string>& args) {
  BenchFlags flags;
  Options options("bench");
  DeclareReport(&options, &flags);
  Status parsed = Parse(&options, args);
  if (!parsed.ok()) return Fail(parsed);
  if (options.asked() || options.positional().empty()) {
    printf("%s", options.Answer("torpor bench report FILE... [flags]").c_str());
    return options.asked() ? 0 : 2;
  }
  for (const std::string& path : options.positional()) {
    auto text = ReadWholeFile(path);
    if (!text.ok()) return Fail(text.status());
    auto result = ParseResult(*text, path);
    if (!result.ok()) return Fail(result.status());
    printf("%s\n", result->scenario.empty()
                       ? ReportLimits(*result).c_str()
                       : Report(*result, {flags.layout, flags.locust_rounding}).c_str());
  }
  return 0;
}

}  // namespace

int Main(const std::vector<std::string>& args) {
  InitLog("bench", LogLevel::kWarning);
  SelfPath();  // before anything takes long
  const std::string verb = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.empty() ? args.end() : args.begin() + 1, args.end());
  if (verb == "list") return List(rest);
  if (verb == "run") return Run(rest, false);
  if (verb == "limits") return Run(rest, true);
  if (verb == "ab") return Ab(rest);
  if (verb == "report") return ReportFiles(rest);
  const bool help = verb == "--help" || verb == "-h" || verb == "help";
  fprintf(help ? stdout : stderr, "%s", kUsage);
  return help ? 0 : 2;
}

}  // namespace torpor::bench
