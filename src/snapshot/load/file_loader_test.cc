#include "snapshot/load/file_loader.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/testing/matchers.h"
#include "snapshot/load/fetch_plan.h"
#include "snapshot/testing/hooked_store.h"
#include "snapshot/testing/sample.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/testing/tsz_sample.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kMiB = 1 << 20;

class FileLoaderTest : public testing::Test {
 protected:
  void Store(const std::string& file, int64_t block_bytes = kTszBlockBytesMin) {
    StoreObject(file, MakeTsz(file, block_bytes));
  }
  void StoreObject(const std::string& file, const TszObject& object) {
    ASSERT_OK(store_.Put("k", object.bytes));
    content_ = file;
    args_.file = SampleFile("f", static_cast<int64_t>(file.size()));
    args_.file.file.set_populated_bytes(object.populated_bytes);
    args_.file.object =
        ManifestObject{"k", static_cast<int64_t>(object.bytes.size()), object.index_sha256};
  }
  Status Load(Transfer* transfer = nullptr) {
    Transfer own(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    args_.transfer = transfer != nullptr ? transfer : &own;
    args_.resources = resources_.get();
    StagedFiles staged(&target_.fd());
    args_.staged = &staged;
    args_.read = ReaderOf(&store_, "k", args_.file.object->bytes, {});
    RETURN_IF_ERROR(LoadFile(args_));
    EXPECT_EQ(args_.transfer->done_bytes(), args_.file.object->bytes);
    return staged.Commit();
  }
  void ExpectContent() {
    EXPECT_TRUE(ReadFileFrom(target_ / "f") == content_);
    std::filesystem::remove(target_ / "f");
    EXPECT_EQ(resources_->memory()->reserved(), 0);
  }

  TempDir target_{"/dev/shm"};
  HookedStore store_;
  std::unique_ptr<Resources> resources_ = std::move(Resources::Create({}, Clock::Real())).value();
  FileLoadArgs args_;
  std::string content_;
};

TEST_F(FileLoaderTest, SmallFilesTakeOneRequest) {
  std::atomic<int> gets{0};
  store_.on_get = [&](const std::string&, objstore::ByteRange) {
    ++gets;
    return OkStatus();
  };
  for (const std::string& file : {std::string(), std::string("x"), std::string(300000, '\0'),
                                  RandomBytes(50000, 1), std::string(1 << 20, 'a')}) {
    Store(file);
    gets = 0;
    ASSERT_OK(Load());
    EXPECT_EQ(gets, 1);
    ExpectContent();
  }
}

TEST_F(FileLoaderTest, LargeFilesTakeRanges) {
  std::string file = RandomBytes(30 * kMiB, 1);
  for (size_t at = 0; at < file.size(); at += 100 << 12) file.replace(at, 7 << 12, 7 << 12, '\0');
  Store(file, kTszBlockBytesDefault);
  std::atomic<int64_t> most{0};
  store_.on_get = [&](const std::string&, objstore::ByteRange range) {
    if (range.length > most) most = range.length;
    return OkStatus();
  };
  ASSERT_OK(Load());
  EXPECT_LE(most, kFetchBytesMax);
  EXPECT_LT(DiskBytes(target_ / "f"), 29 * kMiB);
  ExpectContent();
}

TEST_F(FileLoaderTest, AnIndexThatDoesNotFitTheTailIsReadWhole) {
  // Extents of odd lengths, so that the index does not compress to nothing.
  TszIndexWriter index;
  std::string file;
  std::string populated;
  uint64_t state = 1;
  for (int i = 0; i < 60000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    file.append(1 + (state >> 56), '\0');
    const std::string data(1 + (state >> 48 & 255), static_cast<char>('a' + i % 20));
    index.AddExtent(static_cast<int64_t>(file.size()), static_cast<int64_t>(data.size()));
    file += data;
    populated += data;
  }
  StoreObject(file, MakeTszOf(populated, std::move(index), static_cast<int64_t>(file.size()),
                              kTszBlockBytesMin));
  const std::string object = objstore::ReadAll(store_, "k", 1 << 30).value();
  ASSERT_OK_AND_ASSIGN(TszFooter footer,
                       DecodeTszFooter(std::string_view(object).substr(object.size() - 48),
                                       static_cast<int64_t>(object.size())));
  EXPECT_GT(footer.index_bytes, kTszTailBytes);
  ASSERT_OK(Load());
  ExpectContent();
}

// The first guess at the memory is too small and there is nothing to grow by.
TEST_F(FileLoaderTest, ALargeIndexIsAskedForAgain) {
  std::string file;
  for (int i = 0; i < 6000; ++i) file += std::string(4096, '\0') + std::string(4096, 'x');
  Store(file, kTszBlockBytesDefault);
  args_.file.file.set_populated_bytes(1);
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  ByteBudget* memory = resources_->memory();
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold rest,
                       memory->Admit(Urgency::kUpload, memory->total() - 200 * 1024, transfer));
  std::thread other([&] {
    // Somebody waits, so nobody may grow; then there is room.
    while (memory->waiting() == 0) std::this_thread::yield();
    rest.Reset();
  });
  ASSERT_OK(Load());
  other.join();
  ExpectContent();
}

TEST_F(FileLoaderTest, TheMinimumIsEnough) {
  Store(RandomBytes(20 * kMiB, 3), kTszBlockBytesDefault);
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  ByteBudget* memory = resources_->memory();
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold rest,
                       memory->Admit(Urgency::kUpload, memory->total() - 10 * kMiB, transfer));
  ASSERT_OK(Load());
  rest.Reset();
  ExpectContent();
}

TEST_F(FileLoaderTest, AFailedRangeEndsAll) {
  Store(RandomBytes(30 * kMiB, 1), kTszBlockBytesDefault);
  std::atomic<int> gets{0};
  store_.on_get = [&](const std::string&, objstore::ByteRange) {
    return ++gets == 3 ? Error(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "503")
                       : OkStatus();
  };
  EXPECT_THAT(Load(), HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
  EXPECT_EQ(target_.Entries(), 0u);
  EXPECT_EQ(resources_->memory()->reserved(), 0);
}

TEST_F(FileLoaderTest, ADamagedBlockIsNamedByItsOffset) {
  Store(RandomBytes(10 * kMiB, 1), kTszBlockBytesDefault);
  std::string bytes = objstore::ReadAll(store_, "k", 1 << 30).value();
  bytes[5 * kMiB] = static_cast<char>(bytes[5 * kMiB] ^ 4);
  ASSERT_OK(store_.Put("k", bytes));
  Status status = Load();
  EXPECT_THAT(status, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  // Noise does not compress: each block is its size and a few bytes.
  EXPECT_THAT(status, MessageHas("object offset 419"));
  EXPECT_THAT(status, MessageHas("the sha256 of the block"));
  EXPECT_EQ(target_.Entries(), 0u);
}

}  // namespace
}  // namespace torpor::snapshot
