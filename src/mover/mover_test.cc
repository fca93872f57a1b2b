#include "mover/mover.h"

#include <thread>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "mover/testing/image.h"
#include "objstore/memory/memory_store.h"
#include "snapshot/format/layout.h"
#include "snapshot/format/manifest.h"
#include "snapshot/testing/sample.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::mover {
namespace {

namespace fs = std::filesystem;
using snapshot::kSampleActorUid;
using snapshot::kSampleGenerationUuid;
using snapshot::RandomBytes;
using snapshot::ReadFileFrom;
using snapshot::SampleActor;
using snapshot::TempDir;
using snapshot::WriteFileTo;
using torpor::v1::Operation;

constexpr char kOtherUid[] = "21111111-2222-4333-8444-555555555555";
constexpr char kLocation[] = "memory://bucket/here";

// A node directory with one LOCAL generation, and a store that can be made slow.
class MoverTest : public testing::Test {
 protected:
  MoverTest() {
    stores_.Add("memory", [this](const objstore::Uri& uri) -> StatusOr<objstore::Place> {
      return objstore::Place{store_, uri.path};
    });
    ImagePullerOptions images;
    images.node_dir = node_.path();
    images.layout_dir = layouts_.path();
    images_ = std::make_unique<ImagePuller>(images);
    MoverOptions options;
    options.node_dir = node_.path();
    options.allowed_storage = {kLocation};
    mover_ = std::move(Mover::Create(options, &stores_, images_.get(), Clock::Real())).value();
    fs::create_directories(node_ / "images/blobs");
    fs::create_directories(ActorPath("restore-state"));
    Capture(kSource, 7);
  }

  std::string ActorPath(const std::string& name) const {
    return node_.path() + "/actors/" + kSampleActorUid + "/" + name;
  }

  void Capture(const std::string& name, int64_t generation) {
    snapshot::Manifest manifest = snapshot::SampleManifest();
    manifest.meta.set_generation(generation);
    for (const auto& [file, bytes] : files_) {
      WriteFileTo(ActorPath(name + "/" + file), bytes);
      auto needed =
          file == "volumes/v" ? torpor::v1::FIDELITY_VOLUMES : torpor::v1::FIDELITY_MEMORY;
      manifest.files.push_back(
          snapshot::SampleFile(file, static_cast<int64_t>(bytes.size()), needed));
    }
    WriteFileTo(ActorPath(name + "/manifest.json"), *snapshot::SerializeManifest(manifest));
  }

  torpor::v1::OpHeader Header() {
    torpor::v1::OpHeader op;
    op.set_op_id(ids_.NewUuid());
    op.set_actor_uid(kSampleActorUid);
    op.set_generation(9);
    return op;
  }

  torpor::v1::UploadRequest UploadOf(const std::string& name = kSource) {
    torpor::v1::UploadRequest request;
    *request.mutable_op() = Header();
    *request.mutable_actor() = SampleActor();
    request.set_uri(
        snapshot::ActorSnapshotUri(kLocation, "demo", kSampleActorUid, kSampleGenerationUuid));
    request.set_source_dir(fmt::format("actors/{}/{}", kSampleActorUid, name));
    *request.mutable_meta() = snapshot::SampleMeta();
    for (const auto& [file, bytes] : files_) {
      auto* entry = request.add_files();
      entry->set_name(file);
      entry->set_logical_bytes(static_cast<int64_t>(bytes.size()));
    }
    return request;
  }

  torpor::v1::FetchRequest FetchOf(const std::string& uri, const std::string& sha256 = {}) {
    torpor::v1::FetchRequest request;
    *request.mutable_op() = Header();
    *request.mutable_actor() = SampleActor();
    request.mutable_snapshot()->set_uri(uri);
    request.mutable_snapshot()->set_manifest_sha256(sha256);
    request.set_target_dir(fmt::format("actors/{}/restore-state", kSampleActorUid));
    return request;
  }

  static Status ErrorOf(const Operation& op) {
    return ParseStatus(op.error().SerializeAsString(), Code::kUnknown, "");
  }
  size_t Restored() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(ActorPath("restore-state")), {}));
  }

  static constexpr char kSource[] = "local-checkpoint/g7";
  const std::map<std::string, std::string> files_ = {
      {"pages.img", RandomBytes(3 << 20, 1)}, {"checkpoint.img", "state"}, {"volumes/v", ""}};
  SequentialIds ids_;
  TempDir node_;
  TempDir layouts_;
  std::shared_ptr<objstore::ObjectStore> store_ = std::make_shared<objstore::MemoryStore>();
  objstore::StoreRegistry stores_;
  std::unique_ptr<ImagePuller> images_;
  std::unique_ptr<Mover> mover_;
};

