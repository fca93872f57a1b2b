#include "agent/node_agent.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "agent/testing/test_node.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

Status Outcome(const StatusOr<Operation>& operation) { return TestNode::Outcome(operation); }

TEST(NodeAgentTest, ActorContinuesFromItsLocalSnapshot) {
  TestNode node;
  auto started = node.agent().StartActor(node.StartRequest(1));
  ASSERT_OK(Outcome(started));
  EXPECT_EQ(started->start().address(), "unix:/door.sock");
  EXPECT_TRUE(started->start().cold_boot());
  auto captured = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  ASSERT_OK(Outcome(captured));
  EXPECT_EQ(captured->capture().snapshot_name(), "s2");
  EXPECT_EQ(captured->capture().meta().generation(), 2);
  EXPECT_FALSE(node.worker().Hosts(kActorUid));

  auto resumed = node.agent().StartActor(node.StartLocal(3, "s2", 2));
  ASSERT_OK(Outcome(resumed));
  EXPECT_FALSE(resumed->start().cold_boot());
  EXPECT_EQ(resumed->start().source(), torpor::v1::DURABILITY_LOCAL);
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
  EXPECT_TRUE(node.worker().last_start().preserve_restore());
  EXPECT_EQ(node.worker().last_start().dirs().restore(),
            std::string("actors/") + kActorUid + "/local-checkpoint/s2");
  // In place: the snapshot is still whole.
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(NodeAgentTest, SuspendedActorComesBackFromObjectStorage) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  auto uploaded = node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"));
  ASSERT_OK(Outcome(uploaded));
  EXPECT_EQ(uploaded->upload().manifest_sha256(), "sha of file:///x/s2");
  torpor::v1::DeleteLocalSnapshotsRequest remove;
  *remove.mutable_op() = node.Header(2);
  remove.set_all(true);
  ASSERT_OK(Outcome(node.agent().DeleteLocalSnapshots(remove)));
  EXPECT_FALSE(node.HasLocal("s2", 2));

  auto start = node.StartRequest(3);
  auto* source = start.add_sources();
  source->mutable_durable()->set_uri("file:///x/s2");
  source->set_generation(2);
  start.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  auto resumed = node.agent().StartActor(start);
  ASSERT_OK(Outcome(resumed));
  EXPECT_EQ(resumed->start().source(), torpor::v1::DURABILITY_DURABLE);
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
  EXPECT_FALSE(node.worker().last_start().preserve_restore());
}

TEST(NodeAgentTest, AnUploadWhoseLocalCopyIsGoneIsAnsweredByTheRemoteManifest) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  ASSERT_OK(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
  torpor::v1::DeleteLocalSnapshotsRequest remove;
  *remove.mutable_op() = node.Header(2);
  remove.add_snapshot_names("s2");
  ASSERT_OK(Outcome(node.agent().DeleteLocalSnapshots(remove)));
  auto again = node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"));
  ASSERT_OK(Outcome(again));
  EXPECT_TRUE(again->upload().already_present());
  EXPECT_THAT(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/other"))),
              HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
}

TEST(NodeAgentTest, ADamagedLocalCopyLeadsToTheDurableOne) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  ASSERT_OK(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
  std::string file = NodeDirs::LocalPath(kActorUid, "s2") + "/memory.img";
  ASSERT_OK(node.dirs().root().WriteFile(file, "short", 0440));
  ASSERT_OK(node.dirs().root().WriteFile(file, "sh", 0440));
  EXPECT_THAT(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  auto start = node.StartLocal(4, "s2", 2);
  auto* source = start.add_sources();
  source->mutable_durable()->set_uri("file:///x/s2");
  source->set_generation(2);
  auto resumed = node.agent().StartActor(start);
  ASSERT_OK(Outcome(resumed));
  EXPECT_EQ(resumed->start().source(), torpor::v1::DURABILITY_DURABLE);
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
}

TEST(NodeAgentTest, OlderLocalGenerationsGoOnlyAfterTheAcknowledgement) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto first = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  ASSERT_OK(Outcome(first));
  node.agent().Acknowledged(*first);
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  auto second = node.agent().CaptureActor(node.CaptureRequest(4, "s4"));
  ASSERT_OK(Outcome(second));
  EXPECT_TRUE(node.HasLocal("s2", 2));
  EXPECT_TRUE(node.HasLocal("s4", 4));
  node.agent().Acknowledged(*second);
  EXPECT_FALSE(node.HasLocal("s2", 2));
  EXPECT_TRUE(node.HasLocal("s4", 4));
}

TEST(NodeAgentTest, ANewBootDoesNotTrustFilesThatMayNeverHaveReachedTheDisk) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  EXPECT_EQ(node.agent().GetInventory().local_copies_size(), 1);
  node.Reboot("88888888-8888-4888-8888-888888888888");
  EXPECT_EQ(node.agent().GetInventory().local_copies_size(), 0);
  EXPECT_THAT(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))),
              HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
}

