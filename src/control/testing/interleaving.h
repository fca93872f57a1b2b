#pragma once
// A test that runs the events which can meet in every order, each time from the same beginning.

#include <algorithm>
#include <functional>
#include <string>

#include "control/testing/plane_test_base.h"

namespace torpor::control {

class Interleaving : public PlaneTest {
 protected:
  using Fate = FakeWorld::Fate;

  // Runs `act` for each letter of every order of `letters`, each time from `setup` on.
  void EveryOrder(std::string letters, const std::function<void()>& setup,
                  const std::function<void(char)>& act, const std::function<void()>& finish) {
    std::sort(letters.begin(), letters.end());
    do {
      SCOPED_TRACE("order " + letters);
      order = letters;
      Reset();
      lease_id.clear();
      MakeAll();
      setup();
      for (char letter : letters) {
        act(letter);
        while (plane->RunReady()) {
        }
      }
      finish();
      CheckRules();
      if (HasFailure()) return;
    } while (std::next_permutation(letters.begin(), letters.end()));
  }
  // The node or object storage answers the next call, if there is one.
  void Step(Fate fate = Fate::kDeliver) {
    if (world().queued() > 0) world().RunAt(0, fate);
  }
  void Time(Duration by = std::chrono::seconds(1)) {
    clock.Advance(by);
    RenewLease();
  }
  void ReRegister() {
    auto response = plane->RegisterNode(world().Registration());
    ASSERT_THAT(response, IsOk());
    lease_id = response->lease_id();
    world().lease_id = lease_id;
    for (const std::string& uid : response->stop_actor_uids()) world().sandboxes.erase(uid);
  }
  void ReportExit(int64_t generation) {
    torpor::v1::ReportActorRequest report;
    report.set_lease_id(lease_id);
    report.mutable_exited()->set_event_id("exit");
    report.mutable_exited()->set_actor_uid(uid);
    report.mutable_exited()->set_generation(generation);
    report.mutable_exited()->set_exit_code(0);
    if (!plane->ReportActor(report).ok()) {
      ReRegister();
      report.set_lease_id(lease_id);
      EXPECT_THAT(plane->ReportActor(report), IsOk());
    }
  }
  void RunsWith(int64_t value) {
    uid = Uid("a");
    ASSERT_THAT(Await(StartResume("a")), IsOk());
    world().sandboxes[uid].value = value;
  }
  // A durable generation with 5, running with 7.
  void RunsWithADurableGeneration() {
    RunsWith(5);
    ASSERT_THAT(Await(StartSuspend("a")), IsOk());
    ASSERT_THAT(Await(StartResume("a")), IsOk());
    world().sandboxes[uid].value = 7;
  }
  // Brings it to RUNNING by what a client can do.
  int64_t ValueAfterWake() {
    if (State("a") == ateapi::ACTOR_STATE_CRASHED) {
      EXPECT_THAT(Await(StartRevert("a")), IsOk());
    }
    EXPECT_THAT(Await(StartResume("a")), IsOk());
    return world().sandboxes[uid].value;
  }

  std::string order;
  std::string uid;
};

}  // namespace torpor::control
