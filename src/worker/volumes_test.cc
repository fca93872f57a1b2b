// Durable directories through a whole worker.

#include "worker/volumes.h"

#include "worker/testing/service_fixture.h"

namespace torpor::worker {
namespace {

class VolumesTest : public WorkerServiceTest {
 protected:
  std::string Data() const { return ActorDir() + "/durable-dir/data"; }
  // As the agent prepares it.
  void FreshData() {
    std::filesystem::remove_all(ActorDir() + "/durable-dir");
    std::filesystem::create_directories(Data());
    std::filesystem::remove_all(ActorDir() + "/checkpoint-state");
    std::filesystem::create_directories(ActorDir() + "/checkpoint-state");
  }
  StartWorkloadRequest StartWithData(int64_t generation) {
    StartWorkloadRequest request = MakeStart(generation);
    auto* volume = request.mutable_spec()->add_volumes();
    volume->set_name("data");
    volume->mutable_durable_dir();
    request.mutable_spec()->add_volumes()->set_name("new");
    request.mutable_spec()->mutable_volumes(1)->mutable_durable_dir();
    std::filesystem::create_directories(ActorDir() + "/durable-dir/new");
    request.mutable_dirs()->set_durable(request.dirs().root() + "/durable-dir");
    return request;
  }
  Operation CaptureOk(int64_t generation, torpor::v1::Fidelity fidelity) {
    auto request = Make<CaptureWorkloadRequest>(generation);
    request.set_fidelity(fidelity);
    StatusOr<Operation> op = service_->CaptureWorkload(request);
    EXPECT_OK(op.status());
    EXPECT_EQ(op->state(), Operation::STATE_SUCCEEDED) << op->ShortDebugString();
    return *op;
  }
  void StartOk(const StartWorkloadRequest& request) {
    ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(request));
    ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  }
};

TEST_F(VolumesTest, ArePackedAndComeBackAtEitherFidelity) {
  FreshData();
  StartOk(StartWithData(1));
  std::ofstream(Data() + "/file") << "kept";
  Operation memory = CaptureOk(2, torpor::v1::FIDELITY_MEMORY);
  ASSERT_EQ(memory.capture().files_size(), 3);
  for (const auto& file : memory.capture().files()) {
    EXPECT_EQ(file.needed_from(), file.name() == "memory.img" ? torpor::v1::FIDELITY_MEMORY
                                                              : torpor::v1::FIDELITY_VOLUMES)
        << file.name();
  }
  std::filesystem::rename(ActorDir() + "/checkpoint-state", ActorDir() + "/local-checkpoint/g2");
  // Narrowed: the memory image is not even named.
  FreshData();
  StartWorkloadRequest narrowed = StartWithData(3);
  narrowed.set_restore(torpor::v1::FIDELITY_VOLUMES);
  narrowed.mutable_dirs()->set_restore(narrowed.dirs().root() + "/local-checkpoint/g2");
  for (const auto& file : memory.capture().files()) {
    if (file.needed_from() == torpor::v1::FIDELITY_VOLUMES) *narrowed.add_files() = file;
  }
  StartOk(narrowed);
  EXPECT_TRUE(std::filesystem::exists(Data() + "/file"));
  std::ofstream(Data() + "/second") << "later";
  Operation volumes = CaptureOk(4, torpor::v1::FIDELITY_VOLUMES);
  ASSERT_EQ(volumes.capture().files_size(), 2);
  EXPECT_EQ(volumes.capture().files(0).name(), "volume-data.tar");
  EXPECT_EQ(volumes.capture().meta().fidelity(), torpor::v1::FIDELITY_VOLUMES);
}

TEST_F(VolumesTest, ADamagedArchiveIsDataLossBeforeTheGuestRuns) {
  FreshData();
  StartWorkloadRequest start = StartWithData(1);
  start.set_restore(torpor::v1::FIDELITY_VOLUMES);
  start.mutable_dirs()->set_restore(start.dirs().root() + "/local-checkpoint/g1");
  std::ofstream(ActorDir() + "/local-checkpoint/g1/volume-data.tar") << std::string(512, 'x');
  auto* file = start.add_files();
  file->set_name("volume-data.tar");
  file->set_logical_bytes(512);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(start));
  std::string reason;
  ErrorMetadata metadata = ErrorOf(op, &reason);
  EXPECT_EQ(reason, "SNAPSHOT_CORRUPT");
  EXPECT_EQ(metadata["guest_ran"], "false");
  EXPECT_NE(op.error().message().find("volume data"), std::string::npos);
}

TEST_F(VolumesTest, AVolumeThatCannotBeSavedLeavesTheGuestRunning) {
  FreshData();
  StartOk(StartWithData(1));
  std::filesystem::remove_all(Data());
  auto request = Make<CaptureWorkloadRequest>(2);
  request.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK_AND_ASSIGN(Operation op, service_->CaptureWorkload(request));
  std::string reason;
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "true");
  EXPECT_EQ(service_->ListWorkloads().residents_size(), 1);
}

}  // namespace
}  // namespace torpor::worker