TEST(NodeAgentTest, StopWithDeleteLeavesNothing) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  auto stop = node.StopRequest(4);
  stop.set_delete_local_snapshots(true);
  ASSERT_OK(Outcome(node.agent().StopActor(stop)));
  EXPECT_FALSE(node.worker().Hosts(kActorUid));
  EXPECT_FALSE(node.dirs().OpenActor(kActorUid).ok());
  // Nothing there is success, also under a new id.
  ASSERT_OK(Outcome(node.agent().StopActor(node.StopRequest(4))));
}

TEST(NodeAgentTest, AStartOfAResidentActorStopsTheOldSandboxFirst) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(2))));
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 1);
  EXPECT_EQ(node.agent().GetInventory().residents(0).generation(), 2);
}

TEST(NodeAgentTest, FailedStartLeavesNoDirectoriesAndKeepsTheSource) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  node.worker().FailNext("start", Fail(reasons::kRuntimeFailed, "boom", {{kGuestRan, "true"}}));
  auto failed = node.agent().StartActor(node.StartLocal(3, "s2", 2));
  EXPECT_THAT(Outcome(failed), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestRan], "true");
  EXPECT_TRUE(node.HasLocal("s2", 2));
  EXPECT_TRUE(node.dirs().root().List(NodeDirs::ActorPath(kActorUid, kBundles))->empty());
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 0);
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(4, "s2", 2))));
}

TEST(NodeAgentTest, LostAnswersAreAskedFor) {
  TestNode node;
  node.worker().LoseNext("start");
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  EXPECT_EQ(node.worker().starts(), 1);
  node.worker().LoseNext("capture");
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(NodeAgentTest, ImageThatCannotBeHadFailsTheStartWithItsReason) {
  TestNode node;
  node.mover().FailNext("pull", Fail(reasons::kImageRegistryUnavailable, "registry is down"));
  EXPECT_THAT(Outcome(node.agent().StartActor(node.StartRequest(1))),
              HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
  EXPECT_EQ(node.worker().starts(), 0);
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(2))));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(3))));
  EXPECT_EQ(node.mover().pulls(), 2);
}

TEST(NodeAgentTest, FailedFetchKeepsItsReasonAndEmptiesTheRestoreDirectory) {
  TestNode node;
  auto start = node.StartRequest(1);
  auto* source = start.add_sources();
  source->mutable_durable()->set_uri("file:///x/none");
  source->set_generation(1);
  start.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  EXPECT_THAT(Outcome(node.agent().StartActor(start)),
              HasReason(Code::kDataLoss, "FAILED_GET_EXTERNAL_OBJECT"));
  EXPECT_TRUE(node.dirs().root().List(NodeDirs::ActorPath(kActorUid, kRestoreDir))->empty());
}

