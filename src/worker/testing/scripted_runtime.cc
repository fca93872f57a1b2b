#include "worker/testing/scripted_runtime.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <list>
#include <thread>

#include <fmt/format.h>

#include "model/reasons.h"

namespace torpor::worker {

// Accepts and answers in one thread; connections stay open until the guest ends.
class ScriptedGuest {
 public:
  ScriptedGuest(Script script, std::function<void(runtime::SandboxExit)> on_exit)
      : script_(std::move(script)),
        on_exit_(std::move(on_exit)),
        stop_(eventfd(0, EFD_CLOEXEC)),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size) != 0 ||
        (script_.listens && listen(listener_.get(), 64) != 0) ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size) != 0) {
      perror("scripted guest");
      abort();
    }
    thread_ = std::thread([this] { Serve(); });
  }
  ~ScriptedGuest() { Stop(); }

  void Stop() {
    if (stopped_.exchange(true)) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
    connections_.clear();
    listener_.Reset();
  }
  void End(int exit_code, const std::string& container = "") {
    Stop();
    on_exit_({.exit_code = exit_code, .container = container});
  }
  sockaddr_in address() const { return address_; }
  int requests() const { return requests_; }
  const Script& script() const { return script_; }

 private:
  void Serve() {
    while (true) {
      std::vector<pollfd> fds = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      if (!script_.listens) fds.pop_back();
      for (const UniqueFd& fd : connections_) fds.push_back({.fd = fd.get(), .events = POLLIN});
      if (poll(fds.data(), fds.size(), -1) < 0) continue;
      if (fds[0].revents != 0) return;
      for (auto it = connections_.begin(); it != connections_.end();) {
        auto ready = std::find_if(fds.begin(), fds.end(),
                                  [&](const pollfd& p) { return p.fd == it->get(); });
        it = ready != fds.end() && ready->revents != 0 && !Answer(it->get())
                 ? connections_.erase(it)
                 : std::next(it);
      }
      if (script_.listens && fds[1].revents != 0) {
        connections_.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      }
    }
  }
  bool Answer(int fd) {
    char buffer[4096];
    ssize_t size = recv(fd, buffer, sizeof(buffer), 0);
    if (size <= 0) return false;
    std::string body = fmt::to_string(++requests_);
    std::string answer = fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}",
                                     script_.status, body.size(), body);
    send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    return std::string_view(buffer, static_cast<size_t>(size)).find("Connection: close") ==
           std::string_view::npos;
  }

  const Script script_;
  const std::function<void(runtime::SandboxExit)> on_exit_;
  const UniqueFd stop_;
  UniqueFd listener_;
  sockaddr_in address_ = {};
  std::list<UniqueFd> connections_;
  std::atomic<int> requests_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

class ScriptedNetwork : public ActorNetwork {
 public:
  ScriptedNetwork(ScriptedRuntime* world, std::string uid) : world_(world), uid_(std::move(uid)) {}
  std::string netns_path() const override { return ""; }
  Status Prepare() override {
    MutexLock lock(&world_->mu_);
    ++world_->prepared_;
    return OkStatus();
  }
  StatusOr<UniqueFd> Dial(int) override {
    std::shared_ptr<ScriptedGuest> guest = world_->GuestOf(uid_);
    if (guest == nullptr) return Fail(reasons::kInternal, "no guest");
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = guest->address();
    (void)connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    return fd;
  }
  Status Remove() override {
    if (removed_.exchange(true)) return OkStatus();
    MutexLock lock(&world_->mu_);
    --world_->networks_;
    return OkStatus();
  }

 private:
  ScriptedRuntime* const world_;
  const std::string uid_;
  std::atomic<bool> removed_{false};
};

