// torpor worker: hosts sandboxes of one class on one machine.

#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <grpcpp/impl/codegen/service_type.h>

#include "apps/commands.h"
#include "apps/role/role.h"
#include "base/quantity.h"
#include "model/names.h"
#include "os/cgroup/cgroup_tree.h"
#include "os/fs/dir_fd.h"
#include "os/process/reaper.h"
#include "rpc/unix_server.h"
#include "runtime/registry.h"
#include "worker/door/door.h"
#include "worker/logs/log_pump.h"
#include "worker/network/gateway.h"
#include "worker/orphans.h"
#include "worker/pool/warm_pool.h"
#include "worker/priority_semaphore.h"
#include "worker/rpc/support_client.h"
#include "worker/rpc/worker_rpc.h"
#include "worker/worker_service.h"

namespace torpor {
namespace {

// What the machine keeps for itself when the capacity is not configured.
constexpr int64_t kReservedBytes = int64_t{2} << 30;
constexpr int64_t kLeastBytes = int64_t{256} << 20;
constexpr size_t kWorkerIdMax = 40;
// A pause waits for wakes no longer than this.
constexpr Duration kStarveAfter = std::chrono::seconds(10);
constexpr int kSpareNetworks = 4;                // made in advance; a wake takes one
constexpr int64_t kCpuMilliPerCore = 16 * 1000;  // actors are idle most of the time

struct Settings {
  std::string node_dir = "/var/lib/torpor/node";
  std::string worker_id = "gvisor-0";
  std::string sandbox_class = "gvisor";
  std::string runsc;
  std::string platform = "auto";
  std::string cgroup_parent = "torpor";
  std::string door_socket_user = "root";
  std::string pool = "default";
  std::string control_socket = "auto";
  int64_t warm_pool = 8;
  int64_t warm_pool_per_template = 1;
  int64_t memory_bytes = 0;
  std::string cpu;
  int64_t actors = 64;
  int64_t memory_images = 0;
};

void Declare(Options* o, Settings* s) {
  o->String("node-dir", &s->node_dir, "directory of the node agent");
  o->String("worker-id", &s->worker_id, "name of this worker's slot on the node, a label");
  o->Choice("class", &s->sandbox_class, runtime::RuntimeClasses(), "sandbox class");
  o->String("runsc", &s->runsc, "runsc program (default: runsc in PATH)");
  o->Choice("platform", &s->platform, {"auto", "systrap", "ptrace"}, "gVisor platform");
  o->String("cgroup-parent", &s->cgroup_parent, "cgroup below which the sandboxes get theirs");
  o->String("door-socket-user", &s->door_socket_user, "user of the router");
  o->Bytes("worker-memory", &s->memory_bytes, 1,
           "memory for actors (default: the machine's less 2 GiB)");
  o->String("worker-cpu", &s->cpu, "cpu for actors, e.g. 8 or 500m (default: 16 per core)");
  o->Int("worker-actors", &s->actors, 1, 100000, "number of running actors");
  o->Int("warm-pool", &s->warm_pool, 0, 64,
         "most sandboxes that wait for waking actors, for templates woken lately; 0 = none");
  o->Int("warm-pool-per-template", &s->warm_pool_per_template, 1, 64,
         "how many of them one template has");
  o->Choice("control-socket", &s->control_socket, {"auto", "off"},
            "whether runsc's control socket is used where it works; without it no warm pool");
  o->Int("memory-images-at-once", &s->memory_images, 0, 1024,
         "restores and captures of memory at once, half of them captures; 0 = one per processor");
  o->String("worker-pool", &s->pool, "pool that this worker belongs to");
}

int64_t TotalMemory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

Status Complete(Settings* s) {
  if (!IsLabel(s->worker_id) || s->worker_id.size() > kWorkerIdMax) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 fmt::format("--worker-id must be a label of at most {} characters", kWorkerIdMax));
  }
  if (!IsCleanRelativePath(s->cgroup_parent)) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 "--cgroup-parent must be a path below the cgroup root, e.g. torpor");
  }
  s->node_dir = std::filesystem::absolute(s->node_dir).lexically_normal();
  if (s->memory_bytes == 0) {
    // Waiting sandboxes are no actors, but they take their memory from the same machine.
    const int64_t kept = kReservedBytes + s->warm_pool * worker::kSlotBytes;
    s->memory_bytes = std::max(TotalMemory() - kept, kLeastBytes);
  }
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  if (s->memory_images == 0) s->memory_images = processors;
  if (s->cpu.empty()) {
    s->cpu = fmt::format("{}m", kCpuMilliPerCore * processors);
  }
  return ParseMilli(s->cpu).status();
}

// Names of kernel objects must differ between two installations on one machine, whose workers have
// equal ids: else the one would take the other's sandboxes for orphans.
std::string InstanceName(const Settings& s) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (char c : s.node_dir) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619;
  return fmt::format("{}-{:08x}", s.worker_id, hash);
}