TEST(NodeAgentTest, ABusyVolumeStopsAResetBeforeAnythingIsTouched) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  std::string volumes = NodeDirs::ActorPath(kActorUid, kVolumes);
  ASSERT_OK(node.dirs().root().MkdirExclusive(volumes + "/v", 0755));
  ASSERT_OK(node.dirs().root().WriteFile(volumes + "/v/data", "precious", 0644));
  EXPECT_THAT(Outcome(node.agent().StartActor(node.StartRequest(2))),
              HasReason(Code::kUnavailable, "VOLUME_BUSY"));
  EXPECT_TRUE(node.dirs().root().Exists(volumes + "/v/data"));
  EXPECT_FALSE(node.dirs().root().List(NodeDirs::ActorPath(kActorUid, kBundles))->empty());
}

TEST(NodeAgentTest, ExternalVolumeIsRefusedBeforeAnythingIsTouched) {
  TestNode node;
  auto start = node.StartRequest(1);
  auto* volume = start.mutable_spec()->add_volumes();
  volume->set_name("data");
  volume->mutable_external();
  EXPECT_THAT(Outcome(node.agent().StartActor(start)),
              HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
  EXPECT_FALSE(node.dirs().OpenActor(kActorUid).ok());
}

TEST(NodeAgentTest, DurableDirIsMadeEmptyAndMountedWritable) {
  TestNode node;
  auto request = [&](int64_t generation) {
    auto start = node.StartRequest(generation);
    auto* volume = start.mutable_spec()->add_volumes();
    volume->set_name("data");
    volume->mutable_durable_dir();
    auto* mount = start.mutable_spec()->mutable_containers(0)->add_volume_mounts();
    mount->set_name("data");
    mount->set_mount_path("/data");
    return start;
  };
  ASSERT_OK(Outcome(node.agent().StartActor(request(1))));
  const std::string data = NodeDirs::ActorPath(kActorUid, kDurableDir) + "/data";
  ASSERT_OK_AND_ASSIGN(struct stat st, node.dirs().root().Stat(data));
  EXPECT_EQ(st.st_mode & 07777, 0777u) << "any user of an image may write";
  ASSERT_OK_AND_ASSIGN(st, node.dirs().root().Stat(NodeDirs::ActorPath(kActorUid, kDurableDir)));
  EXPECT_EQ(st.st_mode & 07777, 0700u) << "nobody of the host gets there";
  std::string config = *node.dirs().root().ReadFile(
      NodeDirs::ActorPath(kActorUid, kBundles) + "/app/config.json", 1 << 20);
  EXPECT_NE(config.find("durable-dir/data"), std::string::npos);
  EXPECT_NE(config.find("\"rw\""), std::string::npos);
  // What a start finds there is what the snapshot held, never an earlier activation's files.
  ASSERT_OK(node.dirs().root().WriteFile(data + "/old", "x", 0644));
  ASSERT_OK(Outcome(node.agent().StartActor(request(2))));
  EXPECT_TRUE(node.dirs().root().List(data)->empty());
}

TEST(NodeAgentTest, AssetsThatCannotBeHadAreNotReplacedSilently) {
  TestNode node;
  auto start = node.StartRequest(1);
  start.mutable_assets()->add_files()->set_name("runsc");
  EXPECT_THAT(Outcome(node.agent().StartActor(start)),
              HasReason(Code::kInternal, "INVALID_SANDBOX_ASSET"));
}

TEST(NodeAgentTest, SystemInfoIsWrittenFreshAndMountedReadOnly) {
  TestNode node;
  auto start = node.StartRequest(1);
  auto* volume = start.mutable_spec()->add_volumes();
  volume->set_name("info");
  auto* items = volume->mutable_system_info()->add_data_sources()->mutable_actor_metadata();
  auto add = [&](ateapi::ActorMetadataField field, const char* path) {
    auto* item = items->add_items();
    item->set_field(field);
    item->set_path(path);
  };
  add(ateapi::ACTOR_METADATA_FIELD_NAME, "me/name");
  add(ateapi::ACTOR_METADATA_FIELD_UID, "me/uid");
  auto* mount = start.mutable_spec()->mutable_containers(0)->add_volume_mounts();
  mount->set_name("info");
  mount->set_mount_path("/etc/actor");
  ASSERT_OK(Outcome(node.agent().StartActor(start)));
  std::string base = NodeDirs::ActorPath(kActorUid, kSystemInfo) + "/info/";
  EXPECT_EQ(*node.dirs().root().ReadFile(base + "me/name", 100), "counter");
  EXPECT_EQ(*node.dirs().root().ReadFile(base + "me/uid", 100), kActorUid);
  EXPECT_EQ(*node.dirs().root().ReadFile(base + "generation", 100), "1");
  std::string config = *node.dirs().root().ReadFile(
      NodeDirs::ActorPath(kActorUid, kBundles) + "/app/config.json", 1 << 20);
  EXPECT_NE(config.find("/etc/actor"), std::string::npos);
  EXPECT_NE(config.find("\"ro\""), std::string::npos);
}

// ---- Capture failures, row by row of node.md 4.4 ----

TEST(NodeAgentTest, CaptureThatDoesNotFitLeavesTheGuestAlone) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto all = node.agent().core().reservations->Reserve(
      node.dirs().root(), node.path(), {node.dirs().root().Space()->free_bytes - (1 << 20), 1});
  ASSERT_OK(all);
  auto failed = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  EXPECT_THAT(Outcome(failed), HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestAlive], "true");
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot");
}

