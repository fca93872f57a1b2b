#include "runtime/fake/fake_runtime.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/reasons.h"
#include "runtime/fake/fake_guest.h"

namespace torpor::runtime {
namespace {

constexpr char kImageFile[] = "memory.img";

Status CheckFidelity(torpor::v1::Fidelity fidelity) {
  if (fidelity == torpor::v1::FIDELITY_MEMORY || fidelity == torpor::v1::FIDELITY_VOLUMES) {
    return OkStatus();
  }
  return Fail(reasons::kFidelityUnsupported, "the fake class knows MEMORY and VOLUMES");
}

StatusOr<std::string> ReadImage(const StartArgs& args) {
  std::string path = args.restore_dir + "/" + kImageFile;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  for (const auto& listed : args.files) {
    if (listed.name() == kImageFile &&
        listed.logical_bytes() != static_cast<int64_t>(content.str().size())) {
      return Fail(reasons::kSnapshotCorrupt, path + " has another size");
    }
  }
  return content.str();
}

Status Take(Status& next) {
  Status status;
  std::swap(status, next);
  return status;
}

}  // namespace

class FakeSandbox : public Sandbox {
 public:
  FakeSandbox(FakeRuntime* runtime, std::string id, std::string state_dir,
              std::shared_ptr<FakeGuest> guest)
      : runtime_(runtime),
        id_(std::move(id)),
        state_dir_(std::move(state_dir)),
        guest_(std::move(guest)) {}

  StatusOr<CaptureOutcome> Capture(const CaptureArgs& args, CaptureFailure* failure) override {
    auto failed = [&](Status status, bool alive) {
      if (failure != nullptr) *failure = {status, alive};
      return status;
    };
    Status supported = CheckFidelity(args.fidelity);
    if (!supported.ok()) return failed(std::move(supported), true);
    runtime_->RunHook("capture", id_);
    std::optional<PhaseRecorder::Scope> phase;
    if (args.phases != nullptr) phase.emplace(args.phases, "checkpoint");
    if (guest_->ended()) {
      return failed(Fail(reasons::kWorkloadExited, "the guest ended before the capture"), false);
    }
    Status injected;
    bool alive = false;
    {
      MutexLock lock(&runtime_->mu_);
      injected = Take(runtime_->next_capture_);
      alive = runtime_->next_capture_alive_;
    }
    if (!injected.ok()) {
      if (!alive) guest_->End({137, 9}, false);
      return failed(std::move(injected), alive);
    }
    const bool memory = args.fidelity == torpor::v1::FIDELITY_MEMORY;
    CaptureOutcome outcome;
    auto pack = [&]() -> Status {
      if (!args.pack_volumes) return OkStatus();
      ASSIGN_OR_RETURN(auto volumes, args.pack_volumes());
      outcome.files.insert(outcome.files.end(), volumes.begin(), volumes.end());
      return OkStatus();
    };
    if (!memory) {
      if (Status packed = pack(); !packed.ok()) return failed(std::move(packed), true);
    }
    if (!args.leave_running && !guest_->End({0, 0}, false)) {
      return failed(Fail(reasons::kWorkloadExited, "the guest ended before the capture"), false);
    }
    if (memory) {
      Status saved = SaveMemory(args, &outcome);
      if (saved.ok()) saved = pack();
      if (!saved.ok()) return failed(std::move(saved), args.leave_running);
    }
    if (!args.leave_running) runtime_->Forget(id_);
    return outcome;
  }

  Status SaveMemory(const CaptureArgs& args, CaptureOutcome* outcome) {
    std::string image = guest_->Save();
    std::ofstream file(args.capture_dir + "/" + kImageFile, std::ios::binary);
    file << image;
    file.close();
    if (!file) return ErrnoStatus(errno, "write " + args.capture_dir);
    torpor::v1::SnapshotFile& listed = outcome->files.emplace_back();
    listed.set_name(kImageFile);
    listed.set_logical_bytes(static_cast<int64_t>(image.size()));
    listed.set_populated_bytes(static_cast<int64_t>(image.size()));
    listed.set_needed_from(torpor::v1::FIDELITY_MEMORY);
    return OkStatus();
  }

  Status Stop(Duration) override {
    Status injected;
    {
      MutexLock lock(&runtime_->mu_);
      injected = Take(runtime_->next_stop_);
    }
    if (!injected.ok()) return injected;
    if (guest_->End({143, 15}, false)) runtime_->Forget(id_);
    return runtime_->CleanUp("", state_dir_);
  }
  pid_t main_pid() const override { return getpid(); }

