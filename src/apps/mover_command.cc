// torpor mover: carries snapshots and images for one node, on the node's unix socket.

#include <signal.h>

#include <filesystem>
#include <thread>

#include <grpcpp/impl/codegen/service_type.h>

#include "apps/commands.h"
#include "apps/role/role.h"
#include "apps/store_settings.h"
#include "base/options.h"
#include "mover/mover.h"
#include "mover/rpc/mover_service.h"
#include "objstore/probe.h"
#include "objstore/registry.h"
#include "rpc/unix_server.h"

namespace torpor {
namespace {

struct Settings {
  std::string node_dir = "/var/lib/torpor/node";
  std::string socket;
  std::string store_root;
  std::vector<std::string> allowed_storage;
  objstore::RemoteOptions remote;
  int64_t zstd_level = snapshot::kZstdLevelDefault;
  int64_t memory_budget = snapshot::kMemoryBudgetDefault;
  mover::ImagePullerOptions images;
};

void Declare(Options* o, Settings* s) {
  o->String("node-dir", &s->node_dir, "directory of the node agent");
  o->String("mover-socket", &s->socket, "socket to serve (default NODE-DIR/run/mover.sock)");
  o->String("store-root", &s->store_root, "directory that holds all file:// snapshots");
  o->Strings("allowed-storage", &s->allowed_storage,
             "addresses below which snapshots may lie (default file://STORE-ROOT)");
  DeclareRemoteStores(o, &s->remote);
  o->Int("snapshot-zstd-level", &s->zstd_level, snapshot::kZstdLevelMin, snapshot::kZstdLevelMax,
         "compression of snapshots");
  o->Bytes("memory-budget", &s->memory_budget, snapshot::kMemoryBudgetMin,
           "memory of all uploads and downloads together");
  o->String("image-layout-dir", &s->images.layout_dir,
            "directory of OCI layouts that are used before any registry");
  o->Strings("allowed-registries", &s->images.registries.allowed,
             "registries (host[:port]) to pull from (default all with public addresses)");
  o->Strings("insecure-registries", &s->images.registries.insecure,
             "registries (host[:port]) to pull from without TLS");
  o->String("registry-auth-file", &s->images.auth_file,
            "credentials of registries as skopeo login writes them (default none)");
}

Status Complete(Settings* s) {
  for (const auto& [name, path] :
       {std::pair{"node-dir", &s->node_dir}, std::pair{"store-root", &s->store_root}}) {
    if (!path->empty() && path->front() != '/') {
      return Error(Code::kInvalidArgument, "FIELD_INVALID",
                   std::string(name) + " must be an absolute path");
    }
  }
  // skopeo separates the path of a layout from its tag by a colon.
  if (s->node_dir.empty() || s->node_dir.find(':') != std::string::npos) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "node-dir must be a path without ':'");
  }
  if (s->socket.empty()) s->socket = s->node_dir + "/run/mover.sock";
  if (s->allowed_storage.empty() && !s->store_root.empty()) {
    s->allowed_storage = {"file://" + s->store_root};
  }
  if (s->allowed_storage.empty()) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 "store-root or allowed-storage must say where snapshots lie");
  }
  s->images.node_dir = s->node_dir;
  return OkStatus();
}

// The node agent makes the directory of the socket and opens it to us; both may be starting. Null
// when a stop signal came first.
StatusOr<std::unique_ptr<rpc::UnixServer>> Serve(const std::string& path, grpc::Service* service,
                                                 const sigset_t& stop_signals) {
  constexpr auto kWait = std::chrono::seconds(30);
  const auto until = std::chrono::steady_clock::now() + kWait;
  for (;;) {
    auto server = rpc::UnixServer::Start(path, {service});
    const Code code = server.status().code();
    const bool not_yet = code == Code::kNotFound || code == Code::kPermissionDenied;
    if (!not_yet || std::chrono::steady_clock::now() >= until) return server;
    const timespec pause = {0, 50'000'000};
    if (sigtimedwait(&stop_signals, nullptr, &pause) > 0) return std::unique_ptr<rpc::UnixServer>();
  }
}