TEST(NodeAgentTest, CaptureThatFailsWithTheGuestAlive) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.worker().FailNext("capture", Fail(reasons::kActorBusy, "busy", {{kGuestAlive, "true"}}));
  auto failed = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  EXPECT_THAT(Outcome(failed), HasReason(Code::kFailedPrecondition, "ACTOR_BUSY"));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestAlive], "true");
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 1);
  EXPECT_FALSE(node.dirs().root().Exists(NodeDirs::ActorPath(kActorUid, kCaptureDir)));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(3, "s3"))));
}

TEST(NodeAgentTest, CodeAndReasonOfAFailedCaptureSayWhatBecameOfTheGuest) {
  struct Case {
    Status status;
    bool alive;
    Code code;
    const char* reason;
  };
  const Case cases[] = {
      {Fail(reasons::kActorBusy, "x"), true, Code::kFailedPrecondition, "ACTOR_BUSY"},
      {Fail(reasons::kDiskFull, "x"), true, Code::kResourceExhausted, "DISK_FULL"},
      {Fail(reasons::kRuntimeFailed, "x"), true, Code::kInternal, "INTERNAL"},
      {Fail(reasons::kActorNotFound, "x"), true, Code::kInternal, "INTERNAL"},
      {Fail(reasons::kSnapshotCorrupt, "x"), true, Code::kInternal, "INTERNAL"},
      {Fail(reasons::kWorkerRestarted, "x"), false, Code::kInternal, "WORKER_RESTARTED"},
      {Fail(reasons::kDiskFull, "x"), false, Code::kInternal, "RUNTIME_FAILED"},
      {Status(Code::kUnavailable, "x"), false, Code::kInternal, "RUNTIME_FAILED"},
  };
  for (const Case& c : cases) {
    Status status = WithGuest(c.status, c.alive);
    EXPECT_THAT(status, HasReason(c.code, c.reason)) << c.status;
    EXPECT_EQ(MetadataOf(status)[kGuestAlive], c.alive ? "true" : "false");
  }
}

TEST(NodeAgentTest, CaptureThatLosesTheGuestSaysSo) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.worker().FailNext("capture", Fail(reasons::kRuntimeFailed, "checkpoint failed"));
  auto failed = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestAlive], "false");
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 0);
}

TEST(NodeAgentTest, CaptureWhileTheWorkerDies) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.worker().Kill();
  auto failed = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  EXPECT_THAT(Outcome(failed), HasReason(Code::kInternal, "WORKER_RESTARTED"));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestAlive], "false");
}

TEST(NodeAgentTest, FilesThatWereNotReportedAreNoSnapshot) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.worker().LeaveInCapture("stowaway");
  EXPECT_THAT(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))),
              HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  EXPECT_FALSE(node.HasLocal("s2", 2));
}