TEST_F(MoverTest, UploadStatFetch) {
  torpor::v1::UploadRequest upload = UploadOf();
  ASSERT_OK_AND_ASSIGN(Operation up, mover_->Upload(upload));
  ASSERT_EQ(up.state(), Operation::STATE_SUCCEEDED) << up.ShortDebugString();
  EXPECT_FALSE(up.upload().already_present());
  EXPECT_EQ(up.upload().logical_bytes(), (3 << 20) + 5);
  EXPECT_EQ(up.done_bytes(), up.total_bytes());
  ASSERT_EQ(up.phases_size(), 1);
  EXPECT_EQ(up.phases(0).name(), "upload");
  EXPECT_EQ(up.phases(0).bytes(), up.upload().sent_bytes());

  torpor::v1::StatSnapshotRequest stat;
  stat.set_uri(upload.uri());
  ASSERT_OK_AND_ASSIGN(auto there, mover_->StatSnapshot(stat));
  EXPECT_TRUE(there.committed());
  EXPECT_EQ(there.manifest_sha256(), up.upload().manifest_sha256());
  EXPECT_EQ(there.meta().generation(), 7);
  EXPECT_EQ(there.stored_bytes(), up.upload().stored_bytes());

  ASSERT_OK_AND_ASSIGN(Operation down,
                       mover_->Fetch(FetchOf(upload.uri(), up.upload().manifest_sha256())));
  ASSERT_EQ(down.state(), Operation::STATE_SUCCEEDED) << down.ShortDebugString();
  EXPECT_EQ(down.fetch().files_size(), 3);
  EXPECT_EQ(down.fetch().meta().runtime(), "runsc");
  for (const auto& [file, bytes] : files_) {
    EXPECT_TRUE(ReadFileFrom(ActorPath("restore-state/" + file)) == bytes) << file;
  }
}

// Remembers what was asked to be swept.
class SweptStore : public objstore::MemoryStore {
 public:
  Status AbortUploads(const std::string& prefix, WallTime before) override {
    prefixes.push_back(prefix);
    limit = before;
    return Status(Code::kUnavailable, "down");
  }
  std::vector<std::string> prefixes;
  WallTime limit;
};

TEST_F(MoverTest, A8_UploadsThatAreADayOldAreAborted) {
  auto swept = std::make_shared<SweptStore>();
  store_ = swept;
  mover_->AbortOldUploads();
  EXPECT_EQ(swept->prefixes, std::vector<std::string>{"here"});
  const auto age = std::chrono::system_clock::now() - swept->limit;
  EXPECT_GE(age, std::chrono::hours(24));
  EXPECT_LT(age, std::chrono::hours(25));
}

TEST_F(MoverTest, AnUploadThatIsThereIsSuccess) {
  ASSERT_OK_AND_ASSIGN(Operation first, mover_->Upload(UploadOf()));
  // The local copy is gone, as after a lost reply and a prune.
  fs::remove_all(ActorPath(kSource));
  ASSERT_OK_AND_ASSIGN(Operation second, mover_->Upload(UploadOf()));
  ASSERT_EQ(second.state(), Operation::STATE_SUCCEEDED) << second.ShortDebugString();
  EXPECT_TRUE(second.upload().already_present());
  EXPECT_EQ(second.upload().manifest_sha256(), first.upload().manifest_sha256());
  EXPECT_EQ(second.upload().sent_bytes(), 0);
}