// Below the node directory.
std::string WorkDirectory(const Settings& s) { return fmt::format("run/worker-{}.d", s.worker_id); }
std::string PoolDirectory(const Settings& s) {
  return fmt::format("{}/{}/pool", s.node_dir, WorkDirectory(s));
}

StatusOr<uid_t> LookUp(const std::string& user) {
  passwd* entry = getpwnam(user.c_str());
  if (entry == nullptr) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 fmt::format("--door-socket-user {}: no such user", user));
  }
  return entry->pw_uid;
}

void AddLimit(const std::string& name, const std::string& quantity, ateapi::Resources* out) {
  ateapi::Limits* limit = out->add_limits();
  limit->set_name(name);
  limit->set_quantity(quantity);
}

torpor::v1::WorkerInfo MakeInfo(const Settings& s, const runtime::Capabilities& can) {
  torpor::v1::WorkerInfo info;
  info.set_name(s.worker_id);
  info.set_pool(s.pool);
  info.set_kubernetes_namespace("torpor");
  info.set_sandbox_class(can.sandbox_class);
  info.add_ips("127.0.0.1");  // the door itself is a unix socket
  ateapi::Resources* resources = info.mutable_capacity()->mutable_resources();
  AddLimit("cpu", s.cpu, resources);
  AddLimit("memory", fmt::to_string(s.memory_bytes), resources);
  info.mutable_capacity()->set_actors(static_cast<int32_t>(s.actors));
  utsname machine = {};
  uname(&machine);
  auto& attributes = *info.mutable_hardware()->mutable_attributes();
  attributes["architecture"] = can.architecture.empty() ? machine.machine : can.architecture;
  if (!can.platform.empty()) attributes["platform"] = can.platform;
  for (torpor::v1::Fidelity fidelity : can.fidelities) info.add_fidelities(fidelity);
  std::set<std::string> features(can.cpu_features.begin(), can.cpu_features.end());
  if (!features.empty()) info.mutable_cpu()->set_architecture(attributes["architecture"]);
  for (const std::string& feature : features) info.mutable_cpu()->add_names(feature);
  info.set_runtime(can.runtime);
  info.set_runtime_version(can.runtime_version);
  return info;
}

// Everything that runs; members in the order of their construction.
class WorkerProcess {
 public:
  static StatusOr<std::unique_ptr<WorkerProcess>> Start(const Settings& s,
                                                        MetricRegistry* metrics) {
    std::unique_ptr<WorkerProcess> process(new WorkerProcess);
    RETURN_IF_ERROR(process->Claim(s));
    RETURN_IF_ERROR(process->StartRuntime(s, metrics));
    RETURN_IF_ERROR(process->Serve(s, metrics));
    return process;
  }
  ~WorkerProcess() {
    if (server_ != nullptr) server_->Shutdown();
    if (service_ != nullptr) service_->Shutdown();
    if (pool_ != nullptr) pool_->Shutdown();
    if (cgroups_ != nullptr) worker::RemoveEmptyGroups(*cgroups_);
  }

 private:
  WorkerProcess() = default;

  // The node directory, and the proof that nobody else is this worker.
  Status Claim(const Settings& s) {
    std::error_code ec;
    std::filesystem::create_directories(s.node_dir + "/run", ec);
    if (ec) return ErrnoStatus(ec.value(), "make " + s.node_dir + "/run");
    ASSIGN_OR_RETURN(node_dir_, os::DirFd::OpenPath(s.node_dir));
    ASSIGN_OR_RETURN(lock_,
                     os::LockFile(node_dir_, fmt::format("run/worker-{}.lock", s.worker_id)));
    return OkStatus();
  }

  Status StartRuntime(const Settings& s, MetricRegistry* metrics) {
    // First of all: whatever dies in here is ours to collect.
    ASSIGN_OR_RETURN(reaper_, os::Reaper::Start());
    if (s.sandbox_class != "fake") {
      ASSIGN_OR_RETURN(cgroups_, os::CgroupTree::Open(s.cgroup_parent + "/" + InstanceName(s)));
      RETURN_IF_ERROR(
          worker::RemoveOrphans(cgroups_.get(), PoolDirectory(s), Clock::Real()).status());
    }
    ASSIGN_OR_RETURN(gateway_, worker::Gateway::Start(InstanceName(s), kSpareNetworks));
    std::string work_dir = WorkDirectory(s);
    RETURN_IF_ERROR(node_dir_.MkdirOrOpen(work_dir, 0700).status());
    ASSIGN_OR_RETURN(runtime_, runtime::CreateRuntime(s.sandbox_class,
                                                      {.binary = s.runsc,
                                                       .platform = s.platform,
                                                       .work_dir = s.node_dir + "/" + work_dir,
                                                       .control_socket = s.control_socket == "auto",
                                                       .reaper = reaper_.get(),
                                                       .metrics = metrics}));
    ASSIGN_OR_RETURN(logs_, worker::LogPump::Start(Clock::Real()));
    memory_images_ = std::make_unique<worker::PrioritySemaphore>(
        static_cast<int>(s.memory_images),
        static_cast<int>(std::max<int64_t>(1, s.memory_images / 2)), kStarveAfter, Clock::Real());
    if (!runtime_->capabilities().prepares || s.warm_pool == 0) return OkStatus();
    ASSIGN_OR_RETURN(pool_,
                     worker::WarmPool::Start({.runtime = runtime_.get(),
                                              .network = gateway_.get(),
                                              .cgroups = cgroups_.get(),
                                              .memory_images = memory_images_.get(),
                                              .ids = IdSource::Real(),
                                              .clock = Clock::Real()},
                                             {.slots_max = static_cast<int>(s.warm_pool),
                                              .per_key = static_cast<int>(s.warm_pool_per_template),
                                              .directory = PoolDirectory(s)}));
    return OkStatus();
  }