class ScriptedSandbox : public runtime::Sandbox {
 public:
  ScriptedSandbox(ScriptedRuntime* world, std::string uid, std::shared_ptr<ScriptedGuest> guest)
      : world_(world), uid_(std::move(uid)), guest_(std::move(guest)) {}
  StatusOr<runtime::CaptureOutcome> Capture(const runtime::CaptureArgs& args,
                                            runtime::CaptureFailure* failure) override {
    PhaseRecorder::Scope scope(args.phases, "checkpoint");
    const Script& script = guest_->script();
    if (!script.capture_error.ok()) {
      failure->status = script.capture_error;
      failure->guest_alive = script.alive_after_capture_error;
      if (!failure->guest_alive) guest_->Stop();
      return script.capture_error;
    }
    runtime::CaptureOutcome outcome;
    if (args.fidelity == torpor::v1::FIDELITY_MEMORY) {
      std::ofstream(args.capture_dir + "/memory.img") << guest_->requests();
      outcome.files.emplace_back().set_name("memory.img");
      outcome.files[0].set_needed_from(torpor::v1::FIDELITY_MEMORY);
    }
    if (args.pack_volumes) {
      auto volumes = args.pack_volumes();
      if (!volumes.ok()) {
        *failure = {volumes.status(), true};
        return volumes.status();
      }
      outcome.files.insert(outcome.files.end(), volumes->begin(), volumes->end());
    }
    if (!args.leave_running) (void)Stop(Duration::zero()).ok();
    return outcome;
  }
  Status Stop(Duration) override {
    guest_->Stop();
    MutexLock lock(&world_->mu_);
    auto it = world_->guests_.find(uid_);
    if (it != world_->guests_.end() && it->second == guest_) world_->guests_.erase(it);
    return OkStatus();
  }
  pid_t main_pid() const override { return getpid(); }

 private:
  ScriptedRuntime* const world_;
  const std::string uid_;
  const std::shared_ptr<ScriptedGuest> guest_;
};

class ScriptedPrepared : public runtime::PreparedSandbox {
 public:
  ScriptedPrepared(ScriptedRuntime* world, const runtime::StartArgs& args, int deaths)
      : world_(world),
        name_(args.sandbox_id),
        deaths_(deaths),
        stdout_(dup(args.stdio.begin()->second.stdout_fd)) {}
  bool alive() const override {
    MutexLock lock(&world_->mu_);
    return world_->deaths_ == deaths_;
  }
  StatusOr<std::unique_ptr<runtime::Sandbox>> Restore(
      const runtime::StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit,
      bool* guest_ran) override {
    PhaseRecorder::Scope scope(args.phases, "restore");
    MutexLock lock(&world_->mu_);
    if (!world_->preparation_.restore_error.ok()) {
      *guest_ran = world_->preparation_.guest_ran;
      return world_->preparation_.restore_error;
    }
    *guest_ran = true;
    auto guest = std::make_shared<ScriptedGuest>(world_->script_, std::move(on_exit));
    world_->guests_[name_] = guest;
    dprintf(stdout_.get(), "guest wakes in %s\n", name_.c_str());
    stdout_.Reset();
    return std::make_unique<ScriptedSandbox>(world_, name_, guest);
  }
  Status Discard() override {
    MutexLock lock(&world_->mu_);
    ++world_->discarded_;
    return OkStatus();
  }

 private:
  ScriptedRuntime* const world_;
  const std::string name_;
  const int deaths_;
  UniqueFd stdout_;
};

std::string ScriptedRuntime::PreparationKey(const runtime::StartArgs& args) const {
  MutexLock lock(&mu_);
  return args.restore_fidelity == torpor::v1::FIDELITY_MEMORY ? preparation_.key : "";
}

StatusOr<std::unique_ptr<runtime::PreparedSandbox>> ScriptedRuntime::Prepare(
    const runtime::StartArgs& args) {
  Preparation preparation;
  {
    MutexLock lock(&mu_);
    preparation = preparation_;
  }
  if (preparation.on_make) preparation.on_make();
  RETURN_IF_ERROR(args.prepare_network());
  if (!preparation.prepare_error.ok()) return preparation.prepare_error;
  MutexLock lock(&mu_);
  ++made_;
  return std::make_unique<ScriptedPrepared>(this, args, deaths_);
}

