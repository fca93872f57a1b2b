// torpor doctor: checks this machine, its node directory and the records against each other.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/doctor/machine.h"
#include "apps/doctor/node_dir.h"
#include "apps/up/layout.h"
#include "apps/up/supervisor.h"
#include "ateapi/ateapi.grpc.pb.h"
#include "base/options.h"
#include "os/fs/dir_fd.h"
#include "os/process/reaper.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "runtime/registry.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Level;
using std::chrono::seconds;

// Of torpor up: API, JSON, router, router's admin pages.
constexpr int kDefaultPorts[] = {7700, 7701, 7780, 4040};

struct Settings {
  std::string dir = "/var/lib/torpor";
  std::string runsc;
  std::string output = "table";
  bool smoke = true;
};

bool IsUp(const up::Layout& layout) {
  auto run = os::DirFd::OpenPath(layout.dir + "/run");
  return run.ok() && run->Exists("up.lock") && !os::LockFile(*run, "up.lock").ok();
}

// Boots a guest, captures and restores it: what the worker proves at its start.
void CheckRuntime(const Settings& settings, Findings* out) {
  if (!settings.smoke) {
    out->push_back({Level::kAdvice, "runsc", "not tried (--no-smoke)", "leave out --no-smoke"});
    return;
  }
  if (geteuid() != 0) return;  // said already
  char work_dir[] = "/var/tmp/torpor-doctor-XXXXXX";
  if (mkdtemp(work_dir) == nullptr) {
    out->push_back({Level::kProblem, "runsc", "cannot write to /var/tmp", "make it writable"});
    return;
  }
  auto reaper = os::Reaper::Start();
  Status status = reaper.status();
  std::string version;
  if (status.ok()) {
    auto runtime = runtime::CreateRuntime(
        "gvisor", {.binary = settings.runsc, .work_dir = work_dir, .reaper = reaper->get()});
    status = runtime.status();
    if (status.ok()) {
      const auto& can = (*runtime)->capabilities();
      version = fmt::format("{} on {}: a guest booted, was captured and went on",
                            can.runtime_version, can.platform);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(work_dir, ignored);
  if (status.ok()) {
    out->push_back({Level::kOk, "runsc", version, ""});
  } else {
    out->push_back({Level::kProblem, "runsc", std::string(status.message()),
                    status.code() == Code::kNotFound
                        ? "install runsc (apt-get install runsc, or gvisor.dev), or pass --runsc"
                        : "fix what the message names; the worker refuses to start until then"});
  }
}

class Records {
 public:
  explicit Records(const std::string& socket)
      : channel_(rpc::Connect("unix:" + socket)),
        control_(ateapi::Control::NewStub(channel_)),
        ops_(torpor::v1::Ops::NewStub(channel_)) {}

  StatusOr<std::vector<doctor::ActorRecords>> Actors() {
    std::vector<doctor::ActorRecords> out;
    ateapi::ListActorsRequest request;
    do {
      grpc::ClientContext context;
      rpc::SetDeadline(&context, seconds(30));
      ateapi::ListActorsResponse response;
      RETURN_IF_ERROR(rpc::FromGrpc(control_->ListActors(&context, request, &response)));
      for (auto& actor : *response.mutable_actors()) out.push_back({std::move(actor), {}});
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return out;
  }

  // The rules that the control plane checks itself.
  void CheckRules(Findings* out) {
    grpc::ClientContext context;
    rpc::SetDeadline(&context, std::chrono::minutes(2));
    torpor::v1::CheckRecordsResponse response;
    Status status = rpc::FromGrpc(ops_->CheckRecords(&context, {}, &response));
    if (!status.ok()) {
      out->push_back({Level::kAdvice, "rules", std::string(status.message()),
                      "use an apiserver of this version"});
      return;
    }
    for (const auto& finding : response.findings()) {
      out->push_back({Level::kProblem, "rules",
                      fmt::format("{} {}: {} ({})", finding.kind(), finding.object(),
                                  finding.message(), finding.rule()),
                      finding.kind() == "actor"
                          ? "torpor why " + finding.object() + "; torpor revert " + finding.object()
                          : "report it with the output of torpor events -A"});
    }
    if (response.findings().empty()) {
      out->push_back(
          {Level::kOk, "rules",
           fmt::format("the records of {} actors keep every rule", response.actors_checked()), ""});
    }
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<ateapi::Control::Stub> control_;
  const std::unique_ptr<torpor::v1::Ops::Stub> ops_;
};

std::vector<std::string> ReadStrings(pid_t pid, const char* name) {
  std::vector<std::string> out;
  std::ifstream in(fmt::format("/proc/{}/{}", pid, name));
  for (std::string text; std::getline(in, text, '\0');) out.push_back(text);
  return out;
}

// Tries the storage with the settings and the credentials of the mover that runs.
void CheckStorage(const up::Layout& layout, Findings* out) {
  auto run = os::DirFd::OpenPath(layout.dir + "/run");
  auto text = run.ok() ? run->ReadFile("roles.json", 1 << 20) : run.status();
  auto states = text.ok() ? up::ParseStates(*text) : text.status();
  std::vector<std::string> argv;
  os::CommandOptions options;
  if (states.ok()) {
    for (const up::RoleState& role : *states) {
      if (role.name != "mover" || role.pid <= 0) continue;
      argv = ReadStrings(role.pid, "cmdline");
      options.env = ReadStrings(role.pid, "environ");
    }
  }
  if (argv.size() < 2) {
    out->push_back({Level::kAdvice, "storage", "not tried: the mover does not run",
                    "torpor status; " + layout.Log("mover")});
    return;
  }
  argv[0] = "/proc/self/exe";
  argv[1] = "check-storage";
  options.deadline = Clock::Real()->Now() + std::chrono::minutes(1);
  auto result = os::RunCommand(argv, options);
  if (result.ok() && result->status.ok()) {
    while (!result->out.empty() && result->out.back() == '\n') result->out.pop_back();
    std::replace(result->out.begin(), result->out.end(), '\n', ';');
    out->push_back({Level::kOk, "storage", result->out, ""});
    return;
  }
  std::string said = result.ok() ? result->err : std::string(result.status().message());
  const std::string prefix = "error: ";
  said.erase(0, said.rfind(prefix, 0) == 0 ? prefix.size() : 0);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  out->push_back({Level::kProblem, "storage", said,
                  "what the message says; settings are in configure.md, object storage"});
}

void CheckData(const up::Layout& layout, bool up, Findings* out) {
  auto contents = doctor::CheckNodeDirectory(layout.Node(), out);
  if (contents.status().code() == Code::kNotFound) {
    out->push_back({Level::kOk, "node directory", layout.Node() + " does not exist yet", ""});
  } else if (!contents.ok()) {
    out->push_back({Level::kProblem, "node directory", std::string(contents.status().message()),
                    "run as root"});
  }
  if (!up) {
    out->push_back({Level::kAdvice, "records", "not checked: torpor is not up in " + layout.dir,
                    "run torpor doctor again after torpor up"});
    return;
  }
  CheckStorage(layout, out);
  Records records(layout.Run("api.sock"));
  auto actors = records.Actors();
  if (!actors.ok()) {
    out->push_back({Level::kProblem, "records", std::string(actors.status().message()),
                    "torpor status; " + layout.Log("apiserver")});
    return;
  }
  records.CheckRules(out);
  if (contents.ok()) doctor::CheckRecordsAgainstNode(*actors, *contents, out);
}

std::string Word(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kAdvice:
      return "advice";
    case Level::kProblem:
      return "PROBLEM";
  }
  return "";
}

void Print(const Findings& findings, bool json) {
  if (json) {
    auto items = nlohmann::ordered_json::array();
    for (const Finding& f : findings) {
      items.push_back(
          {{"level", Word(f.level)}, {"check", f.check}, {"what", f.what}, {"remedy", f.remedy}});
    }
    nlohmann::ordered_json out;
    out["items"] = std::move(items);
    printf("%s\n",
           out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return;
  }
  for (const Finding& f : findings) {
    printf("%-8s %-15s %s\n", Word(f.level).c_str(), f.check.c_str(), f.what.c_str());
    if (!f.remedy.empty()) printf("%-8s %-15s do: %s\n", "", "", f.remedy.c_str());
  }
}

int Fail(const Status& status) {
  fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace

int DoctorCommand(const Args& args) {
  Settings settings;
  if (const char* dir = getenv("TORPOR_DIR")) settings.dir = dir;
  Options options("doctor");
  options.String("dir", &settings.dir, "data directory of torpor up");
  options.String("runsc", &settings.runsc, "runsc program (default: runsc in PATH)");
  options.Bool("smoke", &settings.smoke, "boot, capture and restore a guest (some seconds)");
  options.Choice("output", &settings.output, {"table", "json"}, "form of the output");
  if (Status status = options.Parse(args); !status.ok()) return Fail(status);
  if (options.asked()) {
    printf(
        "%s",
        options
            .Answer("torpor doctor: checks this machine, its node directory and its "
                    "records; changes nothing (while torpor is up it writes and deletes one "
                    "object in the\nstorage of snapshots).\nExit code: 0 no problem, 1 problems, 2 "
                    "wrong usage")
            .c_str());
    return 0;
  }
  const up::Layout layout{settings.dir};
  const bool up = IsUp(layout);
  doctor::MachineQuestions questions{.dir = settings.dir};
  if (!up) questions.ports.assign(std::begin(kDefaultPorts), std::end(kDefaultPorts));
  Findings findings = doctor::CheckMachine(doctor::RealMachine(), questions);
  CheckRuntime(settings, &findings);
  CheckData(layout, up, &findings);
  Print(findings, settings.output == "json");
  for (const Finding& finding : findings) {
    if (finding.level == Level::kProblem) return 1;
  }
  return 0;
}

}  // namespace torpor
