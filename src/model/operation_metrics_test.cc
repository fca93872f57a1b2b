#include "model/operation_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "base/time.h"

namespace torpor {
namespace {

using ::testing::HasSubstr;
using torpor::v1::Operation;

Operation Ended(const std::string& method, const Status& status) {
  Operation operation;
  operation.set_method(method);
  operation.set_op_id("00000000-0000-4000-8000-000000000001");
  operation.mutable_start_time()->set_seconds(100);
  operation.mutable_end_time()->set_seconds(102);
  operation.set_state(status.ok() ? Operation::STATE_SUCCEEDED : Operation::STATE_FAILED);
  if (!status.ok()) operation.mutable_error()->ParseFromString(SerializeStatus(status));
  auto* late = operation.add_phases();
  late->set_name("probe");
  late->set_start_ms(40);
  late->set_duration_ms(3);
  auto* early = operation.add_phases();
  early->set_name("restore");
  early->set_duration_ms(41.25);
  return operation;
}

TEST(OperationMetrics, CountsByOutcomeAndReasonAndLogsThePhases) {
  MetricRegistry registry;
  OperationMetrics metrics(&registry, "node");
  testing::internal::CaptureStderr();
  metrics.Ended(Ended("StartActor", OkStatus()));
  metrics.Ended(Ended("StartActor", Error(Code::kResourceExhausted, "DISK_FULL", "full")));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("\"phases_ms\":\"restore 41.2, probe 3.0\""));
  EXPECT_THAT(log, HasSubstr("\"reason\":\"DISK_FULL\""));
  EXPECT_THAT(log, HasSubstr("\"ms\":\"2000.0\""));
  const std::string text = registry.Render();
  EXPECT_THAT(text, HasSubstr("torpor_node_operation_seconds_count{op=\"StartActor\","
                              "outcome=\"ok\",reason=\"\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("torpor_node_operation_seconds_sum{op=\"StartActor\","
                              "outcome=\"failed\",reason=\"DISK_FULL\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("torpor_node_phase_seconds_count{op=\"StartActor\","
                              "phase=\"probe\"} 2\n"));
}

TEST(OperationMetrics, WithoutARegistryItIsSilent) {
  testing::internal::CaptureStderr();
  OperationMetrics().Ended(Ended("StartActor", OkStatus()));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace torpor