 private:
  FakeRuntime* const runtime_;
  const std::string id_;
  const std::string state_dir_;
  const std::shared_ptr<FakeGuest> guest_;
};

FakeRuntime::FakeRuntime(Options options) : options_(std::move(options)) {
  capabilities_.sandbox_class = ateapi::SANDBOX_CLASS_GVISOR;
  capabilities_.runtime = "fake";
  capabilities_.runtime_version = options_.version;
  capabilities_.platform = "fake";
  capabilities_.architecture = "amd64";
  capabilities_.fidelities = {torpor::v1::FIDELITY_VOLUMES, torpor::v1::FIDELITY_MEMORY};
}

FakeRuntime::~FakeRuntime() = default;

StatusOr<std::unique_ptr<Sandbox>> FakeRuntime::Start(const StartArgs& args,
                                                      std::function<void(SandboxExit)> on_exit,
                                                      bool* guest_ran) {
  *guest_ran = false;
  if (args.restore_fidelity != torpor::v1::FIDELITY_UNSPECIFIED) {
    RETURN_IF_ERROR(CheckFidelity(args.restore_fidelity));
  }
  RunHook("start", args.sandbox_id);
  std::optional<PhaseRecorder::Scope> phase;
  bool restore = args.restore_fidelity == torpor::v1::FIDELITY_MEMORY;
  if (args.phases != nullptr) phase.emplace(args.phases, restore ? "restore" : "boot");
  auto sandbox = StartGuest(args, std::move(on_exit));
  *guest_ran = sandbox.ok();
  if (!sandbox.ok() && phase) return phase->Fail(sandbox.status());
  return sandbox;
}

StatusOr<std::unique_ptr<Sandbox>> FakeRuntime::StartGuest(
    const StartArgs& args, std::function<void(SandboxExit)> on_exit) {
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(Take(next_start_));
  }
  int stdout_fd = args.stdio.empty() ? -1 : args.stdio.begin()->second.stdout_fd;
  auto guest = std::make_shared<FakeGuest>(std::move(on_exit), stdout_fd);
  if (args.restore_fidelity == torpor::v1::FIDELITY_MEMORY) {
    ASSIGN_OR_RETURN(std::string image, ReadImage(args));
    RETURN_IF_ERROR(guest->Load(image));
  }
  if (args.prepare_network) RETURN_IF_ERROR(args.prepare_network());
  if (options_.serve_http) {
    int port = args.spec.http_port() == 0 ? 80 : args.spec.http_port();
    RETURN_IF_ERROR(guest->ServeHttp(args.netns_path, port));
  }
  MutexLock lock(&mu_);
  if (!guests_.emplace(args.sandbox_id, guest).second) {
    return Error(Code::kAlreadyExists, "ALREADY_EXISTS", args.sandbox_id + " runs already");
  }
  return std::make_unique<FakeSandbox>(this, args.sandbox_id, args.state_dir, guest);
}

Status FakeRuntime::CleanUp(const std::string& sandbox_id, const std::string& state_dir) {
  auto guest = Find(sandbox_id);
  if (guest.ok()) {
    (*guest)->End({137, 9}, false);
    Forget(sandbox_id);
  }
  std::error_code error;
  std::vector<std::filesystem::path> entries;
  std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator it(state_dir, error); !error && it != end;
       it.increment(error)) {
    entries.push_back(it->path());
  }
  for (const auto& entry : entries) std::filesystem::remove_all(entry, error);
  return OkStatus();
}

void FakeRuntime::FailNextStart(Status status) {
  MutexLock lock(&mu_);
  next_start_ = std::move(status);
}

void FakeRuntime::FailNextCapture(Status status, bool guest_alive) {
  MutexLock lock(&mu_);
  next_capture_ = std::move(status);
  next_capture_alive_ = guest_alive;
}

void FakeRuntime::FailNextStop(Status status) {
  MutexLock lock(&mu_);
  next_stop_ = std::move(status);
}

void FakeRuntime::SetHook(std::function<void(const std::string&, const std::string&)> hook) {
  MutexLock lock(&mu_);
  hook_ = std::move(hook);
}

void FakeRuntime::RunHook(const std::string& step, const std::string& sandbox_id) {
  std::function<void(const std::string&, const std::string&)> hook;
  {
    MutexLock lock(&mu_);
    hook = hook_;
  }
  if (hook) hook(step, sandbox_id);
}

StatusOr<std::shared_ptr<FakeGuest>> FakeRuntime::Find(const std::string& sandbox_id) {
  MutexLock lock(&mu_);
  auto it = guests_.find(sandbox_id);
  if (it == guests_.end()) {
    return Error(Code::kNotFound, "INTERNAL", "no fake guest " + sandbox_id);
  }
  return it->second;
}

void FakeRuntime::Forget(const std::string& sandbox_id) {
  std::shared_ptr<FakeGuest> guest;  // destroyed without the lock: its threads may be calling us
  MutexLock lock(&mu_);
  auto it = guests_.find(sandbox_id);
  if (it == guests_.end()) return;
  guest = std::move(it->second);
  guests_.erase(it);
}

StatusOr<std::string> FakeRuntime::Ask(const std::string& sandbox_id, const std::string& line) {
  ASSIGN_OR_RETURN(std::shared_ptr<FakeGuest> guest, Find(sandbox_id));
  return guest->Ask(line);
}

Status FakeRuntime::Crash(const std::string& sandbox_id, SandboxExit exit) {
  ASSIGN_OR_RETURN(std::shared_ptr<FakeGuest> guest, Find(sandbox_id));
  guest->End(exit, true);
  Forget(sandbox_id);
  return OkStatus();
}

StatusOr<int> FakeRuntime::HttpPort(const std::string& sandbox_id) {
  ASSIGN_OR_RETURN(std::shared_ptr<FakeGuest> guest, Find(sandbox_id));
  return guest->http_port();
}

size_t FakeRuntime::running() const {
  MutexLock lock(&mu_);
  return guests_.size();
}

}  // namespace torpor::runtime