TEST_F(MoverTest, NothingAnywhereIsLoss) {
  fs::remove_all(ActorPath(kSource));
  ASSERT_OK_AND_ASSIGN(Operation up, mover_->Upload(UploadOf()));
  EXPECT_EQ(up.state(), Operation::STATE_FAILED);
  EXPECT_THAT(ErrorOf(up), HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
  EXPECT_EQ(up.phases(0).error_reason(), "LOCAL_SNAPSHOT_GONE");
  torpor::v1::StatSnapshotRequest stat;
  stat.set_uri(UploadOf().uri());
  ASSERT_OK_AND_ASSIGN(auto there, mover_->StatSnapshot(stat));
  EXPECT_FALSE(there.committed());
  ASSERT_OK_AND_ASSIGN(Operation down, mover_->Fetch(FetchOf(UploadOf().uri())));
  EXPECT_THAT(ErrorOf(down), HasReason(Code::kDataLoss, "FAILED_GET_EXTERNAL_OBJECT"));
}

TEST_F(MoverTest, AnUploadMayBeNarrower) {
  torpor::v1::UploadRequest request = UploadOf();
  request.mutable_files()->DeleteSubrange(0, 2);
  ASSERT_EQ(request.files(0).name(), "volumes/v");
  request.mutable_meta()->set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK_AND_ASSIGN(Operation up, mover_->Upload(request));
  ASSERT_EQ(up.state(), Operation::STATE_SUCCEEDED) << up.ShortDebugString();
  EXPECT_EQ(up.upload().fidelity(), torpor::v1::FIDELITY_VOLUMES);
  torpor::v1::FetchRequest fetch = FetchOf(request.uri());
  fetch.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  ASSERT_OK_AND_ASSIGN(Operation down, mover_->Fetch(fetch));
  EXPECT_THAT(ErrorOf(down), HasReason(Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED"));
}

TEST_F(MoverTest, WhatDiffersFromTheLocalManifestIsNotUploaded) {
  torpor::v1::UploadRequest size = UploadOf();
  size.mutable_files(0)->set_logical_bytes(4);
  ASSERT_OK_AND_ASSIGN(Operation op, mover_->Upload(size));
  EXPECT_THAT(ErrorOf(op), HasCode(Code::kInvalidArgument));

  torpor::v1::UploadRequest generation = UploadOf();
  generation.mutable_meta()->set_generation(8);
  ASSERT_OK_AND_ASSIGN(op, mover_->Upload(generation));
  EXPECT_THAT(ErrorOf(op), HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));

  torpor::v1::UploadRequest name = UploadOf();
  name.mutable_actor()->set_name("other");
  ASSERT_OK_AND_ASSIGN(op, mover_->Upload(name));
  EXPECT_THAT(ErrorOf(op), HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));

  WriteFileTo(ActorPath(std::string(kSource) + "/manifest.json"), "{}");
  ASSERT_OK_AND_ASSIGN(op, mover_->Upload(UploadOf()));
  EXPECT_THAT(ErrorOf(op), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_EQ(objstore::ListAll(*store_, "", 10).value().size(), 0u);
}

TEST_F(MoverTest, ForeignDirectoriesAreRefused) {
  struct Case {
    std::string dir;
    Code code;
  };
  for (const Case& c : {
           Case{fmt::format("actors/{}/local-checkpoint/g7", kOtherUid), Code::kPermissionDenied},
           Case{fmt::format("actors/{}", kSampleActorUid), Code::kPermissionDenied},
           Case{"images/blobs", Code::kPermissionDenied},
           Case{fmt::format("actors/{}/../{}/x", kSampleActorUid, kOtherUid),
                Code::kInvalidArgument},
           Case{"/etc", Code::kInvalidArgument},
           Case{"../x", Code::kInvalidArgument},
           Case{fmt::format("actors/{}x/a", kSampleActorUid), Code::kPermissionDenied},
       }) {
    torpor::v1::UploadRequest upload = UploadOf();
    upload.set_source_dir(c.dir);
    EXPECT_THAT(mover_->Upload(upload), HasCode(c.code)) << c.dir;
    torpor::v1::FetchRequest fetch = FetchOf(upload.uri());
    fetch.set_target_dir(c.dir);
    EXPECT_THAT(mover_->Fetch(fetch), HasCode(c.code)) << c.dir;
  }
}

TEST_F(MoverTest, LinksInTheNodeDirectoryAreNotFollowed) {
  TempDir outside;
  fs::create_directory_symlink(outside.path(), ActorPath("link"));
  ASSERT_OK_AND_ASSIGN(Operation up, mover_->Upload(UploadOf()));
  torpor::v1::FetchRequest fetch = FetchOf(UploadOf().uri());
  fetch.set_target_dir(fmt::format("actors/{}/link", kSampleActorUid));
  ASSERT_OK_AND_ASSIGN(Operation down, mover_->Fetch(fetch));
  EXPECT_EQ(down.state(), Operation::STATE_FAILED);
  EXPECT_EQ(outside.Entries(), 0u);
}

TEST_F(MoverTest, ForeignStorageIsRefused) {
  const std::string mine = UploadOf().uri();
  for (const std::string& uri :
       {snapshot::ActorSnapshotUri(kLocation, "demo", kOtherUid, kSampleGenerationUuid),
        snapshot::ActorSnapshotUri(kLocation, "other", kSampleActorUid, kSampleGenerationUuid),
        snapshot::ActorSnapshotUri("memory://elsewhere/here", "demo", kSampleActorUid,
                                   kSampleGenerationUuid),
        snapshot::ActorSnapshotUri("memory://bucket/hereafter", "demo", kSampleActorUid,
                                   kSampleGenerationUuid),
        snapshot::ActorSnapshotUri("s3://bucket/here", "demo", kSampleActorUid,
                                   kSampleGenerationUuid)}) {
    torpor::v1::UploadRequest upload = UploadOf();
    upload.set_uri(uri);
    EXPECT_THAT(mover_->Upload(upload), HasReason(Code::kPermissionDenied, "STORE_DENIED")) << uri;
    EXPECT_THAT(mover_->Fetch(FetchOf(uri)), HasReason(Code::kPermissionDenied, "STORE_DENIED"))
        << uri;
  }
  // Tags and golden snapshots are read, not written.
  for (const std::string& uri :
       {snapshot::TagSnapshotUri(kLocation, "demo", kOtherUid),
        snapshot::ActorSnapshotUri(kLocation, "ate-golden", kOtherUid, kSampleGenerationUuid)}) {
    torpor::v1::UploadRequest upload = UploadOf();
    upload.set_uri(uri);
    EXPECT_THAT(mover_->Upload(upload), HasReason(Code::kPermissionDenied, "STORE_DENIED")) << uri;
    ASSERT_OK_AND_ASSIGN(Operation op, mover_->Fetch(FetchOf(uri)));
    EXPECT_THAT(ErrorOf(op), HasReason(Code::kDataLoss, "FAILED_GET_EXTERNAL_OBJECT")) << uri;
  }
  torpor::v1::StatSnapshotRequest stat;
  stat.set_uri("memory://elsewhere/x");
  EXPECT_THAT(mover_->StatSnapshot(stat), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  stat.set_uri(kLocation);
  EXPECT_THAT(mover_->StatSnapshot(stat), HasCode(Code::kInvalidArgument));
}

TEST_F(MoverTest, SwappedSnapshotsAreFound) {
  ASSERT_OK_AND_ASSIGN(Operation up, mover_->Upload(UploadOf()));
  ASSERT_EQ(up.state(), Operation::STATE_SUCCEEDED);
  // Somebody with access to the bucket puts this actor's snapshot below another actor.
  const std::string other =
      snapshot::ActorSnapshotUri(kLocation, "demo", kOtherUid, kSampleGenerationUuid);
  const std::string from = objstore::ParseUri(UploadOf().uri())->path;
  const std::string to = objstore::ParseUri(other)->path;
  auto objects = objstore::ListAll(*store_, from, 10);
  ASSERT_OK(objects);
  for (const auto& object : *objects) {
    ASSERT_OK(store_->Copy(object.key, to + object.key.substr(from.size())));
  }
  torpor::v1::FetchRequest fetch = FetchOf(other);
  fetch.mutable_op()->set_actor_uid(kOtherUid);
  fetch.mutable_actor()->set_uid(kOtherUid);
  fetch.set_target_dir(fmt::format("actors/{}/restore-state", kOtherUid));
  fs::create_directories(node_ / fetch.target_dir());
  ASSERT_OK_AND_ASSIGN(Operation op, mover_->Fetch(fetch));
  EXPECT_THAT(ErrorOf(op), HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));
}

TEST_F(MoverTest, TooLittleMemoryIsRefused) {
  MoverOptions options;
  options.node_dir = node_.path();
  options.allowed_storage = {kLocation};
  options.resources.memory_budget_bytes = 32 << 20;
  auto mover = Mover::Create(options, &stores_, images_.get(), Clock::Real());
  EXPECT_THAT(mover.status(), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(mover.status(), MessageHas("at least 64Mi"));
}

TEST_F(MoverTest, BadRequests) {
  torpor::v1::UploadRequest upload = UploadOf();
  upload.mutable_op()->set_actor_uid(kOtherUid);
  EXPECT_THAT(mover_->Upload(upload), HasCode(Code::kInvalidArgument));
  upload = UploadOf();
  upload.mutable_actor()->set_atespace("../x");
  EXPECT_THAT(mover_->Upload(upload), HasCode(Code::kInvalidArgument));
  upload = UploadOf();
  upload.mutable_files(0)->set_name("../../etc/passwd");
  EXPECT_THAT(mover_->Upload(upload), HasCode(Code::kInvalidArgument));
  upload = UploadOf();
  upload.add_bases();
  EXPECT_THAT(mover_->Upload(upload), HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  torpor::v1::FetchRequest fetch = FetchOf(upload.uri());
  fetch.clear_target_dir();
  EXPECT_THAT(mover_->Fetch(fetch), HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  torpor::v1::PullImageRequest pull;
  *pull.mutable_op() = Header();
  pull.set_reference("debian:12");
  EXPECT_THAT(mover_->PullImage(pull), HasCode(Code::kInvalidArgument));
}

TEST_F(MoverTest, PullsAnImageFromALayout) {
  torpor::v1::PullImageRequest pull;
  *pull.mutable_op() = Header();
  const std::string digest = MakeTestImage(layouts_ / "app", "app", 1);
  pull.set_reference("app@" + digest);
  pull.set_architecture("amd64");
  ASSERT_OK_AND_ASSIGN(Operation op, mover_->PullImage(pull));
  EXPECT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  EXPECT_EQ(op.phases(0).name(), "image");
  EXPECT_GT(op.done_bytes(), 10000);
}

// Holds every Put until it is opened.
class HeldStore : public objstore::MemoryStore {
 public:
  Status Put(const std::string& key, std::string_view bytes,
             const objstore::PutOptions& options) override {
    {
      MutexLock lock(&mu_);
      ++waiting_;
      changed_.SignalAll();
      while (!open_) changed_.Wait(&mu_);
    }
    return MemoryStore::Put(key, bytes, options);
  }
  void AwaitWaiting() {
    MutexLock lock(&mu_);
    while (waiting_ == 0) changed_.Wait(&mu_);
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int waiting_ GUARDED_BY(mu_) = 0;
  bool open_ GUARDED_BY(mu_) = false;
};

TEST_F(MoverTest, OneUploadPerAddressAtATime) {
  auto held = std::make_shared<HeldStore>();
  store_ = held;
  torpor::v1::UploadRequest request = UploadOf();
  std::thread first([&] {
    auto op = mover_->Upload(request);
    EXPECT_OK(op);
    EXPECT_EQ(op->state(), Operation::STATE_SUCCEEDED) << op->ShortDebugString();
  });
  held->AwaitWaiting();
  ASSERT_OK_AND_ASSIGN(Operation second, mover_->Upload(UploadOf()));
  EXPECT_THAT(ErrorOf(second), HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  held->Open();
  first.join();
}

TEST_F(MoverTest, ACancelledUploadLeavesNoObject) {
  auto held = std::make_shared<HeldStore>();
  store_ = held;
  torpor::v1::UploadRequest request = UploadOf();
  std::thread first([&] {
    auto op = mover_->Upload(request);
    EXPECT_OK(op);
    EXPECT_THAT(ErrorOf(*op), HasReason(Code::kCancelled, "CANCELLED"));
  });
  held->AwaitWaiting();
  torpor::v1::CancelOperationRequest cancel;
  cancel.set_op_id(request.op().op_id());
  ASSERT_OK(mover_->CancelOperation(cancel));
  held->Open();
  first.join();
  EXPECT_EQ(objstore::ListAll(*store_, "", 10).value().size(), 0u);
}

TEST_F(MoverTest, ManyUploadsAndFetchesAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      torpor::v1::UploadRequest upload = UploadOf();
      const std::string uuid = fmt::format("{:08}-2222-4333-8444-555555555555", i);
      upload.set_uri(snapshot::ActorSnapshotUri(kLocation, "demo", kSampleActorUid, uuid));
      auto up = mover_->Upload(upload);
      ASSERT_OK(up);
      ASSERT_EQ(up->state(), Operation::STATE_SUCCEEDED) << up->ShortDebugString();
      const std::string target = fmt::format("restore-{}", i);
      fs::create_directory(ActorPath(target));
      torpor::v1::FetchRequest fetch = FetchOf(upload.uri(), up->upload().manifest_sha256());
      fetch.set_target_dir(fmt::format("actors/{}/{}", kSampleActorUid, target));
      auto down = mover_->Fetch(fetch);
      ASSERT_OK(down);
      ASSERT_EQ(down->state(), Operation::STATE_SUCCEEDED) << down->ShortDebugString();
      EXPECT_TRUE(ReadFileFrom(ActorPath(target + "/pages.img")) == files_.at("pages.img"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace torpor::mover
