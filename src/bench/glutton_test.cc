#include "bench/glutton.h"

#include <gtest/gtest.h>

#include "bench/testing/fake_glutton.h"

namespace torpor::bench {
namespace {

constexpr int64_t kPage = FakeGlutton::kPage;

class GluttonTest : public ::testing::Test {
 protected:
  Glutton Make(Glutton::Verify verify) {
    return Glutton(
        [this](const std::string& path, const std::string& body) { return fake_.Post(path, body); },
        verify);
  }
  FakeGlutton fake_;
};

TEST_F(GluttonTest, HealthyMemoryPasses) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  EXPECT_FALSE(glutton.verifies_memory());
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  EXPECT_TRUE(glutton.verifies_memory());
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(glutton.Read(-1).ok());
    EXPECT_TRUE(glutton.Churn(4 * kPage, "random").ok());
    EXPECT_TRUE(glutton.Read(2 * kPage).ok());
  }
  Outcome outcome = glutton.Read(-1);
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.server_ms, 1.5);
}

TEST_F(GluttonTest, ChangedByteIsCorruption) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  ASSERT_TRUE(glutton.Read(-1).ok());
  fake_.pages[3] ^= 1;
  Outcome outcome = glutton.Read(-1);
  EXPECT_FALSE(outcome.ok());
  EXPECT_TRUE(outcome.corrupt);
}

TEST_F(GluttonTest, OlderStateIsCorruption) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  FakeGlutton before = fake_;
  ASSERT_TRUE(glutton.Churn(4 * kPage, "random").ok());
  fake_ = before;  // what was read after the write is unknown: only the cursor can tell
  Outcome outcome = glutton.Churn(4 * kPage, "random");
  EXPECT_TRUE(outcome.corrupt);
  EXPECT_NE(std::string(outcome.status.message()).find("cursor"), std::string::npos);
}

TEST_F(GluttonTest, FreshProcessIsCorruption) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  fake_.pages.clear();
  EXPECT_TRUE(glutton.Read(-1).corrupt);
  EXPECT_TRUE(glutton.Churn(kPage, "random").corrupt);
}

TEST_F(GluttonTest, ShorterMemoryIsCorruption) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  fake_.pages.resize(9);
  EXPECT_TRUE(glutton.Read(-1).corrupt);
}

TEST_F(GluttonTest, NothingIsCheckedUnlessAsked) {
  Glutton glutton = Make(Glutton::Verify::kOff);
  ASSERT_TRUE(glutton.Fill(10 * kPage, "random").ok());
  ASSERT_TRUE(glutton.Read(-1).ok());
  fake_.pages[3] ^= 1;
  fake_.echo_suffix = "!";
  EXPECT_TRUE(glutton.Read(-1).ok());
  EXPECT_TRUE(glutton.Ping("x").ok());
}

TEST_F(GluttonTest, WrongEchoIsAFailureButNoCorruption) {
  Glutton glutton = Make(Glutton::Verify::kEcho);
  EXPECT_TRUE(glutton.Ping("x").ok());
  fake_.echo_suffix = "!";
  Outcome outcome = glutton.Ping("x");
  EXPECT_FALSE(outcome.ok());
  EXPECT_FALSE(outcome.corrupt);
}

TEST_F(GluttonTest, ReasonOfTheRouterExplainsAFailure) {
  Glutton glutton = Make(Glutton::Verify::kMemory);
  fake_.next_error = "STILL_WAKING";
  Outcome outcome = glutton.Ping("x");
  EXPECT_EQ(ReasonOf(outcome.status), "STILL_WAKING");
  EXPECT_FALSE(outcome.unexplained);
}

TEST(JudgeAnswerTest, AnErrorWithoutAReasonIsUnexplained) {
  HttpAnswer answer;
  answer.status = 502;
  Outcome outcome;
  JudgeAnswer(answer, &outcome);
  EXPECT_FALSE(outcome.ok());
  EXPECT_TRUE(outcome.unexplained);

  answer.headers["x-server-elapsed-us"] = "12";  // the workload's own error
  Outcome own;
  JudgeAnswer(answer, &own);
  EXPECT_FALSE(own.ok());
  EXPECT_FALSE(own.unexplained);
}

TEST(GluttonTransportTest, NoAnswerIsUnexplained) {
  Glutton glutton(
      [](const std::string&, const std::string&) -> StatusOr<HttpAnswer> {
        return Status(Code::kUnavailable, "reset");
      },
      Glutton::Verify::kMemory);
  EXPECT_TRUE(glutton.Ping("x").unexplained);
}

}  // namespace
}  // namespace torpor::bench
