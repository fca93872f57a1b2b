// torpor apiserver: the control plane with its store, on gRPC, JSON and two unix sockets.

#include <grpcpp/impl/codegen/service_type.h>
#include <sys/stat.h>

#include <filesystem>

#include <fmt/format.h>

#include "api/control_methods.h"
#include "api/http/server.h"
#include "api/service/grpc_service.h"
#include "api/service/log_client.h"
#include "apps/apiserver_metrics.h"
#include "apps/commands.h"
#include "apps/role/role.h"
#include "apps/store_settings.h"
#include "base/thread_pool.h"
#include "control/control_plane.h"
#include "control/rpc/grpc_node_client.h"
#include "control/rpc/registry_service.h"
#include "control/snapshot_admin.h"
#include "control/store/memory/memory_store.h"
#include "control/store/sqlite/sqlite_store.h"
#include "model/reasons.h"
#include "objstore/registry.h"
#include "rpc/unix_server.h"
#include "snapshot/admin/admin.h"

namespace torpor {
namespace {

using std::chrono::milliseconds;

struct Settings {
  std::string dir = "/var/lib/torpor";
  std::string store = "sqlite";
  std::string api_listen = "127.0.0.1:7700";
  std::string http_listen = "127.0.0.1:7701";
  std::string api_socket;
  std::string registry_socket;
  std::string token_file;
  std::string storage_location;
  std::vector<std::string> allowed_storage;
  objstore::RemoteOptions remote;
  std::vector<std::string> http_hosts;
  std::vector<std::string> http_allowed_origins;
  std::vector<std::string> trusted_uids;
  std::vector<uid_t> trusted;
};

void Declare(Options* o, Settings* s) {
  o->String("dir", &s->dir, "data directory");
  o->Choice("store", &s->store, {"sqlite", "memory"}, "where the control plane keeps its records");
  o->String("api-listen", &s->api_listen, "gRPC address");
  o->String("http-listen", &s->http_listen, "address of JSON over HTTP");
  o->String("api-socket", &s->api_socket, "gRPC socket for local users (default DIR/run/api.sock)");
  o->String("registry-socket", &s->registry_socket,
            "socket for node agents and routers (default DIR/run/registry.sock)");
  o->String("token-file", &s->token_file,
            "token that TCP clients must send; made when it is missing (default DIR/token)");
  o->String("storage-location", &s->storage_location,
            "where templates that name no place keep snapshots (default file://DIR/store)");
  o->Strings("allowed-storage", &s->allowed_storage,
             "other addresses below which snapshots may lie; file:// at most once in all");
  DeclareRemoteStores(o, &s->remote);
  o->Strings("http-hosts", &s->http_hosts, "host names by which the JSON address may be called");
  o->Strings("http-allowed-origins", &s->http_allowed_origins,
             "web origins that may call the JSON address");
  o->Strings("trusted-uid", &s->trusted_uids,
             "users that may use the gRPC socket besides root and the server's own");
}

Status Complete(Settings* s) {
  std::error_code ec;
  s->dir = std::filesystem::absolute(s->dir, ec).lexically_normal();
  auto fill = [&](std::string* path, const char* name) {
    if (path->empty()) *path = s->dir + name;
  };
  fill(&s->api_socket, "/run/api.sock");
  fill(&s->registry_socket, "/run/registry.sock");
  fill(&s->token_file, "/token");
  if (s->storage_location.empty()) s->storage_location = "file://" + s->dir + "/store";
  for (const std::string& text : s->trusted_uids) {
    char* end = nullptr;
    const unsigned long uid = strtoul(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || uid >= UINT32_MAX || text[0] == '-') {
      return Error(Code::kInvalidArgument, "FIELD_INVALID",
                   fmt::format("--trusted-uid {}: must be the number of a user", text));
    }
    s->trusted.push_back(static_cast<uid_t>(uid));
  }
  return OkStatus();
}

// Private, unless it exists already.
Status MakeDirectory(const std::filesystem::path& path) {
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) return OkStatus();
  std::filesystem::create_directories(path, ec);
  if (ec) return ErrnoStatus(ec.value(), "make directory " + path.string());
  if (chmod(path.c_str(), 0700) != 0) return ErrnoStatus(errno, "chmod " + path.string());
  return OkStatus();
}

Status MakeParent(const std::string& file) {
  return MakeDirectory(std::filesystem::path(file).parent_path());
}

StatusOr<std::unique_ptr<control::Store>> OpenStore(const Settings& s) {
  if (s.store == "memory") return std::make_unique<control::MemoryStore>();
  const std::string path = s.dir + "/control/torpor.db";
  RETURN_IF_ERROR(MakeParent(path));
  return control::SqliteStore::Open(path);
}

// The control plane never blocks; copies and deletions do, so they get threads of their own.
class Snapshots : public control::SnapshotAdmin {
 public:
  explicit Snapshots(objstore::StoreRegistry stores) : stores_(std::move(stores)) {}
  ~Snapshots() override { stopping_ = true; }

