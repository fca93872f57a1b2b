// What was saved comes back, byte for byte and hole for hole.

#include "objstore/file/file_store.h"
#include "snapshot/format/sha256.h"
#include "snapshot/load/read_manifest.h"
#include "snapshot/testing/fixture.h"

namespace torpor::snapshot {
namespace {

namespace fs = std::filesystem;

class RoundTripTest : public SnapshotFixture {};

TEST_F(RoundTripTest, FilesOfEveryKind) {
  Capture("empty", "");
  Capture("one", "x");
  Capture("text", std::string(300000, 'a') + "b");
  Capture("random", RandomBytes(3 << 20, 1));
  Capture("zeros", std::string(2 << 20, '\0'));
  Capture("odd", RandomBytes(64 << 10, 2) + std::string(200001, '\0') + "end");
  Capture("volumes/data.tar", RandomBytes(10000, 3), torpor::v1::FIDELITY_VOLUMES);
  manifest_.files[1].mode = 0600;
  ASSERT_OK_AND_ASSIGN(auto saved, Save());
  EXPECT_EQ(saved.fidelity(), torpor::v1::FIDELITY_MEMORY);
  EXPECT_EQ(saved.sent_bytes(), saved.stored_bytes());
  EXPECT_FALSE(saved.already_present());

  TempDir target;
  ASSERT_OK_AND_ASSIGN(auto loaded, Load(target, saved.manifest_sha256()));
  EXPECT_EQ(loaded.files_size(), 7);
  EXPECT_EQ(loaded.meta().SerializeAsString(), manifest_.meta.SerializeAsString());
  int64_t logical = 0;
  for (const ManifestFile& file : manifest_.files) {
    const std::string& name = file.file.name();
    EXPECT_TRUE(ReadFileFrom(target / name) == ReadFileFrom(source_ / name)) << name;
    struct stat st;
    ASSERT_EQ(stat((target / name).c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, file.mode) << name;
    logical += file.file.logical_bytes();
  }
  EXPECT_EQ(saved.logical_bytes(), logical);
  EXPECT_EQ(target.Entries(), 7u);
  EXPECT_LT(DiskBytes(target / "zeros"), 64 << 10);
}

TEST_F(RoundTripTest, NoFilesAtAll) {
  ASSERT_OK(Save());
  TempDir target;
  ASSERT_OK_AND_ASSIGN(auto loaded, Load(target));
  EXPECT_EQ(loaded.files_size(), 0);
  EXPECT_EQ(target.Entries(), 0u);
}

TEST_F(RoundTripTest, SavingTwiceGivesTheSameBytes) {
  Capture("a", RandomBytes(20 << 20, 7) + std::string(1 << 20, 'z'));
  ASSERT_OK_AND_ASSIGN(auto first, Save());
  std::string object = Object("snap/a.tsz");
  ASSERT_OK_AND_ASSIGN(auto second, Save());
  EXPECT_EQ(first.manifest_sha256(), second.manifest_sha256());
  EXPECT_TRUE(Object("snap/a.tsz") == object);
}

TEST_F(RoundTripTest, ACommittedSnapshotIsNeverReplaced) {
  Capture("a", "first");
  ASSERT_OK(Save());
  manifest_.meta.set_generation(8);
  EXPECT_THAT(Save(), HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));
  ASSERT_OK_AND_ASSIGN(auto there, ReadManifest(store_, "snap", ""));
  EXPECT_EQ(there.manifest.meta.generation(), 7);
}

TEST_F(RoundTripTest, LoadsOnlyWhatAFidelityNeeds) {
  Capture("pages", "p");
  Capture("volumes/v", "v", torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK(Save());
  TempDir target;
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  LoadArgs args = ArgsOfLoad(target, &transfer);
  args.fidelity = torpor::v1::FIDELITY_VOLUMES;
  ASSERT_OK_AND_ASSIGN(auto loaded, LoadSnapshot(args));
  ASSERT_EQ(loaded.files_size(), 1);
  EXPECT_FALSE(fs::exists(target / "pages"));
  EXPECT_EQ(ReadFileFrom(target / "volumes/v"), "v");
}

TEST_F(RoundTripTest, WhoDoesNotAcceptGetsNothing) {
  Capture("a", "x");
  ASSERT_OK(Save());
  TempDir target;
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  LoadArgs args = ArgsOfLoad(target, &transfer);
  args.accept = [](const Manifest&) {
    return Error(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY", "not ours");
  };
  EXPECT_THAT(LoadSnapshot(args), HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));
  EXPECT_EQ(target.Entries(), 0u);
}

TEST_F(RoundTripTest, TheStandardToolReadsOurObjects) {
  const std::string bytes = RandomBytes(100000, 5) + std::string(100000, '\0');
  Capture("a", bytes);
  ASSERT_OK(Save());
  WriteFileTo(source_ / "a.tsz", Object("snap/a.tsz"));
  ASSERT_EQ(system(fmt::format("zstd -dc {0}/a.tsz > {0}/plain", source_.path()).c_str()), 0);
  EXPECT_TRUE(ReadFileFrom(source_ / "plain") == bytes.substr(0, 25 * 4096));
}

// Many files and one large one, with the smallest budget there is.
TEST_F(RoundTripTest, TheSmallestBudgetIsEnough) {
  ResourceOptions options;
  options.memory_budget_bytes = kMemoryBudgetMin;
  resources_ = std::move(Resources::Create(options, Clock::Real())).value();
  Capture("large", RandomBytes(70 << 20, 1));
  Capture("middle", RandomBytes(20 << 20, 2));
  for (int i = 0; i < 40; ++i) Capture(fmt::format("small{}", i), RandomBytes(65536, 10 + i));
  ASSERT_OK_AND_ASSIGN(auto saved, Save());
  TempDir target;
  ASSERT_OK(Load(target, saved.manifest_sha256()));
  for (const ManifestFile& file : manifest_.files) {
    const std::string& name = file.file.name();
    EXPECT_TRUE(ReadFileFrom(target / name) == ReadFileFrom(source_ / name)) << name;
  }
  EXPECT_EQ(resources_->memory()->reserved(), 0);
}

// Starts a new measurement of the most memory that is resident; false where the kernel cannot.
bool ResetPeak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

int64_t ResidentBytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == key && in >> kib) return kib * 1024;
  }
  return -1;
}

