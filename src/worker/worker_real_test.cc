// A worker with the real runsc, real network namespaces and cgroups. Needs root and runsc.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "os/netns/netns.h"
#include "os/process/reaper.h"
#include "runtime/registry.h"
#include "worker/network/gateway.h"
#include "worker/orphans.h"
#include "worker/testing/fake_reporter.h"
#include "worker/worker_service.h"

namespace torpor::worker {
namespace {

using std::chrono::seconds;
using torpor::v1::CaptureWorkloadRequest;
using torpor::v1::Operation;
using torpor::v1::StartWorkloadRequest;
using torpor::v1::StopWorkloadRequest;

constexpr char kConfig[] = R"({"ociVersion":"1.0.2",
  "process":{"user":{"uid":0,"gid":0},"args":["/counter","--port","8080","--home-dir","/"],
             "env":["PATH=/"],"cwd":"/"},
  "root":{"path":"rootfs"},"hostname":"app",
  "mounts":[{"destination":"/proc","type":"proc","source":"proc"},
            {"destination":"/tmp","type":"tmpfs","source":"tmpfs"}],
  "linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},
                         {"type":"mount"}]}})";

// One CONNECT through the door, then requests on it.
class DoorClient {
 public:
  DoorClient(const std::string& path, const std::string& uid, int64_t generation)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    timeval timeout = {.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    head_ =
        Exchange(fmt::format("CONNECT {}.{}.actor.torpor:8080 HTTP/1.1\r\n\r\n", uid, generation));
  }
  const std::string& head() const { return head_; }
  // The counter in memory after this request.
  int Next() {
    std::string answer = Exchange("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    constexpr std::string_view kLabel = "memory count: ";
    size_t at = answer.find(kLabel);
    return at == std::string::npos ? -1 : atoi(answer.c_str() + at + kLabel.size());
  }
  void Send(const std::string& request) {
    send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL);
  }

 private:
  std::string Exchange(const std::string& request) {
    send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[8192];
    ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), 0);
    return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  }
  UniqueFd fd_;
  std::string head_;
};

// What this process holds: descriptors, children, networks made in advance.
std::array<int64_t, 3> Holdings(const std::string& worker_id) {
  int64_t children = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t pid; file >> pid;) ++children;
  }
  auto names = os::ListNetNamespaces(SpareNetnsPrefix(worker_id));
  return {std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}), children,
          names.ok() ? static_cast<int64_t>(names->size()) : 999};
}