  void CopySnapshot(const torpor::v1::SnapshotRef& from, const std::string& to_uri,
                    control::DoneStatus done) override {
    Run(
        [this, from, to_uri] {
          return snapshot::CopySnapshot(stores_, from.uri(), to_uri, from.manifest_sha256())
              .status();
        },
        std::move(done));
  }
  void DeleteSnapshot(const std::string& uri, control::DoneStatus done) override {
    Run([this, uri] { return snapshot::DeleteSnapshot(stores_, uri); }, std::move(done));
  }

 private:
  void Run(std::function<Status()> work, control::DoneStatus done) {
    pool_.Run([this, work = std::move(work), done = std::move(done)] {
      // What has not begun when the server stops is begun by the next one.
      done(stopping_ ? Fail(reasons::kShuttingDown, "the apiserver is shutting down") : work());
    });
  }

  const objstore::StoreRegistry stores_;
  std::atomic<bool> stopping_ = false;
  ThreadPool pool_{4};  // last: its destructor runs what is queued
};

StatusOr<std::unique_ptr<control::SnapshotAdmin>> OpenSnapshots(const Settings& s) {
  constexpr std::string_view kFile = "file://";
  objstore::StoreOptions options;
  options.remote = s.remote;
  options.addresses = s.allowed_storage;
  options.addresses.insert(options.addresses.begin(), s.storage_location);
  for (const std::string& address : options.addresses) {
    if (address.rfind(kFile, 0) != 0) continue;
    if (!options.file_root.empty()) {
      return Error(Code::kInvalidArgument, "FIELD_INVALID",
                   "storage-location and allowed-storage name more than one file:// address");
    }
    options.file_root = address.substr(kFile.size());
    RETURN_IF_ERROR(MakeDirectory(options.file_root));
  }
  ASSIGN_OR_RETURN(objstore::StoreRegistry stores, objstore::StandardStores(options));
  return std::make_unique<Snapshots>(std::move(stores));
}

// Everything that runs. Members are in the order of their construction; Stop takes them down.
class Apiserver {
 public:
  static StatusOr<std::unique_ptr<Apiserver>> Start(const Settings& s, MetricRegistry* metrics);
  ~Apiserver() { Stop(); }
  void Stop();

  int grpc_port() const { return grpc_->port(); }
  int http_port() const { return http_->port(); }

 private:
  Apiserver(api::TokenAuthenticator token, MetricRegistry* metrics)
      : token_(std::move(token)), metrics_(metrics) {}
  Status StartControl(const Settings& s);
  Status Listen(const Settings& s);

  const api::TokenAuthenticator token_;
  ApiserverMetrics metrics_;
  std::unique_ptr<control::Store> store_;
  std::unique_ptr<control::SnapshotAdmin> snapshots_;
  api::LogClient logs_;
  api::Dispatcher dispatcher_;
  std::unique_ptr<control::ControlPlane> control_;

  api::GrpcService on_tcp_{&dispatcher_, &token_, Clock::Real()};
  api::GrpcService on_socket_{&dispatcher_, nullptr, Clock::Real()};
  std::unique_ptr<api::HttpHandler> http_handler_;
  std::vector<std::unique_ptr<grpc::Service>> registry_services_;

