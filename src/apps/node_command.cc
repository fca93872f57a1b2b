// torpor node: the node agent of one machine, on unix sockets below its directory.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <grpcpp/impl/codegen/service_type.h>

#include "agent/control_link.h"
#include "agent/housekeeper.h"
#include "agent/log_reader.h"
#include "agent/node_agent.h"
#include "agent/rpc/clients.h"
#include "agent/rpc/services.h"
#include "apps/commands.h"
#include "apps/role/role.h"
#include "apps/run_as.h"
#include "base/uuid.h"
#include "model/names.h"
#include "rpc/unix_server.h"

namespace torpor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Settings {
  std::string node_dir = "/var/lib/torpor/node";
  std::string node_name;
  std::string registry_socket = "/var/lib/torpor/run/registry.sock";
  std::string agent_socket_user = "root";
  std::string mover_user = kMoverUser;
  std::string image_layout_dir;
  std::vector<std::string> worker_ids = {"gvisor-0", "microvm-0", "fake-0"};
  Duration worker_unreachable_max = seconds(5);
  int64_t image_cache_max_bytes = 0;
  Duration image_cache_min_age = std::chrono::minutes(2);
  Duration actor_gc_min_age = std::chrono::minutes(10);
  Duration actor_gc_period = std::chrono::minutes(5);
};

void Declare(Options* o, Settings* s) {
  o->String("node-dir", &s->node_dir, "directory of the node");
  o->String("node-name", &s->node_name, "name of the node (default the host's name)");
  o->String("registry-socket", &s->registry_socket, "socket of the apiserver for node agents");
  o->String("agent-socket-user", &s->agent_socket_user, "user that may connect to agent.sock");
  o->String("mover-user", &s->mover_user,
            "user of the mover; root when there is no such user on this machine");
  o->String("image-layout-dir", &s->image_layout_dir,
            "OCI layouts that image references are looked up in first; the mover reads them");
  o->Strings("worker-ids", &s->worker_ids, "worker slots of this node");
  o->DurationFlag("worker-unreachable-max", &s->worker_unreachable_max, milliseconds(100),
                  std::chrono::minutes(1),
                  "how long a worker or mover that does not answer is asked again");
  o->Bytes("image-cache-max-bytes", &s->image_cache_max_bytes, 0,
           "disk space for unpacked images and their blobs (0: a tenth of the file system)");
  o->DurationFlag("image-cache-min-age", &s->image_cache_min_age, seconds(0),
                  std::chrono::hours(24 * 365), "images used since then are not evicted");
  o->DurationFlag("actor-gc-min-age", &s->actor_gc_min_age, seconds(0),
                  std::chrono::hours(24 * 365),
                  "what changed since then is never taken for garbage");
  o->DurationFlag("actor-gc-period", &s->actor_gc_period, milliseconds(100), std::chrono::hours(24),
                  "time between passes; three must agree before anything is removed");
}

