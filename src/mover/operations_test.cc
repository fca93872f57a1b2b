#include "mover/operations.h"

#include <thread>

#include "base/testing/matchers.h"
#include "torpor/v1/mover.pb.h"

namespace torpor::mover {
namespace {

using torpor::v1::Operation;

constexpr char kId[] = "11111111-1111-4111-8111-111111111111";

torpor::v1::FetchRequest Request(const std::string& op_id = kId) {
  torpor::v1::FetchRequest request;
  request.mutable_op()->set_op_id(op_id);
  request.mutable_op()->set_actor_uid("actor");
  request.mutable_op()->set_generation(3);
  return request;
}

class OperationsTest : public testing::Test {
 protected:
  StatusOr<Operation> Run(const torpor::v1::FetchRequest& request, const Operations::Work& work,
                          const char* method = "Fetch") {
    return operations_.Run(method, request.op(), request, std::chrono::minutes(1), work);
  }
  StatusOr<Operation> Get(const std::string& id, bool refuse = false) {
    torpor::v1::GetOperationRequest request;
    request.set_op_id(id);
    request.set_refuse_if_unknown(refuse);
    return operations_.Get(request);
  }

  FakeClock clock_;
  Operations operations_{&clock_};
};

TEST_F(OperationsTest, OutcomesAreKeptAndRepeated) {
  int ran = 0;
  auto work = [&](RunningOperation* op) {
    ++ran;
    PhaseRecorder::Scope phase(op->phases(), "fetch");
    op->transfer()->AddTotal(10);
    op->transfer()->Advance(10);
    op->result()->mutable_fetch()->set_fetched_bytes(10);
    return OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(Operation first, Run(Request(), work));
  EXPECT_EQ(first.state(), Operation::STATE_SUCCEEDED);
  EXPECT_EQ(first.method(), "Fetch");
  EXPECT_EQ(first.generation(), 3);
  EXPECT_EQ(first.fetch().fetched_bytes(), 10);
  EXPECT_EQ(first.done_bytes(), 10);
  ASSERT_EQ(first.phases_size(), 1);
  EXPECT_EQ(first.phases(0).component(), "mover");
  // Trace and timeout are no part of what was asked.
  torpor::v1::FetchRequest again = Request();
  again.mutable_op()->set_traceparent("x");
  again.mutable_op()->mutable_timeout()->set_seconds(5);
  ASSERT_OK_AND_ASSIGN(Operation second, Run(again, work));
  EXPECT_EQ(second.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(ran, 1);
  ASSERT_OK_AND_ASSIGN(Operation got, Get(kId));
  EXPECT_EQ(got.SerializeAsString(), first.SerializeAsString());
}

TEST_F(OperationsTest, AnotherBodyOrMethodIsRefused) {
  auto work = [](RunningOperation*) { return OkStatus(); };
  ASSERT_OK(Run(Request(), work));
  torpor::v1::FetchRequest other = Request();
  other.set_target_dir("elsewhere");
  EXPECT_THAT(Run(other, work), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(Run(Request(), work, "Upload"), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(Run(Request("no uuid"), work), HasCode(Code::kInvalidArgument));
  torpor::v1::FetchRequest forever = Request();
  forever.mutable_op()->mutable_timeout()->set_seconds(-1);
  EXPECT_THAT(Run(forever, work), HasCode(Code::kInvalidArgument));
}

TEST_F(OperationsTest, FailuresCarryTheirReason) {
  ASSERT_OK_AND_ASSIGN(Operation op, Run(Request(), [](RunningOperation* running) {
                         running->result()->mutable_fetch()->set_fetched_bytes(1);
                         return Error(Code::kDataLoss, "SNAPSHOT_CORRUPT", "broken");
                       }));
  EXPECT_EQ(op.state(), Operation::STATE_FAILED);
  EXPECT_EQ(op.result_case(), Operation::RESULT_NOT_SET);
  Status error = ParseStatus(op.error().SerializeAsString(), Code::kInternal, "");
  EXPECT_THAT(error, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
}

TEST_F(OperationsTest, ARepeatedCallJoinsAndCancelEndsIt) {
  std::atomic<bool> started{false};
  auto work = [&](RunningOperation* op) {
    started = true;
    while (op->transfer()->Check().ok()) std::this_thread::yield();
    return op->transfer()->Check();
  };
  auto call = [&] {
    auto op = Run(Request(), work);
    EXPECT_OK(op);
    EXPECT_EQ(op->state(), Operation::STATE_FAILED);
    EXPECT_EQ(op->error().code(), static_cast<int>(Code::kCancelled));
  };
  std::thread first(call);
  while (!started) std::this_thread::yield();
  std::thread second(call);
  ASSERT_OK_AND_ASSIGN(Operation running, Get(kId));
  EXPECT_EQ(running.state(), Operation::STATE_RUNNING);
  ASSERT_OK(operations_.Cancel(kId));
  first.join();
  second.join();
  ASSERT_OK_AND_ASSIGN(Operation ended, operations_.Cancel(kId));
  EXPECT_EQ(ended.state(), Operation::STATE_FAILED);
}

TEST_F(OperationsTest, GetWaitsForTheEnd) {
  std::atomic<bool> started{false};
  std::thread worker([&] {
    EXPECT_OK(Run(Request(), [&](RunningOperation* op) {
      started = true;
      while (op->transfer()->Check().ok()) std::this_thread::yield();
      return OkStatus();
    }));
  });
  while (!started) std::this_thread::yield();
  torpor::v1::GetOperationRequest request;
  request.set_op_id(kId);
  request.mutable_wait()->set_seconds(60);
  std::thread waiter([&] {
    auto op = operations_.Get(request);
    EXPECT_OK(op);
    EXPECT_EQ(op->state(), Operation::STATE_SUCCEEDED);
  });
  operations_.CancelAll();
  waiter.join();
  worker.join();
}

TEST_F(OperationsTest, UnknownAndRefusedIds) {
  EXPECT_THAT(Get(kId), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_THAT(operations_.Cancel(kId), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_THAT(Get(kId, /*refuse=*/true), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_THAT(Run(Request(),
                  [](RunningOperation*) {
                    ADD_FAILURE() << "a refused operation ran";
                    return OkStatus();
                  }),
              HasReason(Code::kAborted, "SUPERSEDED"));
  EXPECT_THAT(Get(kId), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
}

TEST_F(OperationsTest, OutcomesAreForgottenAfterADay) {
  int ran = 0;
  auto work = [&](RunningOperation*) {
    ++ran;
    return OkStatus();
  };
  ASSERT_OK(Run(Request(), work));
  clock_.Advance(kOutcomeAge + std::chrono::seconds(1));
  ASSERT_OK(Run(Request("22222222-1111-4111-8111-111111111111"), work));
  EXPECT_THAT(Get(kId), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  ASSERT_OK(Run(Request(), work));
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace torpor::mover
