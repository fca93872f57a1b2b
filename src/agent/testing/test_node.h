#pragma once
// A node for tests: directories, fakes, and an agent that can be thrown away and made anew.

#include <gtest/gtest.h>

#include "agent/node_agent.h"
#include "agent/steps.h"
#include "agent/testing/fakes.h"
#include "base/testing/matchers.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::agent {

inline constexpr char kActorUid[] = "11111111-1111-4111-8111-111111111111";
inline const std::string kImage = "registry.test/app@sha256:" + std::string(64, 'a');

class TestNode {
 public:
  // `disk` is called with the path of the still empty node directory.
  explicit TestNode(JournalObserver* observer = nullptr,
                    const std::function<void(const std::string&)>& disk = nullptr) {
    if (disk) disk(temp_.path());
    auto opened = NodeDirs::Open(temp_.path(), {0, 0});
    if (!opened.ok()) abort();
    dirs_ = *std::move(opened);
    worker_ = std::make_unique<FakeWorker>(&dirs_->root());
    mover_ = std::make_unique<FakeMover>(&dirs_->root());
    NewAgent(observer);
    RegisterWorker();
  }

  // A new agent over what the last one left. The last one stays until it is dropped, with its
  // connection to the worker cut.
  void NewAgent(JournalObserver* observer = nullptr) {
    if (cut_) *cut_ = true;
    cut_ = std::make_shared<std::atomic<bool>>(false);
    old_agents_.push_back(std::move(agent_));
    old_workers_.push_back(std::move(workers_));
    workers_ = std::make_unique<Workers>(
        dirs_.get(),
        [worker = worker_.get(), cut = cut_](const std::string&) {
          return std::make_shared<FakeWorkerClient>(worker, cut);
        },
        &ids_, std::vector<std::string>{"gvisor-0"});
    ASSERT_OK(workers_->Load());
    NodeAgentParts parts;
    parts.dirs = dirs_.get();
    parts.workers = workers_.get();
    parts.mover = mover_.get();
    parts.registry = &registry_;
    parts.unpacker = FakeUnpacker();
    parts.clock = Clock::Real();
    parts.ids = &ids_;
    parts.observer = observer;
    if (mounts_) parts.mounts = mounts_;
    NodeAgentOptions options;
    options.node_name = "node";
    options.boot_id = boot_id_;
    options.unreachable_max = std::chrono::milliseconds(40);
    options.garbage.min_age = garbage_min_age_;
    agent_ = std::make_unique<NodeAgent>(options, std::move(parts));
    ASSERT_OK(agent_->Recover());
    agent_->operations().SetLease("lease");
  }

  // For the next agent: what is mounted, and when something is old enough to be garbage.
  void SetMounts(MountList mounts) { mounts_ = std::move(mounts); }
  void SetGarbageMinAge(Duration age) { garbage_min_age_ = age; }

  void RegisterWorker() {
    auto response = agent_->RegisterWorker("gvisor-0", worker_->Info());
    ASSERT_OK(response);
    worker_->worker_uid = response->worker_uid();
    worker_->epoch = response->epoch();
  }

  // As after a reboot of the machine.
  void Reboot(const std::string& boot_id) {
    boot_id_ = boot_id;
    worker_->Kill();
    worker_->Restart();
    NewAgent();
    RegisterWorker();
  }

  torpor::v1::OpHeader Header(int64_t generation, const std::string& op_id = "") {
    torpor::v1::OpHeader header;
    header.set_op_id(op_id.empty() ? ids_.NewUuid() : op_id);
    header.set_actor_uid(kActorUid);
    header.set_generation(generation);
    header.set_node_lease_id("lease");
    header.mutable_timeout()->set_seconds(30);
    return header;
  }

  static torpor::v1::ActorIdentity Identity() {
    torpor::v1::ActorIdentity actor;
    actor.set_atespace("demo");
    actor.set_name("counter");
    actor.set_uid(kActorUid);
    actor.set_template_atespace("demo");
    actor.set_template_name("counter");
    actor.set_template_uid("22222222-2222-4222-8222-222222222222");
    return actor;
  }