class WorkerRealTest : public ::testing::Test {
 protected:
  // The probe of runsc with its smoke test is made once.
  static void SetUpTestSuite() {
    if (geteuid() != 0 || reaper_ != nullptr) return;  // by the suite before
    reaper_ = os::Reaper::Start().value().release();
    work_dir_ = "/tmp/worker-real-probe-" + RandomHex(4);
    std::filesystem::create_directories(work_dir_);
    StatusOr<std::unique_ptr<runtime::Runtime>> runtime = runtime::CreateRuntime(
        "gvisor", {.helper = TORPOR_ENTER, .work_dir = work_dir_, .reaper = reaper_});
    if (runtime.ok()) runtime_ = std::move(runtime).value().release();
    if (!runtime.ok()) why_ = runtime.status().ToString();
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(work_dir_); }

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "sandboxes need root";
    if (runtime_ == nullptr) GTEST_SKIP() << "runsc does not work here: " << why_;
    dir_ = "/tmp/worker-real-" + RandomHex(4);
    uid_ = IdSource::Real()->NewUuid();
    for (const char* part :
         {"bundles/app/rootfs/tmp", "state", "logs", "checkpoint-state", "local-checkpoint"}) {
      std::filesystem::create_directories(ActorDir() + "/" + part);
    }
    std::filesystem::copy_file(COUNTER, ActorDir() + "/bundles/app/rootfs/counter");
    std::ofstream(ActorDir() + "/bundles/app/config.json") << kConfig;
    worker_id_ = fmt::format("test-{}", RandomHex(4));
    ASSERT_OK_AND_ASSIGN(node_dir_, os::DirFd::OpenPath(dir_));
    ASSERT_OK_AND_ASSIGN(cgroups_, os::CgroupTree::Open("torpor-" + worker_id_ + "/worker"));
    ASSERT_OK_AND_ASSIGN(gateway_, Gateway::Start(worker_id_, 2));
    ASSERT_OK_AND_ASSIGN(logs_, LogPump::Start(Clock::Real()));
    ASSERT_OK_AND_ASSIGN(door_, Door::Start({.path = dir_ + "/door.sock"}, Clock::Real()));
    MakeService();
  }
  void TearDown() override {
    if (dir_.empty()) return;
    service_.reset();
    pool_.reset();
    door_.reset();
    EXPECT_THAT(os::NetNamespace::Open(ActorNetnsName(uid_)), HasCode(Code::kNotFound));
    if (cgroups_ != nullptr) {
      ASSERT_OK_AND_ASSIGN(std::vector<std::string> leaves, cgroups_->Leaves());
      EXPECT_TRUE(leaves.empty());
      std::string leaf = cgroups_->ProcsFiles("any").at(0);
      std::string group = std::filesystem::path(leaf).parent_path().parent_path();
      EXPECT_TRUE(std::filesystem::exists(group));
      RemoveEmptyGroups(*cgroups_);
      EXPECT_FALSE(std::filesystem::exists(group));
    }
    gateway_.reset();
    std::filesystem::remove_all(dir_);
  }

  void MakeService() {
    torpor::v1::WorkerInfo info;
    info.set_name(worker_id_);
    service_ = std::make_unique<WorkerService>(WorkloadTools{.runtime = runtime_,
                                                             .network = gateway_.get(),
                                                             .cgroups = cgroups_.get(),
                                                             .pool = pool_.get(),
                                                             .logs = logs_.get(),
                                                             .node_dir = &node_dir_,
                                                             .node_path = dir_,
                                                             .clock = Clock::Real()},
                                               door_.get(), &exits_, IdSource::Real(), info);
  }
  std::string ActorDir() const { return fmt::format("{}/actors/{}", dir_, uid_); }
  DoorClient Client(int64_t generation) {
    return DoorClient(dir_ + "/door.sock", uid_, generation);
  }

  template <typename Request>
  Request Make(int64_t generation) {
    Request request;
    request.mutable_op()->set_op_id(IdSource::Real()->NewUuid());
    request.mutable_op()->set_actor_uid(uid_);
    request.mutable_op()->set_generation(generation);
    request.mutable_op()->mutable_timeout()->set_seconds(60);
    std::string root = "actors/" + uid_;
    torpor::v1::ActorDirs* dirs = request.mutable_dirs();
    dirs->set_root(root);
    dirs->set_bundles(root + "/bundles");
    dirs->set_state(root + "/state");
    dirs->set_logs(root + "/logs");
    dirs->set_capture(root + "/checkpoint-state");
    return request;
  }
  StartWorkloadRequest MakeStart(int64_t generation) {
    auto request = Make<StartWorkloadRequest>(generation);
    request.mutable_actor()->set_uid(uid_);
    request.mutable_spec()->set_http_port(8080);
    request.mutable_spec()->set_memory_bytes(int64_t{256} << 20);
    torpor::v1::ContainerSpec* app = request.mutable_spec()->add_containers();
    app->set_name("app");
    app->mutable_wakeup_probe()->mutable_http_get()->set_path("/readyz");
    app->mutable_wakeup_probe()->mutable_http_get()->set_port(8080);
    return request;
  }
  static double PhaseMs(const Operation& op, const std::string& name) {
    for (const torpor::v1::Phase& phase : op.phases()) {
      if (phase.name() == name) return phase.duration_ms();
    }
    return -1;
  }
  void StartOk(const StartWorkloadRequest& request, Operation* op) {
    ASSERT_OK_AND_ASSIGN(*op, service_->StartWorkload(request));
    ASSERT_EQ(op->state(), Operation::STATE_SUCCEEDED) << op->ShortDebugString();
  }
  // Captures and moves the files to local-checkpoint/g<generation>, as the agent does.
  void CaptureOk(int64_t generation, Operation* op) {
    auto request = Make<CaptureWorkloadRequest>(generation);
    request.set_fidelity(torpor::v1::FIDELITY_MEMORY);
    ASSERT_OK_AND_ASSIGN(*op, service_->CaptureWorkload(request));
    ASSERT_EQ(op->state(), Operation::STATE_SUCCEEDED) << op->ShortDebugString();
    std::filesystem::rename(ActorDir() + "/checkpoint-state",
                            fmt::format("{}/local-checkpoint/g{}", ActorDir(), generation));
    std::filesystem::create_directories(ActorDir() + "/checkpoint-state");
    std::error_code ignored;  // the worker is removing it, too
    std::filesystem::remove_all(ActorDir() + "/state", ignored);
    std::filesystem::create_directories(ActorDir() + "/state");
  }
  StartWorkloadRequest MakeRestore(int64_t generation, const Operation& capture) {
    StartWorkloadRequest request = MakeStart(generation);
    request.set_restore(torpor::v1::FIDELITY_MEMORY);
    request.set_preserve_restore(true);
    request.mutable_dirs()->set_restore(
        fmt::format("{}/local-checkpoint/g{}", request.dirs().root(), capture.generation()));
    *request.mutable_files() = capture.capture().files();
    return request;
  }

  static inline os::Reaper* reaper_ = nullptr;
  static inline runtime::Runtime* runtime_ = nullptr;
  static inline std::string why_;
  static inline std::string work_dir_;
  std::string dir_;
  std::string uid_;
  std::string worker_id_;
  FakeReporter exits_;
  os::DirFd node_dir_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<WarmPool> pool_;  // null except in tests of it
  std::unique_ptr<LogPump> logs_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<WorkerService> service_;
};

