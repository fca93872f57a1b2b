#include "snapshot/save/object_writer.h"

#include <thread>

#include "base/testing/matchers.h"
#include "snapshot/testing/hooked_store.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/transfer/resources.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kMiB = 1 << 20;

class ObjectWriterTest : public testing::Test {
 protected:
  // Small parts, so that tests are quick.
  UploadPlan Parts(int64_t object_bytes_max) {
    UploadPlan plan;
    plan.path = UploadPath::kMultipart;
    plan.object_bytes_max = object_bytes_max;
    plan.part_bytes = objstore::kPartBytesMin;
    plan.parts_at_once_max = 4;
    plan.held_bytes_max = 30 * kMiB;
    return plan;
  }
  ByteBudget::Hold Admit(int64_t bytes) {
    auto hold = resources_->memory()->Admit(Urgency::kUpload, bytes, transfer_);
    EXPECT_OK(hold);
    return std::move(hold).value();
  }
  WriterTools Tools(ByteBudget::Hold* hold) {
    return {resources_->buffers(), resources_->senders(), hold};
  }

  std::unique_ptr<Resources> resources_ = std::move(Resources::Create({}, Clock::Real())).value();
  Transfer transfer_{Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1)};
  HookedStore store_;
};

TEST_F(ObjectWriterTest, PartsArriveInOrder) {
  const std::string data = RandomBytes(23 * kMiB, 1) + "odd";
  for (bool threads : {false, true}) {
    ByteBudget::Hold hold = Admit(objstore::kPartBytesMin);
    ObjectWriter writer(&store_, "k", Parts(30 * kMiB),
                        threads ? Tools(&hold) : WriterTools{resources_->buffers()});
    for (size_t at = 0; at < data.size(); at += 700001) {
      ASSERT_OK(writer.Append(std::string_view(data).substr(at, 700001)));
      EXPECT_LE(hold.bytes(), 20 * kMiB);
    }
    ASSERT_OK(writer.Finish());
    EXPECT_EQ(writer.bytes(), static_cast<int64_t>(data.size()));
    EXPECT_TRUE(objstore::ReadAll(store_, "k", 1 << 30).value() == data);
    ASSERT_OK(store_.Delete("k"));
  }
}

TEST_F(ObjectWriterTest, AWholeNumberOfPartsHasNoEmptyOne) {
  ByteBudget::Hold hold = Admit(objstore::kPartBytesMin);
  ObjectWriter writer(&store_, "k", Parts(30 * kMiB), Tools(&hold));
  std::atomic<int> parts{0};
  store_.on_part = [&](const std::string&, int number) {
    EXPECT_LE(number, 2);
    ++parts;
    return OkStatus();
  };
  const std::string data = RandomBytes(10 * kMiB, 1);
  ASSERT_OK(writer.Append(data));
  ASSERT_OK(writer.Finish());
  EXPECT_EQ(parts, 2);
}

TEST_F(ObjectWriterTest, F7_MoreThanThePlanIsAnError) {
  ByteBudget::Hold hold = Admit(objstore::kPartBytesMin);
  {
    ObjectWriter writer(&store_, "k", Parts(11 * kMiB), Tools(&hold));
    ASSERT_OK(writer.Append(std::string(11 * kMiB, 'x')));
    EXPECT_THAT(writer.Append("x"), HasReason(Code::kInternal, "INTERNAL"));
  }
  UploadPlan single;
  single.object_bytes_max = 1000;
  single.part_bytes = 4096;
  ObjectWriter writer(&store_, "k", single, Tools(&hold));
  ASSERT_OK(writer.Append(std::string(1000, 'x')));
  EXPECT_THAT(writer.Append("x"), HasReason(Code::kInternal, "INTERNAL"));
  EXPECT_THAT(writer.Space(1).status(), HasReason(Code::kInternal, "INTERNAL"));
  EXPECT_EQ(store_.uploads_open, 0);
  EXPECT_EQ(objstore::ListAll(store_, "", 10).value().size(), 0u);
}

TEST_F(ObjectWriterTest, AFailedPartEndsTheUploadAndAborts) {
  ByteBudget::Hold hold = Admit(objstore::kPartBytesMin);
  store_.on_part = [](const std::string&, int number) {
    return number == 3 ? Error(Code::kPermissionDenied, "STORE_DENIED", "403") : OkStatus();
  };
  {
    ObjectWriter writer(&store_, "k", Parts(100 * kMiB), Tools(&hold));
    Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) status = writer.Append(std::string(kMiB, 'x'));
    if (status.ok()) status = writer.Finish();
    EXPECT_THAT(status, HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  }
  EXPECT_EQ(store_.uploads_aborted, 1);
  EXPECT_EQ(store_.uploads_open, 0);
}

TEST_F(ObjectWriterTest, PartsInFlightStayInTheBudgetAndAreGivenBack) {
  ByteBudget::Hold hold = Admit(objstore::kPartBytesMin);
  Mutex mu;
  CondVar changed;
  bool open = false;
  int waiting = 0;
  store_.on_part = [&](const std::string&, int) {
    MutexLock lock(&mu);
    ++waiting;
    changed.SignalAll();
    while (!open) changed.Wait(&mu);
    return OkStatus();
  };
  ObjectWriter writer(&store_, "k", Parts(100 * kMiB), Tools(&hold));
  std::thread opener([&] {
    MutexLock lock(&mu);
    // The fourth buffer is being filled while three are on their way.
    while (waiting < 3) changed.Wait(&mu);
    open = true;
    changed.SignalAll();
  });
  for (int i = 0; i < 40; ++i) ASSERT_OK(writer.Append(std::string(kMiB, 'x')));
  opener.join();
  EXPECT_EQ(hold.bytes(), 20 * kMiB);
  // Somebody needs nearly everything.
  std::thread other([&] {
    auto large = resources_->memory()->Admit(Urgency::kUpload,
                                             resources_->memory()->total() - 15 * kMiB, transfer_);
    EXPECT_OK(large);
  });
  while (resources_->memory()->waiting() == 0) std::this_thread::yield();
  while (resources_->memory()->waiting() > 0) writer.GiveBackSurplus();
  other.join();
  EXPECT_LE(hold.bytes(), 15 * kMiB);
  ASSERT_OK(writer.Finish());
  EXPECT_EQ(store_.Head("k")->bytes, 40 * kMiB);
}

}  // namespace
}  // namespace torpor::snapshot