Status ScriptedRuntime::CleanUp(const std::string& sandbox_id, const std::string&) {
  MutexLock lock(&mu_);
  cleaned_up_.insert(sandbox_id);
  return OkStatus();
}

void ScriptedRuntime::SetPreparation(Preparation preparation) {
  MutexLock lock(&mu_);
  preparation_ = std::move(preparation);
}

void ScriptedRuntime::KillPrepared() {
  MutexLock lock(&mu_);
  ++deaths_;
}

int ScriptedRuntime::made() const {
  MutexLock lock(&mu_);
  return made_;
}

int ScriptedRuntime::discarded() const {
  MutexLock lock(&mu_);
  return discarded_;
}

int ScriptedRuntime::starts() const {
  MutexLock lock(&mu_);
  return starts_;
}

std::set<std::string> ScriptedRuntime::cleaned_up() const {
  MutexLock lock(&mu_);
  return cleaned_up_;
}

ScriptedRuntime::ScriptedRuntime() {
  capabilities_.sandbox_class = ateapi::SANDBOX_CLASS_GVISOR;
  capabilities_.runtime = "scripted";
  capabilities_.runtime_version = "1";
  capabilities_.fidelities = {torpor::v1::FIDELITY_VOLUMES, torpor::v1::FIDELITY_MEMORY};
}

ScriptedRuntime::~ScriptedRuntime() = default;

StatusOr<std::unique_ptr<runtime::Sandbox>> ScriptedRuntime::Start(
    const runtime::StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit,
    bool* guest_ran) {
  PhaseRecorder::Scope scope(args.phases, args.restore_dir.empty() ? "boot" : "restore");
  {
    MutexLock lock(&mu_);
    last_start_ = args;
    ++starts_;
  }
  RETURN_IF_ERROR(args.prepare_network());
  if (!script_.start_error.ok()) {
    *guest_ran = script_.guest_ran;
    return script_.start_error;
  }
  auto guest = std::make_shared<ScriptedGuest>(script_, std::move(on_exit));
  {
    MutexLock lock(&mu_);
    guests_[args.sandbox_id] = guest;
  }
  dprintf(args.stdio.begin()->second.stdout_fd, "guest starts\n");
  if (script_.exits_at_start) {
    dprintf(args.stdio.begin()->second.stderr_fd, "no such file: model.bin\n");
    guest->End(3);
  }
  *guest_ran = true;
  return std::make_unique<ScriptedSandbox>(this, args.sandbox_id, guest);
}

StatusOr<std::shared_ptr<ActorNetwork>> ScriptedRuntime::Create(const std::string& actor_uid) {
  MutexLock lock(&mu_);
  ++networks_;
  return std::make_shared<ScriptedNetwork>(this, actor_uid);
}

void ScriptedRuntime::EndGuest(const std::string& uid, int exit_code,
                               const std::string& container) {
  GuestOf(uid)->End(exit_code, container);
}

std::shared_ptr<ScriptedGuest> ScriptedRuntime::GuestOf(const std::string& uid) const {
  MutexLock lock(&mu_);
  auto it = guests_.find(uid);
  return it == guests_.end() ? nullptr : it->second;
}

runtime::StartArgs ScriptedRuntime::last_start() const {
  MutexLock lock(&mu_);
  return last_start_;
}

int ScriptedRuntime::networks() const {
  MutexLock lock(&mu_);
  return networks_;
}

int ScriptedRuntime::prepared() const {
  MutexLock lock(&mu_);
  return prepared_;
}

int ScriptedRuntime::requests(const std::string& uid) const { return GuestOf(uid)->requests(); }

}  // namespace torpor::worker
