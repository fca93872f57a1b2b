#include "agent/control_link.h"

#include <gtest/gtest.h>

#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

std::unique_ptr<ControlLink> Link(TestNode& node) {
  return std::make_unique<ControlLink>(ControlLinkOptions{"unix:/x/agent.sock", "1"}, &node.agent(),
                                       &node.registry(), &node.workers(), Clock::Real());
}

TEST(ControlLinkTest, RegistersRenewsAndTellsAboutWorkers) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto link = Link(node);
  node.registry().WaitForRegistrations(1);
  auto registration = node.registry().last_registration();
  EXPECT_EQ(registration.agent_address(), "unix:/x/agent.sock");
  ASSERT_EQ(registration.workers_size(), 1);
  EXPECT_EQ(registration.workers(0).worker_uid(), node.worker().worker_uid);
  EXPECT_EQ(registration.inventory().residents_size(), 1);
  node.registry().WaitForRenewals(2);
  EXPECT_TRUE(node.registry().last_renewal().workers(0).ready());
  EXPECT_GT(node.registry().last_renewal().disk().total_bytes(), 0);
}

TEST(ControlLinkTest, OutcomesAreReportedUntilAcknowledged) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  auto link = Link(node);
  node.registry().WaitForOutcomes(2);
  EXPECT_EQ(node.registry().outcomes()[0].method(), "StartActor");
  EXPECT_EQ(node.registry().outcomes()[1].method(), "CaptureActor");
  link->Stop();
  EXPECT_TRUE(node.agent().operations().Unacknowledged().empty());
}

TEST(ControlLinkTest, AControlPlaneThatComesLateIsFound) {
  TestNode node;
  node.registry().SetReachable(false);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  auto link = Link(node);
  node.registry().SetReachable(true);
  node.registry().WaitForOutcomes(1);
}

TEST(ControlLinkTest, AForgottenLeaseLeadsToANewRegistration) {
  TestNode node;
  auto link = Link(node);
  node.registry().WaitForRegistrations(1);
  node.registry().ForgetLease();
  node.registry().WaitForRegistrations(2);
  node.registry().WaitForRenewals(1);
  link->Stop();
  EXPECT_EQ(node.agent().operations().lease(), "lease-2");
}

TEST(ControlLinkTest, ActorsNamedByTheControlPlaneAreStopped) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.registry().OrderStop(kActorUid);
  auto link = Link(node);
  node.registry().WaitForRenewals(1);
  EXPECT_FALSE(node.worker().Hosts(kActorUid));
}

}  // namespace
}  // namespace torpor::agent