  Status Serve(const Settings& s, MetricRegistry* metrics) {
    ASSIGN_OR_RETURN(uid_t door_user, LookUp(s.door_socket_user));
    ASSIGN_OR_RETURN(
        door_,
        worker::Door::Start({.path = fmt::format("{}/run/door-{}.sock", s.node_dir, s.worker_id),
                             .socket_user = door_user},
                            Clock::Real()));
    support_ = std::make_unique<worker::SupportClient>(
        fmt::format("{}/run/support-{}.sock", s.node_dir, s.worker_id));
    torpor::v1::WorkerInfo info = MakeInfo(s, runtime_->capabilities());
    service_ = std::make_unique<worker::WorkerService>(
        worker::WorkloadTools{.runtime = runtime_.get(),
                              .network = gateway_.get(),
                              .cgroups = cgroups_.get(),
                              .pool = pool_.get(),
                              .memory_images = memory_images_.get(),
                              .logs = logs_.get(),
                              .node_dir = &node_dir_,
                              .node_path = s.node_dir,
                              .clock = Clock::Real(),
                              .metrics = OperationMetrics(metrics, "worker")},
        door_.get(), support_.get(), IdSource::Real(), info);
    metrics->GaugeFunction("torpor_worker_queue", "Restores and captures that wait for their turn.",
                           [queue = memory_images_.get()] { return queue->waiting(); });
    metrics->GaugeFunction(
        "torpor_worker_workloads", "Actors that this worker hosts now.",
        [service = service_.get()] { return service->ListWorkloads().residents_size(); });
    adapter_ = worker::MakeWorkerRpc(service_.get());
    ASSIGN_OR_RETURN(server_, rpc::UnixServer::Start(
                                  fmt::format("{}/run/worker-{}.sock", s.node_dir, s.worker_id),
                                  {adapter_.get()}));
    support_->Register(info, [this](const torpor::v1::RegisterWorkerResponse& registration) {
      service_->SetRegistration(registration);
    });
    return OkStatus();
  }

  os::DirFd node_dir_;
  UniqueFd lock_;
  std::unique_ptr<os::Reaper> reaper_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::unique_ptr<worker::Gateway> gateway_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<worker::LogPump> logs_;
  std::unique_ptr<worker::PrioritySemaphore> memory_images_;
  std::unique_ptr<worker::WarmPool> pool_;  // null = none
  std::unique_ptr<worker::Door> door_;
  std::unique_ptr<worker::WorkerService> service_;
  // After the service, which its thread calls; it is stopped first, and refuses nothing: a report
  // of an exit during the shutdown is no news to anybody.
  std::unique_ptr<worker::SupportClient> support_;
  std::unique_ptr<grpc::Service> adapter_;
  std::unique_ptr<rpc::UnixServer> server_;
};

Status Run(const Settings& settings, Role& role) {
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerProcess> process,
                   WorkerProcess::Start(settings, role.metrics()));
  RETURN_IF_ERROR(role.ServeUntilSignal(
      fmt::format("{}/run/metrics-worker-{}.sock", settings.node_dir, settings.worker_id),
      {{"worker", settings.worker_id},
       {"class", settings.sandbox_class},
       {"actors", fmt::to_string(settings.actors)}}));
  return OkStatus();
}

}  // namespace

int WorkerCommand(const Args& args) {
  Settings settings;
  return RunRole(args, {.name = "worker",
                        .title = "torpor worker: hosts sandboxes of one class",
                        .declare = [&](Options* o) { Declare(o, &settings); },
                        .complete = [&] { return Complete(&settings); },
                        .run = [&](Role& role) { return Run(settings, role); },
                        .metrics_socket_help = "NODE-DIR/run/metrics-worker-ID.sock"});
}

}  // namespace torpor
