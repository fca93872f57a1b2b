#include "router/park/wake_progress.h"

#include <gtest/gtest.h>

#include "torpor/v1/ops.pb.h"

namespace torpor::router {
namespace {

torpor::v1::ExplainActorResponse Told(torpor::v1::Verb verb, const std::string& step,
                                      const std::string& source) {
  torpor::v1::ExplainActorResponse response;
  torpor::v1::OperationReport& report = *response.add_reports();
  report.set_verb(verb);
  report.set_step(step);
  report.set_total_ms(31'250.5);
  if (!source.empty()) {
    torpor::v1::Choice& choice = *report.add_choices();
    choice.set_question("source");
    choice.set_answer(source);
  }
  torpor::v1::Choice& worker = *report.add_choices();
  worker.set_question("worker");
  worker.set_answer("gvisor-0");
  return response;
}

TEST(WakeProgressTest, OnlyAWakeUnderWayHasOne) {
  EXPECT_FALSE(ProgressOf({}).has_value());
  EXPECT_FALSE(ProgressOf(Told(torpor::v1::VERB_RESUME, "", "durable")).has_value()) << "ended";
  EXPECT_FALSE(ProgressOf(Told(torpor::v1::VERB_SUSPEND, "UPLOAD", "")).has_value());
  auto progress = ProgressOf(Told(torpor::v1::VERB_RESUME, "START", "durable"));
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->phase, "start");
  EXPECT_EQ(progress->source, "durable");
  EXPECT_EQ(progress->elapsed, std::chrono::microseconds(31'250'500));
  EXPECT_FALSE(progress->has_own_budget);
}

TEST(WakeProgressTest, IsColdUnlessTheNodeHasTheSnapshot) {
  struct {
    const char* source;
    bool cold;
  } cases[] = {
      {"local", false}, {"durable", true}, {"shared", true}, {"cold boot", true}, {"", false}};
  for (const auto& c : cases) {
    EXPECT_EQ(ProgressOf(Told(torpor::v1::VERB_RESUME, "START", c.source))->cold, c.cold)
        << c.source;
  }
}

}  // namespace
}  // namespace torpor::router