Status Bad(std::string_view message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

Status Complete(Settings* s) {
  std::error_code ec;
  s->node_dir = std::filesystem::absolute(s->node_dir, ec).lexically_normal();
  while (s->node_dir.size() > 1 && s->node_dir.back() == '/') s->node_dir.pop_back();
  if (s->node_name.empty()) {
    char host[256] = {};
    if (gethostname(host, sizeof host - 1) != 0) return ErrnoStatus(errno, "gethostname");
    s->node_name = host;
    for (char& c : s->node_name) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
    if (!IsSubdomain(s->node_name)) s->node_name = "local";
  }
  if (!IsSubdomain(s->node_name)) return Bad("--node-name must be labels joined by dots");
  for (const std::string& id : s->worker_ids) {
    if (!IsLabel(id)) return Bad("--worker-ids must be labels: 1 to 63 of a-z 0-9 -");
  }
  if (s->worker_ids.empty()) return Bad("--worker-ids must name at least one slot");
  return OkStatus();
}

// node.json: which node this directory belongs to. Written once, durably.
Status CheckNodeFile(const os::DirFd& dir, const std::string& node_name) {
  constexpr int kFormat = 1;
  constexpr size_t kBytesMax = 64 << 10;
  auto text = dir.ReadFile("node.json", kBytesMax);
  if (text.status().code() == Code::kNotFound) {
    std::string json =
        fmt::format("{{\"format\": {}, \"node_id\": \"{}\", \"node_name\": \"{}\"}}\n", kFormat,
                    IdSource::Real()->NewUuid(), node_name);
    return dir.DurableWrite("node.json", json, 0600);
  }
  RETURN_IF_ERROR(text.status());
  if (text->find(fmt::format("\"format\": {},", kFormat)) != std::string::npos) return OkStatus();
  return Error(Code::kFailedPrecondition, "INTERNAL",
               "node.json is of another format; use the version of torpor that wrote it");
}

// Everything that runs. Members are in the order of their construction.
class Node {
 public:
  static StatusOr<std::unique_ptr<Node>> Start(const Settings& s, MetricRegistry* metrics);
  // False when operations are still running: they continue in worker and mover, and the next agent
  // takes them over from its journal.
  bool Stop();

 private:
  Status Listen(const Settings& s);
  std::string Socket(const std::string& name) const { return dirs_->path() + "/run/" + name; }

  UniqueFd lock_;
  std::unique_ptr<agent::NodeDirs> dirs_;
  std::unique_ptr<agent::Workers> workers_;
  std::unique_ptr<agent::MoverClient> mover_;
  std::unique_ptr<agent::RegistryClient> registry_;
  std::unique_ptr<agent::NodeAgent> agent_;
  std::unique_ptr<agent::LogReader> logs_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::vector<std::unique_ptr<rpc::UnixServer>> servers_;
  std::unique_ptr<agent::ControlLink> link_;
  std::unique_ptr<agent::Housekeeper> housekeeper_;
};

StatusOr<std::unique_ptr<Node>> Node::Start(const Settings& s, MetricRegistry* metrics) {
  std::unique_ptr<Node> node(new Node);
  std::error_code ec;
  std::filesystem::create_directories(s.node_dir, ec);
  if (ec) return ErrnoStatus(ec.value(), "make directory " + s.node_dir);
  ASSIGN_OR_RETURN(os::DirFd dir, os::DirFd::OpenPath(s.node_dir));
  ASSIGN_OR_RETURN(node->lock_, os::LockFile(dir, "lock"));
  RETURN_IF_ERROR(CheckNodeFile(dir, s.node_name));
  os::Ownership mover{0, 0};
  if (auto ids = LookUpUser(s.mover_user); ids.ok()) mover = {ids->uid, ids->gid};
  ASSIGN_OR_RETURN(node->dirs_, agent::NodeDirs::Open(s.node_dir, mover));
  const os::DirFd* root = &node->dirs_->root();
  metrics->GaugeFunction("torpor_node_disk_free_bytes", "Free where the node directory is.",
                         [root] {
                           auto space = root->Space();
                           return space.ok() ? static_cast<double>(space->free_bytes) : 0.0;
                         });
  metrics->GaugeFunction("torpor_node_disk_total_bytes", "Size of that file system.", [root] {
    auto space = root->Space();
    return space.ok() ? static_cast<double>(space->total_bytes) : 0.0;
  });
  auto worker_client = [node = node.get()](const std::string& id) {
    return agent::MakeGrpcWorkerClient("unix:" + node->Socket("worker-" + id + ".sock"));
  };
  node->workers_ = std::make_unique<agent::Workers>(node->dirs_.get(), worker_client,
                                                    IdSource::Real(), s.worker_ids);
  RETURN_IF_ERROR(node->workers_->Load());
  node->mover_ = agent::MakeGrpcMoverClient("unix:" + node->Socket("mover.sock"));
  node->registry_ = agent::MakeGrpcRegistryClient("unix:" + s.registry_socket);
  agent::NodeAgentOptions options;
  options.node_name = s.node_name;
  options.unreachable_max = s.worker_unreachable_max;
  options.image_bytes_max = s.image_cache_max_bytes;
  options.image_min_age = s.image_cache_min_age;
  options.garbage.min_age = s.actor_gc_min_age;
  ASSIGN_OR_RETURN(options.boot_id, os::BootId());
  agent::NodeAgentParts parts;
  parts.dirs = node->dirs_.get();
  parts.workers = node->workers_.get();
  parts.mover = node->mover_.get();
  parts.registry = node->registry_.get();
  parts.unpacker = agent::UmociUnpacker();
  parts.clock = Clock::Real();
  parts.ids = IdSource::Real();
  parts.metrics = OperationMetrics(metrics, "node");
  parts.node_metrics = agent::NodeMetrics(metrics);
  node->agent_ = std::make_unique<agent::NodeAgent>(options, std::move(parts));
  node->logs_ = std::make_unique<agent::LogReader>(node->dirs_.get());
  RETURN_IF_ERROR(node->Listen(s));
  return node;
}

Status Node::Listen(const Settings& s) {
  // Workers may register while we recover: what they say decides what is found alive.
  for (const std::string& id : s.worker_ids) {
    services_.push_back(agent::SupportService(agent_.get(), id));
    ASSIGN_OR_RETURN(auto server, rpc::UnixServer::Start(Socket("support-" + id + ".sock"),
                                                         {services_.back().get()}));
    servers_.push_back(std::move(server));
  }
  RETURN_IF_ERROR(agent_->Recover());
  std::vector<grpc::Service*> for_control;
  for (auto& service : agent::NodeServices(agent_.get(), logs_.get())) {
    for_control.push_back(service.get());
    services_.push_back(std::move(service));
  }
  ASSIGN_OR_RETURN(UserIds user, LookUpUser(s.agent_socket_user));
  rpc::UnixServerOptions options;
  options.owner_uid = user.uid;
  ASSIGN_OR_RETURN(auto server, rpc::UnixServer::Start(Socket("agent.sock"), for_control, options));
  servers_.push_back(std::move(server));
  // Served before registering: the answer to the registration may be the first call.
  link_ = std::make_unique<agent::ControlLink>(
      agent::ControlLinkOptions{"unix:" + Socket("agent.sock"), TORPOR_VERSION}, agent_.get(),
      registry_.get(), workers_.get(), Clock::Real());
  agent::HousekeeperOptions keep;
  keep.gc_period = s.actor_gc_period;
  housekeeper_ = std::make_unique<agent::Housekeeper>(agent_.get(), keep, Clock::Real());
  return OkStatus();
}

bool Node::Stop() {
  if (housekeeper_) housekeeper_->Stop();
  if (link_) link_->Stop();
  const MonotonicTime deadline = Clock::Real()->Now() + seconds(3);
  if (!agent_->operations().WaitUntilIdle(deadline)) return false;
  for (auto& server : servers_) server->Shutdown(milliseconds(500));
  return true;
}

Status Run(const Settings& settings, Role& role) {
  ASSIGN_OR_RETURN(std::unique_ptr<Node> node, Node::Start(settings, role.metrics()));
  RETURN_IF_ERROR(
      role.ServeUntilSignal(settings.node_dir + "/run/metrics-node.sock",
                            {{"node", settings.node_name}, {"dir", settings.node_dir}}));
  if (!node->Stop()) {
    // Waiting for them could take minutes; ending here is what the journal is for.
    LogInfo("stopped with operations under way");
    _exit(0);
  }
  return OkStatus();
}

}  // namespace

int NodeCommand(const Args& args) {
  Settings settings;
  return RunRole(args, {.name = "node",
                        .title = "torpor node: the node agent of this machine",
                        .declare = [&](Options* o) { Declare(o, &settings); },
                        .complete = [&] { return Complete(&settings); },
                        .run = [&](Role& role) { return Run(settings, role); },
                        .metrics_socket_help = "NODE-DIR/run/metrics-node.sock"});
}

}  // namespace torpor