TEST(NodeAgentTest, CaptureThatLeavesTheGuestRunning) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto capture = node.CaptureRequest(2, "s2");
  capture.set_leave_running(true);
  auto captured = node.agent().CaptureActor(capture);
  ASSERT_OK(Outcome(captured));
  EXPECT_TRUE(captured->capture().left_running());
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 1);
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(NodeAgentTest, ASnapshotNameIsNeverUsedTwice) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  auto failed = node.agent().CaptureActor(node.CaptureRequest(4, "s2"));
  EXPECT_THAT(Outcome(failed), HasCode(Code::kAlreadyExists));
  EXPECT_EQ(MetadataOf(Outcome(failed))[kGuestAlive], "true");
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

// ---- Uploads ----

TEST(NodeAgentTest, AWakeDoesNotWaitForAnUploadAndANewerCaptureEndsIt) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto first = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  ASSERT_OK(Outcome(first));
  node.mover().HoldUploads(true);
  Status uploaded;
  std::thread upload([&] {
    uploaded = Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2")));
  });
  node.mover().WaitForUpload();
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  node.agent().Acknowledged(*first);
  EXPECT_TRUE(node.HasLocal("s2", 2));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(4, "s4"))));
  upload.join();
  EXPECT_THAT(uploaded, HasCode(Code::kCancelled));
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(NodeAgentTest, FailedUploadCostsNothing) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  node.mover().FailNext("upload", Fail(reasons::kObjectStorageUnavailable, "down"));
  EXPECT_THAT(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))),
              HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
  EXPECT_TRUE(node.HasLocal("s2", 2));
  ASSERT_OK(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
}

TEST(NodeAgentTest, FidelityIsNarrowedNeverWidened) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto capture = node.CaptureRequest(2, "s2");
  capture.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK(Outcome(node.agent().CaptureActor(capture)));
  auto upload = node.UploadRequest(2, "s2", "file:///x/s2");
  upload.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  EXPECT_THAT(Outcome(node.agent().UploadSnapshot(upload)),
              HasReason(Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED"));
}

// ---- Worker support ----

TEST(NodeAgentTest, ExitsAreForwardedOnlyForHostedActors) {
  TestNode node;
  torpor::v1::ExitReport report;
  report.set_event_id(node.ids().NewUuid());
  report.set_actor_uid(kActorUid);
  report.set_generation(1);
  EXPECT_THAT(node.agent().ReportExit("gvisor-0", report), HasCode(Code::kPermissionDenied));
  EXPECT_THAT(node.agent().ReportExit("other", report), HasCode(Code::kNotFound));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.registry().SetReachable(false);
  EXPECT_THAT(node.agent().ReportExit("gvisor-0", report), HasCode(Code::kUnavailable));
  node.registry().SetReachable(true);
  ASSERT_OK(node.agent().ReportExit("gvisor-0", report));
  ASSERT_EQ(node.registry().reports().size(), 1U);
  EXPECT_EQ(node.registry().reports()[0].exited().actor_uid(), kActorUid);
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 0);
}

TEST(NodeAgentTest, ANewWorkerProcessRaisesTheEpochAndHostsNothing) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  std::string uid = node.worker().worker_uid;
  EXPECT_EQ(node.worker().epoch, 1);
  node.RegisterWorker();  // the same process again
  EXPECT_EQ(node.worker().epoch, 1);
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 1);
  auto old_start = node.StartRequest(2);
  node.worker().Kill();
  node.worker().Restart();
  node.RegisterWorker();
  EXPECT_EQ(node.worker().epoch, 2);
  EXPECT_EQ(node.worker().worker_uid, uid);
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 0);
  EXPECT_THAT(Outcome(node.agent().StartActor(old_start)),
              HasReason(Code::kInternal, "WORKER_RESTARTED"));
  node.NewAgent();
  EXPECT_EQ(node.workers().Find(uid)->info.epoch(), 2);
}

