#include "scheduler/placement.h"

#include <gtest/gtest.h>

namespace torpor::scheduler {
namespace {

constexpr int64_t kGi = int64_t{1} << 30;

WorkerView Worker(std::string uid, std::string node = "n1") {
  WorkerView worker;
  worker.uid = uid;
  worker.name = uid;
  worker.node_name = node;
  worker.sandbox_class = ateapi::SANDBOX_CLASS_GVISOR;
  worker.labels = {{"zone", "a"}};
  worker.ready = true;
  worker.node_alive = true;
  worker.capacity = {4 * kGi, 4000, 10};
  return worker;
}

Request Small() {
  Request request;
  request.sandbox_class = ateapi::SANDBOX_CLASS_GVISOR;
  request.needs = {kGi, 1000, 1};
  return request;
}

TEST(CheckWorker, EveryObstacle) {
  struct Case {
    Obstacle want;
    std::function<void(WorkerView&, Request&)> change;
  };
  const Case kCases[] = {
      {Obstacle::kNone, [](WorkerView&, Request&) {}},
      {Obstacle::kOtherClass,
       [](WorkerView& w, Request&) { w.sandbox_class = ateapi::SANDBOX_CLASS_MICROVM; }},
      {Obstacle::kSelector, [](WorkerView&, Request& r) { r.selectors = {{{"zone", "b"}}}; }},
      {Obstacle::kSelector,
       [](WorkerView&, Request& r) { r.selectors = {{{"zone", "a"}}, {{"gpu", "yes"}}}; }},
      {Obstacle::kNone, [](WorkerView&, Request& r) { r.selectors = {{{"zone", "a"}}}; }},
      {Obstacle::kOtherNode, [](WorkerView&, Request& r) { r.required_node = "n2"; }},
      {Obstacle::kNone, [](WorkerView&, Request& r) { r.required_node = "n1"; }},
      {Obstacle::kNodeSilent, [](WorkerView& w, Request&) { w.node_alive = false; }},
      {Obstacle::kNotReady, [](WorkerView& w, Request&) { w.ready = false; }},
      {Obstacle::kDraining, [](WorkerView& w, Request&) { w.draining = true; }},
      {Obstacle::kDiskPressure, [](WorkerView& w, Request&) { w.disk_full = true; }},
      {Obstacle::kNone,
       [](WorkerView& w, Request& r) {
         w.disk_full = true;
         r.required_node = "n1";  // its only copy is there already
       }},
      {Obstacle::kTooSmall, [](WorkerView&, Request& r) { r.needs.memory_bytes = 5 * kGi; }},
      {Obstacle::kTooSmall, [](WorkerView& w, Request&) { w.capacity.actors = 0; }},
      {Obstacle::kTooSmall, [](WorkerView&, Request& r) { r.needs.cpu_milli = 4001; }},
      {Obstacle::kNone, [](WorkerView&, Request& r) { r.needs.cpu_milli = 4000; }},
      {Obstacle::kActorsFull, [](WorkerView& w, Request&) { w.allocated.actors = 10; }},
      {Obstacle::kNone, [](WorkerView& w, Request&) { w.allocated.actors = 9; }},
      {Obstacle::kMemoryFull,
       [](WorkerView& w, Request&) { w.allocated.memory_bytes = 3 * kGi + 1; }},
      {Obstacle::kNone, [](WorkerView& w, Request&) { w.allocated.memory_bytes = 3 * kGi; }},
      {Obstacle::kCpuFull, [](WorkerView& w, Request&) { w.allocated.cpu_milli = 3001; }},
  };
  int number = 0;
  for (const Case& c : kCases) {
    WorkerView worker = Worker("w");
    Request request = Small();
    c.change(worker, request);
    EXPECT_EQ(ObstacleText(CheckWorker(worker, request)), ObstacleText(c.want)) << number;
    ++number;
  }
}

TEST(Place, TakesTheLeastLoaded) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c")};
  workers[0].allocated = {kGi, 0, 1};
  workers[1].allocated = {0, 1000, 1};
  Decision decision = Place(workers, Small());
  EXPECT_EQ(decision.worker, 2);
  EXPECT_EQ(decision.choice.answer(), "c");
  EXPECT_EQ(decision.choice.rejected_size(), 2);
}

TEST(Place, EqualOnesByUid) { EXPECT_EQ(Place({Worker("b"), Worker("a")}, Small()).worker, 1); }

TEST(Place, PrefersTheNodeOfTheSnapshot) {
  std::vector<WorkerView> workers = {Worker("a", "n1"), Worker("b", "n2")};
  workers[1].allocated = {3 * kGi, 0, 3};
  Request request = Small();
  request.preferred_node = "n2";
  EXPECT_EQ(Place(workers, request).worker, 1);
  workers[1].allocated.memory_bytes = 4 * kGi;
  EXPECT_EQ(Place(workers, request).worker, 0);
}

TEST(Place, SaysWhyThereIsNoRoom) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c"), Worker("d", "n2")};
  workers[0].allocated.memory_bytes = 4 * kGi;
  workers[1].allocated.memory_bytes = 4 * kGi;
  workers[2].draining = true;
  workers[3].node_alive = false;
  Decision decision = Place(workers, Small());
  EXPECT_EQ(decision.worker, -1);
  EXPECT_EQ(decision.summary,
            "1 worker draining, 1 worker on a node that does not renew its lease, "
            "2 workers full (memory)");
  EXPECT_TRUE(decision.full_only);
  EXPECT_EQ(decision.choice.rejected_size(), 4);
}

TEST(Place, SaysWhenAWorkerIsAboutToReport) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  workers[0].node_awaited = true;
  EXPECT_EQ(Place(workers, Small()).worker, 1) << "whatever is known goes first";
  EXPECT_FALSE(Place(workers, Small()).awaited);
  workers[1].draining = true;
  EXPECT_TRUE(Place(workers, Small()).awaited);
  workers[0].node_awaited = false;
  workers[0].ready = false;
  EXPECT_TRUE(Place(workers, Small()).awaited);
  workers[0].ready = true;
  workers[0].node_alive = false;
  EXPECT_FALSE(Place(workers, Small()).awaited) << "a lost node is not waited for";
}

TEST(Place, NothingRegistered) {
  Decision decision = Place({}, Small());
  EXPECT_EQ(decision.worker, -1);
  EXPECT_EQ(decision.summary, "no worker is registered");
  EXPECT_FALSE(decision.full_only);
}

TEST(Place, TooSmallIsNotHelpedByPausing) {
  Request request = Small();
  request.needs.memory_bytes = 8 * kGi;
  EXPECT_FALSE(Place({Worker("a")}, request).full_only);
}

}  // namespace
}  // namespace torpor::scheduler