TEST_F(WorkerRealTest, TheCounterGoesOnOverCapturesWithOpenConnections) {
  Operation op;
  StartOk(MakeStart(1), &op);
  fmt::print("boot {:.0f} ms, probe {:.1f} ms\n", PhaseMs(op, "boot"), PhaseMs(op, "probe"));
  int expected = 0;
  int64_t generation = 1;
  double shortest_drain_ms = 1e9;
  for (int round = 0; round < 8; ++round) {
    DoorClient client = Client(generation);
    ASSERT_EQ(client.head().substr(0, 12), "HTTP/1.1 200") << client.head();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(client.Next(), ++expected) << "round " << round;
    torpor::v1::GetWorkloadStatsResponse stats = service_->GetWorkloadStats({});
    ASSERT_EQ(stats.stats_size(), 1);
    EXPECT_GT(stats.stats(0).memory_current_bytes(), 1 << 20);
    // The connection stays open into the capture.
    Operation capture;
    CaptureOk(++generation, &capture);
    EXPECT_NE(Client(generation - 1).head().find("NOT_HERE"), std::string::npos);
    StartOk(MakeRestore(++generation, capture), &op);
    shortest_drain_ms = std::min(shortest_drain_ms, PhaseMs(capture, "drain"));
    fmt::print("drain {:.1f} ms, checkpoint {:.0f} ms, restore {:.0f} ms, probe {:.1f} ms ({})\n",
               PhaseMs(capture, "drain"), PhaseMs(capture, "checkpoint"), PhaseMs(op, "restore"),
               PhaseMs(op, "probe"), op.phases(op.phases_size() - 1).detail());
  }
  EXPECT_EQ(Client(generation).Next(), ++expected);
  // gVisor refuses port 0; if it did not, each drain would wait for the whole 200 ms.
  EXPECT_LT(shortest_drain_ms, 100);
}