// ---- Hostile input ----

TEST(NodeAgentTest, HostileNamesAreRefusedEverywhere) {
  TestNode node;
  for (const char* bad : {"", "..", "../x", "a/b", "/etc", "A", "a b", "a\n", "-a"}) {
    auto start = node.StartRequest(1);
    start.mutable_spec()->mutable_containers(0)->set_name(bad);
    EXPECT_THAT(node.agent().StartActor(start), HasCode(Code::kInvalidArgument)) << bad;
    start = node.StartRequest(1);
    start.mutable_op()->set_actor_uid(bad);
    start.mutable_actor()->set_uid(bad);
    EXPECT_THAT(node.agent().StartActor(start), HasCode(Code::kInvalidArgument)) << bad;
    start = node.StartRequest(1);
    start.mutable_actor()->set_name(bad);
    EXPECT_THAT(node.agent().StartActor(start), HasCode(Code::kInvalidArgument)) << bad;
    EXPECT_THAT(node.agent().StartActor(node.StartLocal(1, bad, 1)),
                HasCode(Code::kInvalidArgument))
        << bad;
    EXPECT_THAT(node.agent().CaptureActor(node.CaptureRequest(1, bad)),
                HasCode(Code::kInvalidArgument))
        << bad;
    EXPECT_THAT(node.agent().UploadSnapshot(node.UploadRequest(1, bad, "file:///x")),
                HasCode(Code::kInvalidArgument))
        << bad;
    torpor::v1::DeleteLocalSnapshotsRequest remove;
    *remove.mutable_op() = node.Header(1);
    remove.add_snapshot_names(bad);
    EXPECT_THAT(node.agent().DeleteLocalSnapshots(remove), HasCode(Code::kInvalidArgument)) << bad;
    auto stop = node.StopRequest(1);
    stop.mutable_op()->set_actor_uid(bad);
    EXPECT_THAT(node.agent().StopActor(stop), HasCode(Code::kInvalidArgument)) << bad;
  }
  EXPECT_TRUE(node.dirs().ListActors()->empty());
}

TEST(NodeAgentTest, ALinkWhereDirectoriesBelongIsNotFollowed) {
  TestNode node;
  os::TempDir outside;
  ASSERT_OK(outside.dir().MkdirExclusive("bundles", 0755));
  ASSERT_OK(outside.dir().WriteFile("bundles/keep", "x", 0644));
  std::string at = node.path() + "/actors/" + kActorUid;
  ASSERT_EQ(symlink(outside.path().c_str(), at.c_str()), 0);
  EXPECT_FALSE(Outcome(node.agent().StartActor(node.StartRequest(1))).ok());
  EXPECT_TRUE(outside.dir().Exists("bundles/keep"));
  EXPECT_EQ(outside.dir().List()->size(), 1U);
}

TEST(NodeAgentTest, ACapturedLinkIsNoSnapshotFile) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(node.dirs().FreshCapture(kActorUid, Clock::Real()->WallNow()));
  std::string dir = node.path() + "/" + NodeDirs::ActorPath(kActorUid, kCaptureDir);
  ASSERT_EQ(symlink("/etc/passwd", (dir + "/memory.img").c_str()), 0);
  google::protobuf::RepeatedPtrField<torpor::v1::SnapshotFile> files;
  files.Add()->set_name("memory.img");
  EXPECT_THAT(node.agent().core().snapshots->CheckCapture(kActorUid, files),
              HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  files.Clear();
  files.Add()->set_name("../running.json");
  EXPECT_THAT(node.agent().core().snapshots->CheckCapture(kActorUid, files),
              HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
}

TEST(NodeAgentTest, TheJournalHoldsNoSecrets) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  std::string journal =
      *node.dirs().root().ReadFile(std::string("journal/") + kActorUid + ".j", 1 << 20);
  EXPECT_EQ(journal.find("canary-value"), std::string::npos);
}

}  // namespace
}  // namespace torpor::agent
