#pragma once
// A WorkerService over the scripted runtime, in a node directory of its own, for tests.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "worker/testing/fake_reporter.h"
#include "worker/testing/scripted_runtime.h"
#include "worker/worker_service.h"

namespace torpor::worker {

using std::chrono::milliseconds;
using std::chrono::seconds;
using torpor::v1::CaptureWorkloadRequest;
using torpor::v1::Operation;
using torpor::v1::StartWorkloadRequest;
using torpor::v1::StopWorkloadRequest;

inline constexpr char kUid[] = "11111111-2222-4333-8444-555555555555";

inline ErrorMetadata ErrorOf(const Operation& operation, std::string* reason) {
  Status status = ParseStatus(operation.error().SerializeAsString(), Code::kUnknown, "");
  *reason = ReasonOf(status);
  return MetadataOf(status);
}

class WorkerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/worker-service-XXXXXX";
    dir_ = mkdtemp(name);
    for (const char* part :
         {"bundles/app", "state", "logs", "checkpoint-state", "local-checkpoint/g1"}) {
      std::filesystem::create_directories(ActorDir() + "/" + part);
    }
    ASSERT_OK_AND_ASSIGN(node_dir_, os::DirFd::OpenPath(dir_));
    ASSERT_OK_AND_ASSIGN(logs_, LogPump::Start(Clock::Real()));
    ASSERT_OK_AND_ASSIGN(door_, Door::Start({.path = dir_ + "/door.sock"}, Clock::Real()));
    tools_ = {.runtime = &runtime_,
              .network = &runtime_,
              .logs = logs_.get(),
              .node_dir = &node_dir_,
              .node_path = dir_,
              .clock = Clock::Real()};
    torpor::v1::WorkerInfo info;
    info.set_name("test-0");
    info.mutable_capacity()->set_actors(2);
    service_ =
        std::make_unique<WorkerService>(tools_, door_.get(), &exits_, IdSource::Real(), info);
  }
  void TearDown() override {
    service_.reset();
    EXPECT_EQ(runtime_.networks(), 0);
    door_.reset();
    logs_.reset();
    std::filesystem::remove_all(dir_);
  }

  std::string ActorDir() const { return fmt::format("{}/actors/{}", dir_, kUid); }
  template <typename Request>
  Request Make(int64_t generation, const std::string& uid = kUid) {
    Request request;
    request.mutable_op()->set_op_id(IdSource::Real()->NewUuid());
    request.mutable_op()->set_actor_uid(uid);
    request.mutable_op()->set_generation(generation);
    request.mutable_op()->mutable_timeout()->set_seconds(20);
    std::string root = "actors/" + uid;
    torpor::v1::ActorDirs* dirs = request.mutable_dirs();
    dirs->set_root(root);
    dirs->set_bundles(root + "/bundles");
    dirs->set_state(root + "/state");
    dirs->set_logs(root + "/logs");
    dirs->set_capture(root + "/checkpoint-state");
    dirs->set_restore(root + "/restore-state");
    return request;
  }
  StartWorkloadRequest MakeStart(int64_t generation, const std::string& uid = kUid) {
    auto request = Make<StartWorkloadRequest>(generation, uid);
    request.mutable_actor()->set_uid(uid);
    torpor::v1::ContainerSpec* app = request.mutable_spec()->add_containers();
    app->set_name("app");
    app->mutable_wakeup_probe()->mutable_http_get()->set_port(8080);
    app->mutable_wakeup_probe()->set_timeout_seconds(5);
    return request;
  }
  CaptureWorkloadRequest MakeCapture(int64_t generation) {
    auto request = Make<CaptureWorkloadRequest>(generation);
    request.set_fidelity(torpor::v1::FIDELITY_MEMORY);
    return request;
  }
  void StartOk(int64_t generation) {
    ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(MakeStart(generation)));
    ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  }
  // One request through the door; the body, or the door's reason.
  std::string Ask(int64_t generation, int port = 8080) {
    std::string answer;
    UniqueFd fd = Open(generation, port, &answer);
    if (size_t at = answer.find("torpor-reason: "); at != std::string::npos) {
      return answer.substr(at + 15, answer.find("\r\n", at) - at - 15);
    }
    std::string get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_GT(send(fd.get(), get.data(), get.size(), MSG_NOSIGNAL), 0);
    char buffer[4096];
    ssize_t size = recv(fd.get(), buffer, sizeof(buffer), 0);
    answer.assign(buffer, size > 0 ? static_cast<size_t>(size) : 0);
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }
  UniqueFd Connect() {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    timeval timeout = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::string path = dir_ + "/door.sock";
    memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  // A connection through the door, and what the door answered.
  UniqueFd Open(int64_t generation, int port, std::string* answer) {
    UniqueFd fd = Connect();
    std::string connect_head =
        fmt::format("CONNECT {}.{}.actor.torpor:{} HTTP/1.1\r\ntorpor-router: r1\r\n\r\n", kUid,
                    generation, port);
    EXPECT_GT(send(fd.get(), connect_head.data(), connect_head.size(), MSG_NOSIGNAL), 0);
    char buffer[4096];
    ssize_t size = recv(fd.get(), buffer, sizeof(buffer), 0);
    answer->assign(buffer, size > 0 ? static_cast<size_t>(size) : 0);
    return fd;
  }

  std::string dir_;
  ScriptedRuntime runtime_;
  FakeReporter exits_;
  os::DirFd node_dir_;
  std::unique_ptr<LogPump> logs_;
  std::unique_ptr<Door> door_;
  WorkloadTools tools_;
  std::unique_ptr<WorkerService> service_;
};

}  // namespace torpor::worker