  std::unique_ptr<rpc::UnixServer> registry_;
  std::unique_ptr<rpc::UnixServer> socket_;
  std::unique_ptr<api::GrpcServer> grpc_;
  std::unique_ptr<api::HttpServer> http_;
};

StatusOr<std::unique_ptr<Apiserver>> Apiserver::Start(const Settings& s, MetricRegistry* metrics) {
  RETURN_IF_ERROR(MakeParent(s.token_file));
  ASSIGN_OR_RETURN(std::string token, api::LoadOrMakeToken(s.token_file));
  std::unique_ptr<Apiserver> server(
      new Apiserver(api::TokenAuthenticator(std::move(token), s.token_file), metrics));
  RETURN_IF_ERROR(server->StartControl(s));
  RETURN_IF_ERROR(server->Listen(s));
  return server;
}

Status Apiserver::StartControl(const Settings& s) {
  ASSIGN_OR_RETURN(store_, OpenStore(s));
  store_ = metrics_.Measure(std::move(store_));
  ASSIGN_OR_RETURN(snapshots_, OpenSnapshots(s));
  control::ControlPlane::Parts parts;
  parts.store = store_.get();
  parts.snapshots = snapshots_.get();
  parts.node_clients = control::MakeGrpcNodeClient;
  parts.clock = Clock::Real();
  parts.ids = IdSource::Real();
  parts.on_ended = [this](const std::string& actor_uid, const torpor::v1::OperationReport& report) {
    metrics_.Ended(actor_uid, report);
  };
  control::Settings settings;
  settings.default_storage_location = s.storage_location;
  ASSIGN_OR_RETURN(control_, control::ControlPlane::Create(parts, settings));
  api::ServeControlPlane(&dispatcher_, control_.get(), &logs_);
  dispatcher_.Measure(metrics_.requests(), Clock::Real());
  metrics_.CountQueue([control = control_.get()] { return control->Queued(); });
  return OkStatus();
}

Status Apiserver::Listen(const Settings& s) {
  registry_services_ = control::RegistryServices(control_.get());
  std::vector<grpc::Service*> registry;
  for (const auto& service : registry_services_) registry.push_back(service.get());
  RETURN_IF_ERROR(MakeParent(s.registry_socket));
  ASSIGN_OR_RETURN(registry_, rpc::UnixServer::Start(s.registry_socket, registry));
  RETURN_IF_ERROR(MakeParent(s.api_socket));
  rpc::UnixServerOptions options;
  options.allowed_uids = s.trusted;
  options.configure = [this](grpc::ServerBuilder* builder) { on_socket_.AddTo(builder); };
  ASSIGN_OR_RETURN(socket_, rpc::UnixServer::Start(s.api_socket, {}, options));
  ASSIGN_OR_RETURN(grpc_, api::GrpcServer::Start(s.api_listen, &on_tcp_));
  http_handler_ = std::make_unique<api::HttpHandler>(
      &dispatcher_, &token_, api::HttpRules{s.http_hosts, s.http_allowed_origins}, Clock::Real());
  ASSIGN_OR_RETURN(http_, api::HttpServer::Start(s.http_listen, http_handler_.get()));
  return OkStatus();
}

// New calls are refused, then the waiting ones are told, then the listeners go: every caller that
// is there gets an answer.
void Apiserver::Stop() {
  dispatcher_.Stop();
  if (registry_) registry_->Shutdown(milliseconds(500));
  control_.reset();
  logs_.Stop();
  if (http_) http_->Stop(milliseconds(500));
  if (grpc_) grpc_->Stop(milliseconds(500));
  if (socket_) socket_->Shutdown(milliseconds(500));
}

Status Run(const Settings& settings, Role& role) {
  ASSIGN_OR_RETURN(std::unique_ptr<Apiserver> server, Apiserver::Start(settings, role.metrics()));
  RETURN_IF_ERROR(role.ServeUntilSignal(
      std::filesystem::path(settings.api_socket).parent_path() / "metrics-apiserver.sock",
      {{"grpc_port", fmt::to_string(server->grpc_port())},
       {"http_port", fmt::to_string(server->http_port())},
       {"api_socket", settings.api_socket},
       {"registry_socket", settings.registry_socket},
       {"store", settings.store}}));
  server->Stop();
  return OkStatus();
}

}  // namespace

int ApiserverCommand(const Args& args) {
  Settings settings;
  return RunRole(args, {.name = "apiserver",
                        .title = "torpor apiserver: the control plane",
                        .declare = [&](Options* o) { Declare(o, &settings); },
                        .complete = [&] { return Complete(&settings); },
                        .run = [&](Role& role) { return Run(settings, role); },
                        .metrics_socket_help = "DIR/run/metrics-apiserver.sock"});
}

}  // namespace torpor