// Pollers connect and ask all the time; no capture may meet a half-open connection.
TEST_F(WorkerRealTest, CapturesWhileClientsConnect) {
  Operation op;
  StartOk(MakeStart(1), &op);
  std::atomic<int64_t> serving{1};
  std::atomic<bool> stop{false};
  std::atomic<int> highest{0};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 3; ++i) {
    pollers.emplace_back([&] {
      while (!stop) {
        DoorClient client = Client(serving);
        if (client.head().compare(0, 12, "HTTP/1.1 200") != 0) {
          usleep(1000);  // leaves the two cores to the capture
          continue;
        }
        int seen = client.Next();
        int before = highest;
        while (seen > before && !highest.compare_exchange_weak(before, seen)) {
        }
      }
    });
  }
  for (int round = 0; round < 10; ++round) {
    int before = highest;
    while (highest < before + 20) usleep(1000);
    Operation capture;
    CaptureOk(serving + 1, &capture);
    if (HasFatalFailure()) break;
    StartOk(MakeRestore(serving + 2, capture), &op);
    if (HasFatalFailure()) break;
    serving = serving + 2;
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GT(Client(serving).Next(), highest);
}

TEST_F(WorkerRealTest, AWorkloadThatEndsIsReportedWithItsOutput) {
  Operation op;
  StartOk(MakeStart(1), &op);
  ASSERT_OK_AND_ASSIGN(std::vector<pid_t> pids, cgroups_->Processes(LeafOf(uid_)));
  ASSERT_FALSE(pids.empty());
  for (pid_t pid : pids) kill(pid, SIGKILL);
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.reason(), "WORKLOAD_EXITED");
  EXPECT_EQ(report.actor_uid(), uid_);
  EXPECT_NE(report.message().find("listening"), std::string::npos) << report.message();
}

TEST_F(WorkerRealTest, AWorkloadThatCannotStartSaysWhy) {
  std::string config = kConfig;
  config.replace(config.find("--home-dir"), 10, "--no-such-flag");
  std::ofstream(ActorDir() + "/bundles/app/config.json") << config;
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(MakeStart(1)));
  ASSERT_EQ(op.state(), Operation::STATE_FAILED);
  Status status = ParseStatus(op.error().SerializeAsString(), Code::kUnknown, "");
  EXPECT_EQ(ReasonOf(status), "WORKLOAD_EXITED") << status.ToString();
  EXPECT_EQ(MetadataOf(status)["exit_code"], "2");
  EXPECT_NE(status.message().find("no-such-flag"), std::string::npos) << status.ToString();
}

TEST_F(WorkerRealTest, OrphansOfAnEarlierProcessAreRemoved) {
  Operation op;
  StartOk(MakeStart(1), &op);
  // As a next process would, while this one still believes in its sandbox.
  ASSERT_OK_AND_ASSIGN(int removed, RemoveOrphans(cgroups_.get(), dir_ + "/pool", Clock::Real()));
  EXPECT_EQ(removed, 1);
  ASSERT_OK_AND_ASSIGN(std::vector<pid_t> pids, cgroups_->Processes(LeafOf(uid_)));
  EXPECT_TRUE(pids.empty());
  EXPECT_EQ(exits_.WaitForOne().actor_uid(), uid_);
  EXPECT_THAT(os::NetNamespace::Open(ActorNetnsName(uid_)), HasCode(Code::kNotFound));
}

