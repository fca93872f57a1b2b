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

torpor::v1::CpuFeatures Cpu(const std::vector<std::string>& names,
                            const std::string& architecture = "amd64") {
  torpor::v1::CpuFeatures cpu;
  cpu.set_architecture(architecture);
  for (const std::string& name : names) cpu.add_names(name);
  return cpu;
}

TEST(CheckWorker, EveryObstacle) {
  struct Case {
    Obstacle want;
    std::function<void(WorkerView&, Request&)> change;
  };
  const torpor::v1::CpuFeatures old_cpu = Cpu({"aes", "avx"});
  const torpor::v1::CpuFeatures new_cpu = Cpu({"aes", "avx", "avx2"});
  const torpor::v1::CpuFeatures arm = Cpu({"aes", "avx"}, "arm64");
  const torpor::v1::CpuFeatures unknown;
  auto cpus = [](const torpor::v1::CpuFeatures* has, const torpor::v1::CpuFeatures* needs) {
    return [has, needs](WorkerView& w, Request& r) {
      w.cpu = has;
      r.cpu = needs;
    };
  };
  const Case kCases[] = {
      {Obstacle::kOtherCpu, cpus(&old_cpu, &new_cpu)},
      {Obstacle::kNone, cpus(&new_cpu, &old_cpu)},
      {Obstacle::kNone, cpus(&new_cpu, &new_cpu)},
      {Obstacle::kOtherCpu, cpus(&arm, &old_cpu)},
      {Obstacle::kNone, cpus(nullptr, &new_cpu)},
      {Obstacle::kNone, cpus(&unknown, &new_cpu)},
      {Obstacle::kNone, cpus(&old_cpu, nullptr)},
      {Obstacle::kNone, cpus(&old_cpu, &unknown)},
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

TEST(Place, C4_NamesWhatIsMissing) {
  const torpor::v1::CpuFeatures old_cpu = Cpu({"aes", "avx"});
  const torpor::v1::CpuFeatures new_cpu = Cpu({"aes", "avx", "avx2", "avx512f"});
  std::vector<WorkerView> workers = {Worker("a", "n1"), Worker("b", "n2")};
  workers[0].cpu = &old_cpu;
  workers[1].cpu = &new_cpu;
  workers[1].allocated = {kGi, 0, 1};
  Request request = Small();
  request.cpu = &new_cpu;
  request.preferred_node = "n1";
  Decision decision = Place(workers, request);
  EXPECT_EQ(decision.worker, 1) << "neither less load nor a copy helps";
  ASSERT_EQ(decision.choice.rejected_size(), 1);
  EXPECT_EQ(decision.choice.rejected(0).reason(),
            "without CPU features of the snapshot: avx2, avx512f");
  workers.pop_back();
  decision = Place(workers, request);
  EXPECT_EQ(decision.worker, -1);
  EXPECT_EQ(decision.summary, "1 worker without CPU features of the snapshot (avx2, avx512f)");
  EXPECT_EQ(decision.missing, (std::vector<std::string>{"avx2", "avx512f"}));
  EXPECT_FALSE(decision.full_only) << "no pause would help";
  EXPECT_FALSE(decision.awaited);
}

TEST(Place, C4_LongListsAreCut) {
  const torpor::v1::CpuFeatures none = Cpu({"x"});
  const torpor::v1::CpuFeatures many = Cpu({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "x"});
  std::vector<WorkerView> workers = {Worker("a")};
  workers[0].cpu = &none;
  Request request = Small();
  request.cpu = &many;
  EXPECT_EQ(Place(workers, request).summary,
            "1 worker without CPU features of the snapshot (a, b, c, d, e, f, g, h and 2 more)");
}

// What is captured on a newer CPU can go back to newer ones only.
TEST(Place, C4_TheSameCpuIsPreferred) {
  const torpor::v1::CpuFeatures old_cpu = Cpu({"aes", "avx"});
  const torpor::v1::CpuFeatures new_cpu = Cpu({"aes", "avx", "avx2"});
  std::vector<WorkerView> workers = {Worker("a", "n1"), Worker("b", "n2"), Worker("c", "n3")};
  workers[0].cpu = &new_cpu;
  workers[1].cpu = &old_cpu;
  workers[1].allocated = {kGi, 0, 1};
  Request request = Small();
  request.cpu = &old_cpu;
  Decision decision = Place(workers, request);
  EXPECT_EQ(decision.worker, 1);
  EXPECT_EQ(decision.choice.reason(), "least loaded of those with the snapshot's CPU");
  EXPECT_EQ(decision.choice.rejected(0).reason(),
            "more loaded, farther from the snapshot or of another CPU");
  request.preferred_node = "n1";
  EXPECT_EQ(Place(workers, request).worker, 0) << "the copy that is there weighs more";
  request.cpu = nullptr;
  request.preferred_node.clear();
  EXPECT_EQ(Place(workers, request).worker, 0) << "without memory any CPU is as good";
}

TEST(Place, C8_WhereItFailedIsTheLastResort) {
  std::vector<WorkerView> workers = {Worker("a", "n1"), Worker("b", "n2")};
  workers[1].allocated = {3 * kGi, 0, 3};
  Request request = Small();
  request.preferred_node = "n1";
  request.failed_worker = "a";
  Decision decision = Place(workers, request);
  EXPECT_EQ(decision.worker, 1);
  EXPECT_EQ(decision.choice.rejected(0).reason(), "the last attempt failed there");
  workers[1].draining = true;
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