  torpor::v1::StartActorRequest StartRequest(int64_t generation) {
    torpor::v1::StartActorRequest request;
    *request.mutable_op() = Header(generation);
    *request.mutable_actor() = Identity();
    request.set_worker_uid(worker_->worker_uid);
    request.set_worker_epoch(worker_->epoch);
    auto* container = request.mutable_spec()->add_containers();
    container->set_name("app");
    container->set_image(kImage);
    auto* env = container->add_env();
    env->set_name("SECRET");
    env->set_value("canary-value");
    return request;
  }

  torpor::v1::StartActorRequest StartLocal(int64_t generation, const std::string& name,
                                           int64_t source_generation) {
    torpor::v1::StartActorRequest request = StartRequest(generation);
    auto* source = request.add_sources();
    source->set_local_name(name);
    source->set_generation(source_generation);
    request.set_fidelity(torpor::v1::FIDELITY_MEMORY);
    return request;
  }

  torpor::v1::CaptureActorRequest CaptureRequest(int64_t generation, const std::string& name) {
    torpor::v1::CaptureActorRequest request;
    *request.mutable_op() = Header(generation);
    *request.mutable_actor() = Identity();
    request.set_worker_uid(worker_->worker_uid);
    request.set_snapshot_name(name);
    request.set_fidelity(torpor::v1::FIDELITY_MEMORY);
    return request;
  }

  torpor::v1::UploadSnapshotRequest UploadRequest(int64_t generation, const std::string& name,
                                                  const std::string& uri) {
    torpor::v1::UploadSnapshotRequest request;
    *request.mutable_op() = Header(generation);
    *request.mutable_actor() = Identity();
    request.set_snapshot_name(name);
    request.set_uri(uri);
    return request;
  }

  torpor::v1::StopActorRequest StopRequest(int64_t generation) {
    torpor::v1::StopActorRequest request;
    *request.mutable_op() = Header(generation);
    *request.mutable_actor() = Identity();
    request.set_worker_uid(worker_->worker_uid);
    return request;
  }

  // OK when the operation was accepted and succeeded.
  static Status Outcome(const StatusOr<torpor::v1::Operation>& operation) {
    if (!operation.ok()) return operation.status();
    if (operation->state() == torpor::v1::Operation::STATE_SUCCEEDED) return OkStatus();
    return OutcomeStatus(*operation);
  }

  bool HasLocal(const std::string& name, int64_t generation) {
    return agent_->core().snapshots->Verify(Identity(), name, generation).ok();
  }

  NodeAgent& agent() { return *agent_; }
  FakeWorker& worker() { return *worker_; }
  FakeMover& mover() { return *mover_; }
  FakeRegistry& registry() { return registry_; }
  Workers& workers() { return *workers_; }
  const NodeDirs& dirs() { return *dirs_; }
  SequentialIds& ids() { return ids_; }
  const std::string& path() const { return temp_.path(); }

 private:
  os::TempDir temp_;
  SequentialIds ids_;
  MountList mounts_;
  Duration garbage_min_age_ = std::chrono::minutes(10);
  std::string boot_id_ = "99999999-9999-4999-8999-999999999999";
  std::unique_ptr<NodeDirs> dirs_;
  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<FakeMover> mover_;
  FakeRegistry registry_;
  std::shared_ptr<std::atomic<bool>> cut_;
  std::vector<std::unique_ptr<Workers>> old_workers_;
  std::unique_ptr<Workers> workers_;
  std::vector<std::unique_ptr<NodeAgent>> old_agents_;
  std::unique_ptr<NodeAgent> agent_;
};

// ---- What many tests begin or end with ----

inline void StartAndPause(TestNode& node) {
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
}

inline void StartPauseResume(TestNode& node) {
  StartAndPause(node);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
}

// The actor can be started again from what is there, and holds the state that it must.
inline void ExpectResumes(TestNode& node, const std::string& name, int64_t generation,
                          const std::string& memory) {
  ASSERT_TRUE(node.HasLocal(name, generation));
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartLocal(20, name, generation))));
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), memory);
}

inline torpor::v1::StartActorRequest StartDurable(TestNode& node, int64_t generation) {
  auto start = node.StartRequest(generation);
  auto* source = start.add_sources();
  source->mutable_durable()->set_uri("file:///x/s2");
  source->set_generation(2);
  start.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  return start;
}

}  // namespace torpor::agent