TEST_F(WorkerRealTest, E12_OnlyTheActorThatOutgrowsItsMemoryEnds) {
  Operation op;
  StartOk(MakeStart(1), &op);
  const std::string neighbour = std::exchange(uid_, IdSource::Real()->NewUuid());
  for (const char* part : {"bundles/app/rootfs/tmp", "state", "logs", "checkpoint-state"}) {
    std::filesystem::create_directories(ActorDir() + "/" + part);
  }
  std::filesystem::copy_file(GLUTTON, ActorDir() + "/bundles/app/rootfs/glutton");
  auto config = nlohmann::json::parse(kConfig);
  config["process"]["args"] = {"/glutton", "--grpc-listen-addr=:8080", "--data-dir=/tmp"};
  std::ofstream(ActorDir() + "/bundles/app/config.json") << config;
  StartWorkloadRequest start = MakeStart(1);
  start.mutable_spec()->set_memory_bytes(int64_t{64} << 20);
  StartOk(start, &op);
  // WriteRAMRequest{key: "a", size: "600Mi"}
  DoorClient client = Client(1);  // a client that leaves takes back what it sent
  client.Send(
      "POST /writeram HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
      "\x0a\x01"
      "a\x12\x05"
      "600Mi");
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.actor_uid(), uid_);
  EXPECT_EQ(report.reason(), "OUT_OF_MEMORY") << report.message();
  EXPECT_TRUE(report.out_of_memory());
  EXPECT_NE(report.message().find("of 128Mi ("), std::string::npos) << report.message();
  uid_ = neighbour;
  EXPECT_EQ(Client(1).Next(), 1) << "the other one goes on";
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 1);
}

TEST_F(WorkerRealTest, ThirtyStartsLeaveNothing) {
  // Surroundings go after the answer, spares come later; the stock of sockets has 16 to 32.
  auto settled = [&] { return gateway_->spares() == 2 && cgroups_->Leaves().value().empty(); };
  MonotonicTime deadline = Clock::Real()->Now() + seconds(120);
  std::array<int64_t, 3> before = {};
  for (int64_t generation = 1; generation <= 31; ++generation) {
    Operation op;
    StartOk(MakeStart(2 * generation - 1), &op);
    if (HasFatalFailure()) return;
    ASSERT_OK_AND_ASSIGN(op, service_->StopWorkload(Make<StopWorkloadRequest>(2 * generation)));
    ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
    ASSERT_TRUE(std::filesystem::is_empty(ActorDir() + "/state"));
    if (generation > 1) continue;
    while (!settled() && Clock::Real()->Now() < deadline) usleep(5000);
    before = Holdings(worker_id_);
  }
  auto nothing_more = [&] {
    std::array<int64_t, 3> now = Holdings(worker_id_);
    return now[0] <= before[0] + 16 && now[1] <= before[1] && now[2] <= before[2];
  };
  while (!(settled() && nothing_more()) && Clock::Real()->Now() < deadline) usleep(5000);
  EXPECT_TRUE(nothing_more()) << testing::PrintToString(Holdings(worker_id_));
}

// ---- The warm pool ----

class PoolRealTest : public WorkerRealTest {
 protected:
  void SetUp() override {
    WorkerRealTest::SetUp();
    if (service_ == nullptr) return;
    if (!runtime_->capabilities().prepares) GTEST_SKIP() << "the control socket does not work";
    service_.reset();
    ASSERT_OK_AND_ASSIGN(pool_, WarmPool::Start({.runtime = runtime_,
                                                 .network = gateway_.get(),
                                                 .cgroups = cgroups_.get(),
                                                 .ids = IdSource::Real(),
                                                 .clock = Clock::Real()},
                                                {.directory = dir_ + "/pool"}));
    MakeService();
  }
  static MonotonicTime Soon() { return Clock::Real()->Now() + seconds(30); }
  // Captured and woken again; generation + 2.
  void Cycle(int64_t* generation, Operation* woken) {
    Operation capture;
    CaptureOk(*generation + 1, &capture);
    if (HasFatalFailure()) return;
    *generation += 2;
    StartOk(MakeRestore(*generation, capture), woken);
  }
  // In a sandbox of its own, or in one of the pool?
  bool HasOwnLeaf() {
    auto leaves = cgroups_->Leaves();
    return leaves.ok() && std::count(leaves->begin(), leaves->end(), LeafOf(uid_)) > 0;
  }
  // Of the sandboxes that wait, or that the actor took.
  std::vector<std::string> PoolLeaves(bool taken) {
    std::vector<std::string> found;
    std::vector<std::string> leaves = cgroups_->Leaves().value_or(std::vector<std::string>());
    for (const std::string& leaf : leaves) {
      if (leaf == LeafOf(uid_)) continue;
      if ((ActorOfSlot(dir_ + "/pool", ActorOfLeaf(leaf)) == uid_) == taken) found.push_back(leaf);
    }
    return found;
  }
};