TEST_F(RoundTripTest, AGigabyteTakesLittleMemoryAndKeepsItsHoles) {
  TempDir root;
  ASSERT_OK_AND_ASSIGN(auto files, objstore::FileStore::Open(root.path()));
  constexpr int64_t kBytes = int64_t{1} << 30;
  const std::string data = RandomBytes(4 << 20, 11);
  {
    UniqueFd fd(open((source_ / "pages").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(ftruncate(fd.get(), kBytes), 0);
    for (int64_t at : {int64_t{0}, kBytes / 2, kBytes - (4 << 20)}) {
      ASSERT_EQ(pwrite(fd.get(), data.data(), data.size(), at), static_cast<ssize_t>(data.size()));
    }
  }
  manifest_.files.push_back(SampleFile("pages", kBytes));
  ASSERT_TRUE(ResetPeak());
  const int64_t before = ResidentBytes("VmRSS:");
  ASSERT_GT(before, 0);
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
  SaveArgs save;
  save.source = &source_.fd();
  save.manifest = manifest_;
  save.store = files.get();
  save.prefix = "big";
  save.resources = resources_.get();
  save.transfer = &transfer;
  ASSERT_OK_AND_ASSIGN(auto saved, SaveSnapshot(std::move(save)));
  TempDir target;
  LoadArgs load = ArgsOfLoad(target, &transfer);
  load.store = files.get();
  load.prefix = "big";
  ASSERT_OK_AND_ASSIGN(auto loaded, LoadSnapshot(load));
#ifndef TORPOR_THREAD_SANITIZER  // whose shadow memory counts as ours
  EXPECT_LT(ResidentBytes("VmHWM:") - before, 64 << 20);
#endif

  EXPECT_EQ(loaded.files(0).populated_bytes(), 12 << 20);
  EXPECT_LT(saved.stored_bytes(), 13 << 20);
  EXPECT_EQ(fs::file_size(target / "pages"), static_cast<uintmax_t>(kBytes));
  EXPECT_LT(DiskBytes(target / "pages"), 13 << 20);
  UniqueFd fd(open((target / "pages").c_str(), O_RDONLY));
  std::string back(data.size(), '\0');
  for (int64_t at : {int64_t{0}, kBytes / 2, kBytes - (4 << 20)}) {
    ASSERT_EQ(pread(fd.get(), back.data(), back.size(), at), static_cast<ssize_t>(back.size()));
    EXPECT_TRUE(back == data) << at;
  }
}

}  // namespace
}  // namespace torpor::snapshot
