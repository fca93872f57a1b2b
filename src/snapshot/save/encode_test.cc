#include "snapshot/save/encode.h"

#include "base/testing/matchers.h"
#include "snapshot/testing/hooked_store.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/testing/tsz_sample.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kMiB = 1 << 20;

class EncodeTest : public testing::Test {
 protected:
  void Use(size_t threads) {
    ResourceOptions options;
    options.threads_max = threads;
    resources_ = std::move(Resources::Create(options, Clock::Real())).value();
  }

  void Open(const std::string& bytes) {
    WriteFileTo(dir_ / "f", bytes);
    Reopen();
  }
  void Reopen() {
    fd_ = UniqueFd(open((dir_ / "f").c_str(), O_RDWR));
    struct stat st;
    ASSERT_EQ(fstat(fd_.get(), &st), 0);
    args_.fd = fd_.get();
    args_.logical_bytes = st.st_size;
  }
  void Plan() {
    auto totals = ScanFile(fd_.get(), args_.logical_bytes, transfer_);
    ASSERT_OK(totals);
    args_.bound = BoundOf(*totals);
    auto plan = PlanUpload(args_.bound, {}, resources_->memory()->total());
    ASSERT_OK(plan);
    args_.plan = *plan;
  }
  StatusOr<EncodedFile> Encode() {
    args_.resources = resources_.get();
    args_.transfer = &transfer_;
    ASSIGN_OR_RETURN(
        ByteBudget::Hold hold,
        resources_->memory()->Admit(Urgency::kUpload, args_.plan.minimum_bytes, transfer_));
    args_.hold = &hold;
    ObjectWriter writer(&store_, "k", args_.plan,
                        {resources_->buffers(), resources_->senders(), &hold});
    ASSIGN_OR_RETURN(EncodedFile encoded, EncodeFile(args_, &writer));
    RETURN_IF_ERROR(writer.Finish());
    EXPECT_LE(writer.bytes(), args_.bound.object_bytes);
    return encoded;
  }
  std::string Object() { return objstore::ReadAll(store_, "k", 1 << 30).value(); }

  TempDir dir_{"/dev/shm"};
  UniqueFd fd_;
  EncodeArgs args_;
  std::unique_ptr<Resources> resources_ = std::move(Resources::Create({}, Clock::Real())).value();
  Transfer transfer_{Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1)};
  HookedStore store_;
};

// Pages of data and of zeros in every mixture, one block to many, one thread to many.
TEST_F(EncodeTest, WhatIsWrittenIsRead) {
  uint64_t state = 7;
  auto next = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  for (int round = 0; round < 12; ++round) {
    Use(round % 3 == 0 ? 1 : 4);
    std::string file;
    const size_t pieces = 1 + next() % 40;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t bytes = (1 + next() % 30) * (next() % 4 == 0 ? 1000 : 4096);
      file += next() % 2 == 0 ? std::string(bytes, '\0') : RandomBytes(bytes, next());
    }
    if (round % 2 == 0) file += RandomBytes(3 * kMiB, next());
    Open(file);
    Plan();
    ASSERT_OK_AND_ASSIGN(EncodedFile encoded, Encode());
    ASSERT_OK_AND_ASSIGN(std::string back, ReadTsz(Object(), encoded.index_sha256,
                                                   static_cast<int64_t>(file.size())));
    EXPECT_TRUE(back == file) << round;
    EXPECT_EQ(resources_->memory()->reserved(), 0);
  }
}

TEST_F(EncodeTest, ZeroPagesAreDropped) {
  std::string file(64 << 12, 'x');
  for (size_t page = 0; page < 64; page += 2) file.replace(page << 12, 4096, 4096, '\0');
  file += std::string(100, '\0');  // a piece of a page at the end
  Open(file);
  Plan();
  ASSERT_OK_AND_ASSIGN(EncodedFile encoded, Encode());
  EXPECT_EQ(encoded.populated_bytes, 32 << 12);
  ASSERT_OK_AND_ASSIGN(TszIndex index, ReadTszIndex(Object(), encoded.index_sha256,
                                                    static_cast<int64_t>(file.size())));
  EXPECT_EQ(index.extents.size(), 32u);
  EXPECT_EQ(index.extents[0], (TszExtent{4096, 4096, 0, 0}));
}

TEST_F(EncodeTest, TheSameFileGivesTheSameObjectHoweverManyThreads) {
  const std::string file = RandomBytes(20 * kMiB, 3) + std::string(kMiB, 'z');
  std::string first;
  for (size_t threads : {1, 2, 5}) {
    Use(threads);
    Open(file);
    Plan();
    EXPECT_EQ(args_.plan.path, UploadPath::kMultipart);
    ASSERT_OK(Encode());
    if (first.empty()) first = Object();
    EXPECT_TRUE(Object() == first);
  }
}

TEST_F(EncodeTest, F7_AFileThatGrewFailsAndANewPlanSucceeds) {
  for (int64_t bytes : {int64_t{4096}, 3 * kMiB}) {
    Open("");
    ASSERT_EQ(ftruncate(fd_.get(), 64 * kMiB), 0);
    const std::string data = RandomBytes(static_cast<size_t>(bytes), 1);
    ASSERT_EQ(pwrite(fd_.get(), data.data(), data.size(), 0), bytes);
    Reopen();
    Plan();
    // What was a hole when the plan was made has data when it is read.
    ASSERT_EQ(pwrite(fd_.get(), data.data(), data.size(), 32 * kMiB), bytes);
    EXPECT_THAT(Encode(), HasReason(Code::kInternal, "INTERNAL"));
    EXPECT_EQ(objstore::ListAll(store_, "", 10).value().size(), 0u);
    EXPECT_EQ(resources_->memory()->reserved(), 0);
    Plan();
    ASSERT_OK_AND_ASSIGN(EncodedFile encoded, Encode());
    EXPECT_EQ(encoded.populated_bytes, 2 * bytes);
    ASSERT_OK(store_.Delete("k"));
  }
}

TEST_F(EncodeTest, ACancelledOneEndsAndAborts) {
  Open(RandomBytes(60 * kMiB, 1));
  Plan();
  store_.on_part = [&](const std::string&, int) {
    transfer_.Cancel();
    return OkStatus();
  };
  EXPECT_THAT(Encode(), HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_EQ(store_.uploads_aborted, 1);
  EXPECT_EQ(resources_->memory()->reserved(), 0);
}

// With the smallest budget and another holder of all but the minimum, it goes on block by block.
TEST_F(EncodeTest, TheMinimumIsEnough) {
  Use(4);
  const std::string file = RandomBytes(40 * kMiB, 9);
  Open(file);
  Plan();
  ByteBudget* memory = resources_->memory();
  ASSERT_OK_AND_ASSIGN(
      ByteBudget::Hold rest,
      memory->Admit(Urgency::kUpload, memory->total() - args_.plan.minimum_bytes, transfer_));
  ASSERT_OK_AND_ASSIGN(EncodedFile encoded, Encode());
  ASSERT_OK_AND_ASSIGN(std::string back,
                       ReadTsz(Object(), encoded.index_sha256, static_cast<int64_t>(file.size())));
  EXPECT_TRUE(back == file);
}

}  // namespace
}  // namespace torpor::snapshot