TEST_F(PoolRealTest, TheCounterGoesOnThroughTheSandboxesOfThePool) {
  Operation op;
  StartOk(MakeStart(1), &op);
  int64_t generation = 1;
  int expected = 0;
  for (int round = 0; round < 5; ++round) {
    DoorClient client = Client(generation);
    ASSERT_EQ(client.Next(), ++expected) << "round " << round;
    ASSERT_EQ(client.Next(), ++expected);
    Cycle(&generation, &op);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(HasOwnLeaf(), round == 0) << "round " << round << ": the first wake fills the pool";
    fmt::print("restore {:.0f} ms, probe {:.1f} ms\n", PhaseMs(op, "restore"),
               PhaseMs(op, "probe"));
    ASSERT_TRUE(pool_->WaitReady(1, Soon()));
  }
  EXPECT_EQ(Client(generation).Next(), ++expected);
}

TEST_F(PoolRealTest, WakesThatDoNotWaitForTheRefill) {
  Operation op;
  StartOk(MakeStart(1), &op);
  int64_t generation = 1;
  for (int round = 1; round <= 6; ++round) {
    ASSERT_EQ(Client(generation).Next(), round);
    Cycle(&generation, &op);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_EQ(Client(generation).Next(), 7);
}

TEST_F(PoolRealTest, ASandboxOfThePoolThatDiedIsDropped) {
  Operation op;
  StartOk(MakeStart(1), &op);
  int64_t generation = 1;
  EXPECT_EQ(Client(generation).Next(), 1);
  Cycle(&generation, &op);
  ASSERT_TRUE(pool_->WaitReady(1, Soon()));
  std::vector<std::string> waiting = PoolLeaves(false);
  ASSERT_EQ(waiting.size(), 1u);
  ASSERT_OK(cgroups_->KillAll(waiting[0], Soon()));
  EXPECT_EQ(Client(generation).Next(), 2);
  Cycle(&generation, &op);
  EXPECT_TRUE(HasOwnLeaf());
  EXPECT_EQ(Client(generation).Next(), 3);
}

TEST_F(PoolRealTest, AGuestOfThePoolThatEndsIsReported) {
  Operation op;
  StartOk(MakeStart(1), &op);
  int64_t generation = 1;
  Cycle(&generation, &op);
  ASSERT_TRUE(pool_->WaitReady(1, Soon()));
  Cycle(&generation, &op);
  ASSERT_FALSE(HasOwnLeaf());
  std::vector<std::string> taken = PoolLeaves(true);
  ASSERT_EQ(taken.size(), 1u);
  ASSERT_OK(cgroups_->KillAll(taken[0], Soon()));
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.reason(), "WORKLOAD_EXITED");
  EXPECT_EQ(report.actor_uid(), uid_);
}

TEST_F(PoolRealTest, AnIdleActorIsFrozenAndServedAndCapturedAllTheSame) {
  StartWorkloadRequest start = MakeStart(1);
  *start.mutable_spec()->mutable_freeze_after() = ToProto(std::chrono::milliseconds(20));
  Operation op;
  StartOk(start, &op);
  auto wait_frozen = [&] {
    MonotonicTime deadline = Soon();
    while (Clock::Real()->Now() < deadline) {
      auto frozen = cgroups_->IsFrozen(LeafOf(uid_));
      if (frozen.ok() && *frozen) return true;
      usleep(1000);
    }
    return false;
  };
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(wait_frozen());
    EXPECT_EQ(Client(1).Next(), i);
  }
  ASSERT_TRUE(wait_frozen());
  int64_t generation = 1;
  Cycle(&generation, &op);
  EXPECT_EQ(Client(generation).Next(), 4);
}

}  // namespace
}  // namespace torpor::worker