// Does `work` now and then once a day, until it is destroyed.
class Daily {
 public:
  explicit Daily(std::function<void()> work)
      : thread_([this, work = std::move(work)] { Loop(work); }) {}
  ~Daily() {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    stop_.SignalAll();
    thread_.join();
  }

 private:
  void Loop(const std::function<void()>& work) {
    for (;;) {
      work();
      const MonotonicTime next = Clock::Real()->Now() + std::chrono::hours(24);
      MutexLock lock(&mu_);
      while (!stopping_ && stop_.WaitUntil(&mu_, next)) {
      }
      if (stopping_) return;
    }
  }

  Mutex mu_;
  CondVar stop_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last
};

StatusOr<objstore::StoreRegistry> OpenStores(const Settings& settings) {
  return objstore::StandardStores({.file_root = settings.store_root,
                                   .addresses = settings.allowed_storage,
                                   .remote = settings.remote});
}

Status Run(const Settings& settings, Role& role) {
  ASSIGN_OR_RETURN(objstore::StoreRegistry stores, OpenStores(settings));
  mover::ImagePuller images(settings.images);
  mover::MoverOptions options;
  options.node_dir = settings.node_dir;
  options.allowed_storage = settings.allowed_storage;
  options.resources.zstd_level = static_cast<int>(settings.zstd_level);
  options.resources.memory_budget_bytes = settings.memory_budget;
  options.resources.metrics = snapshot::BudgetMetrics(role.metrics());
  options.metrics = OperationMetrics(role.metrics(), "mover");
  ASSIGN_OR_RETURN(std::unique_ptr<mover::Mover> mover,
                   mover::Mover::Create(options, &stores, &images, Clock::Real()));
  const Daily sweep([&] { mover->AbortOldUploads(); });
  std::unique_ptr<grpc::Service> service = mover::MakeMoverService(mover.get());
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::UnixServer> server,
                   Serve(settings.socket, service.get(), role.stop_signals()));
  if (server == nullptr) return OkStatus();
  RETURN_IF_ERROR(role.ServeUntilSignal(
      std::filesystem::path(settings.socket).parent_path() / "metrics-mover.sock",
      {{"socket", settings.socket}, {"store_root", settings.store_root}}));
  // Handlers return as soon as their operations notice; the agent sends them again to the next
  // mover.
  mover->CancelAll();
  server->Shutdown(std::chrono::seconds(5));
  return OkStatus();
}

// The exit code: 0 usable, 2 wrong usage or settings, 6 does not answer, 7 refused, 1 other.
int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return 2;
    case Code::kUnavailable:
    case Code::kResourceExhausted:
      return 6;
    case Code::kPermissionDenied:
      return 7;
    default:
      return 1;
  }
}

int CheckStorage(Settings settings) {
  settings.remote.give_up_after = std::chrono::seconds(5);  // a person waits
  auto stores = OpenStores(settings);
  Status status = stores.status();
  for (const std::string& address : settings.allowed_storage) {
    if (!status.ok()) break;
    status = objstore::ProbeStorage(*stores, address);
    if (status.ok()) printf("%s can be used\n", address.c_str());
  }
  if (!status.ok()) fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace

int CheckStorageCommand(const Args& args) {
  Settings settings;
  Options options("mover");
  Declare(&options, &settings);
  Status status = options.Parse(args);
  if (status.ok() && options.asked()) {
    printf("%s", options
                     .Answer("torpor check-storage: lists, writes, reads and deletes an object at "
                             "each allowed address.\nIts settings are those of the mover. Exit "
                             "code: 0 usable, 6 does not answer, 7 refused")
                     .c_str());
    return 0;
  }
  if (status.ok()) status = Complete(&settings);
  return status.ok() ? CheckStorage(std::move(settings)) : FailRole(status);
}

int MoverCommand(const Args& args) {
  Settings settings;
  return RunRole(args,
                 {.name = "mover",
                  .title = "torpor mover: talks to object stores and image registries for one node",
                  .declare = [&](Options* o) { Declare(o, &settings); },
                  .complete = [&] { return Complete(&settings); },
                  .run = [&](Role& role) { return Run(settings, role); },
                  .metrics_socket_help = "NODE-DIR/run/metrics-mover.sock"});
}

}  // namespace torpor
