// Random histories: calls, lost and late messages, failures, restarts of everything. The seed is
// the whole input; a failing one is printed and repeats exactly. No time passes but the fake
// clock's.

#include <random>

#include "control/core/record_view.h"
#include "control/testing/cut_store.h"
#include "control/testing/plane_test_base.h"
#include "model/actor_lifecycle.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control {
namespace {

using torpor::v1::ActorRecord;

constexpr int kSeeds = 120;
constexpr int kSteps = 250;

class Simulation : public PlaneTest, public ::testing::WithParamInterface<int> {
 protected:
  void TearDown() override { plane.reset(); }  // before the store that it uses

  int Pick(int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); }
  std::string AnyActor() { return std::string(1, static_cast<char>('a' + Pick(3))); }

  std::map<std::string, ActorRecord> Records() {
    std::map<std::string, ActorRecord> records;
    auto rows = store().Scan(Kind::kActor, "", "", 1000);
    EXPECT_THAT(rows, IsOk());
    for (const Row& row : *rows) {
      ActorRecord record;
      EXPECT_TRUE(record.ParseFromString(row.value));
      records[row.key] = std::move(record);
    }
    return records;
  }

  static ateapi::ResourceMetadata TagMetadata() {
    ateapi::ResourceMetadata metadata;
    metadata.set_atespace("demo");
    metadata.set_name("t");
    return metadata;
  }

  template <typename T>
  Done<T> Count() {
    ++asked;
    auto once = std::make_shared<bool>(false);
    return [this, once](StatusOr<T>) {
      EXPECT_FALSE(*once) << "answered twice";
      *once = true;
      ++answered;
    };
  }
  // Remembers which generation the caller was promised, and whether for a power cut too.
  template <typename T>
  Done<T> Promise(bool durable) {
    Done<T> counted = Count<T>();
    return [this, durable, counted](StatusOr<T> result) {
      if (result.ok()) {
        const std::string& uid = result->actor().metadata().uid();
        promised[uid] = result->generation();
        if (durable) promised_durable[uid] = result->generation();
      }
      counted(std::move(result));
    };
  }

  void CallSomething() {
    const std::string name = AnyActor();
    CallContext context{clock.Now() + std::chrono::seconds(1 + Pick(100))};
    switch (Pick(13)) {
      case 0:
        (void)MakeActor(name).status().ok();
        break;
      case 8:
        (void)MakeActorFrom("t", name).status().ok();
        break;
      case 12: {
        torpor::v1::RollbackActorRequest request;
        *request.mutable_actor() = Ref(name);
        request.set_generation(1 + Pick(12));
        Done<torpor::v1::RollbackActorResponse> counted =
            Count<torpor::v1::RollbackActorResponse>();
        plane->RollbackActor(request, context,
                             [this, counted](StatusOr<torpor::v1::RollbackActorResponse> result) {
                               if (result.ok()) {
                                 const ateapi::Actor& actor = result->actor();
                                 const int64_t now = actor.status().last_snapshot_generation();
                                 promised[actor.metadata().uid()] = now;
                                 promised_durable[actor.metadata().uid()] = now;
                               }
                               counted(std::move(result));
                             });
        break;
      }
      case 9: {
        ateapi::CreateTagRequest request;
        *request.mutable_tag()->mutable_metadata() = TagMetadata();
        *request.mutable_tag()->mutable_source_actor() = Ref(name);
        request.mutable_tag()->set_scope(ateapi::TAG_SCOPE_ATESPACE);
        plane->CreateTag(request, context, Count<ateapi::Tag>());
        break;
      }
      case 10:
        (void)DeleteTag("t").status().ok();
        break;
      case 11: {
        // Onto the other names, so that children are sources, too.
        torpor::v1::ForkActorRequest request = ForkOf(name, 1 + Pick(2));
        for (char child = 'a'; child <= 'c' && request.names_size() < request.count(); ++child) {
          if (name[0] != child) request.add_names(std::string(1, child));
        }
        request.set_resume(Pick(2) == 0);
        plane->ForkActor(request, context, Count<torpor::v1::ForkActorResponse>());
        break;
      }
      case 1:
      case 2:
      case 3: {
        ateapi::ResumeActorRequest request;
        *request.mutable_actor() = Ref(name);
        plane->ResumeActor(request, context, Count<ateapi::ResumeActorResponse>());
        break;
      }
      case 4: {
        ateapi::PauseActorRequest request;
        *request.mutable_actor() = Ref(name);
        plane->PauseActor(request, context, Promise<ateapi::PauseActorResponse>(false));
        break;
      }
      case 5: {
        ateapi::SuspendActorRequest request;
        *request.mutable_actor() = Ref(name);
        plane->SuspendActor(request, context, Promise<ateapi::SuspendActorResponse>(true));
        break;
      }
      case 6: {
        ateapi::RevertActorRequest request;
        *request.mutable_actor() = Ref(name);
        plane->RevertActor(request, context, Promise<ateapi::RevertActorResponse>(true));
        break;
      }
      default: {
        ateapi::DeleteActorRequest request;
        *request.mutable_actor() = Ref(name);
        request.set_any_state(Pick(2) == 0);
        plane->DeleteActor(request, context, Count<ateapi::Actor>());
      }
    }
  }

  void FailSomething() {
    static const std::vector<std::pair<std::string, Status>> kFailures = {
        {"StartActor", Fail(reasons::kVolumeBusy, "busy")},
        {"StartActor", Fail(reasons::kWorkloadExited, "exit 1")},
        {"StartActor", Fail(reasons::kDiskFull, "full")},
        {"StartActor", Fail(reasons::kSnapshotCorrupt, "wrong hash")},
        {"CaptureActor", Fail(reasons::kDiskFull, "full")},
        {"CaptureActor", Fail(reasons::kActorBusy, "busy")},
        {"UploadSnapshot", Fail(reasons::kObjectStorageUnavailable, "503")},
        {"UploadSnapshot", Fail(reasons::kStoreDenied, "no")},
        {"StopActor", Fail(reasons::kVolumeBusy, "busy")},
        {"DeleteSnapshot", Fail(reasons::kObjectStorageUnavailable, "503")},
        {"Copy", Fail(reasons::kObjectStorageUnavailable, "503")},
        {"Copy", Fail(reasons::kStoreDenied, "no")},
        {"DeleteLocalSnapshots", Fail(reasons::kVolumeBusy, "busy")},
    };
    const auto& [method, status] = kFailures[static_cast<size_t>(Pick(13))];
    world().FailNext(method, status, 1 + Pick(3));
  }

  // Somebody removes what is only a cache.
  void EvictSomething() {
    for (const auto& [key, record] : Records()) {
      if (record.has_operation()) continue;
      for (const auto& generation : record.generations()) {
        const auto* local = core::FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
        if (!core::IsComplete(local) ||
            !core::IsComplete(core::FindStorage(generation, torpor::v1::DURABILITY_DURABLE))) {
          continue;
        }
        world().local_snapshots[record.actor().metadata().uid()].erase(local->snapshot_name());
        evicted.insert(local->snapshot_name());
        return;
      }
    }
  }

  void ExitSomething() {
    if (world().sandboxes.empty()) return;
    auto it = world().sandboxes.begin();
    std::advance(it, Pick(static_cast<int>(world().sandboxes.size())));
    torpor::v1::ReportActorRequest report;
    report.set_lease_id(lease_id);
    report.mutable_exited()->set_event_id("e" + std::to_string(random()));
    report.mutable_exited()->set_actor_uid(it->first);
    report.mutable_exited()->set_generation(it->second.generation);
    report.mutable_exited()->set_exit_code(1);
    world().sandboxes.erase(it);
    // The agent repeats it until it is acknowledged.
    if (plane->ReportActor(report).ok()) return;
    ReRegister();
    report.set_lease_id(lease_id);
    EXPECT_THAT(plane->ReportActor(report), IsOk());
  }

  // The apiserver ends before or after a commit, and the next one takes over.
  void CutSomething() {
    cut->CutAt(1 + Pick(2), Pick(2) == 0);
    CallSomething();
    plane->RunReady();
    if (world().queued() > 0) world().RunAt(0);
    plane->RunReady();
    cut->Heal();
    Restart();
  }

  // The machine loses what was not flushed, and what ran. A LOCAL generation is a promise for the
  // life of the machine.
  void PowerCut() {
    plane.reset();
    auto left = cut->PowerCut();
    ASSERT_NE(left, nullptr);
    owned_store = std::move(left);
    cut = std::make_unique<CutStore>(owned_store.get(), cut->Left());
    world().Reboot();
    promised = promised_durable;
    Restart();
    ReRegister();
  }

  // A router or an actor has something to say about an actor.
  void UseSomething() {
    if (world().sandboxes.empty()) return;
    auto it = world().sandboxes.begin();
    std::advance(it, Pick(static_cast<int>(world().sandboxes.size())));
    switch (Pick(3)) {
      case 0: {
        torpor::v1::ReportActivityRequest report;
        report.set_router_id("r" + std::to_string(Pick(2)));
        torpor::v1::Activity& activity = *report.add_activities();
        activity.set_actor_uid(it->first);
        activity.set_generation(it->second.generation);
        *activity.mutable_last_active_time() = ToProto(clock.WallNow());
        activity.set_open_streams(Pick(3));
        EXPECT_THAT(plane->ReportActivity(report), IsOk());
        return;
      }
      case 1: {
        torpor::v1::IdleWish wish;
        wish.set_actor_uid(it->first);
        wish.set_generation(it->second.generation);
        wish.set_verb(Pick(2) == 0 ? torpor::v1::VERB_PAUSE : torpor::v1::VERB_SUSPEND);
        EXPECT_THAT(plane->WishIdle(wish), IsOk());
        return;
      }
      default: {
        torpor::v1::AwakeWish wish;
        wish.set_actor_uid(it->first);
        wish.set_generation(it->second.generation);
        wish.mutable_duration()->set_seconds(Pick(30));
        EXPECT_THAT(plane->WishAwake(wish), IsOk());
      }
    }
  }

  void DrainOrNot(bool cancel) {
    torpor::v1::DrainNodeRequest request;
    request.set_name("node-1");
    request.set_cancel(cancel);
    if (Pick(3) == 0) request.set_mode(torpor::v1::DrainNodeRequest::MODE_CORDON);
    EXPECT_THAT(plane->DrainNode(request), IsOk());
  }

  // One line per step, for a seed that fails: SIM_TRACE=<seed>.
  void Trace(int step) {
    printf("%d:", step);
    for (const auto& [key, record] : Records()) {
      printf(" %s=%s/%ld%s", key.c_str(), StateName(record.actor().status().state()).c_str(),
             static_cast<long>(record.actor().status().generation()),
             world().sandboxes.count(record.actor().metadata().uid()) ? "*" : "");
    }
    printf(" queue %zu sandboxes %zu\n", world().queued(), world().sandboxes.size());
  }

  // As the agent does it: what the answer names is stopped before anything else.
  void ReRegister() {
    auto response = plane->RegisterNode(world().Registration());
    ASSERT_THAT(response, IsOk());
    lease_id = response->lease_id();
    world().lease_id = lease_id;
    for (const std::string& uid : response->stop_actor_uids()) world().sandboxes.erase(uid);
  }

  void Renew() {
    torpor::v1::RenewLeaseRequest request;
    request.set_lease_id(lease_id);
    request.set_boot_id(world().boot_id);
    if (!plane->RenewLease(request).ok()) ReRegister();
  }

  void Step() {
    int dice = Pick(104);
    if (dice >= 100) {
      if (dice == 100) CutSomething();
      if (dice == 101) UseSomething();
      if (dice == 102) DrainOrNot(Pick(2) == 0);
      if (dice == 103 && Pick(3) == 0) PowerCut();
    } else if (dice < 25) {
      CallSomething();
    } else if (dice < 60) {
      if (world().queued() == 0) return;
      size_t index = static_cast<size_t>(Pick(static_cast<int>(world().queued())));
      int fate = Pick(10);
      world().RunAt(index, fate < 7    ? FakeWorld::Fate::kDeliver
                           : fate == 7 ? FakeWorld::Fate::kLoseRequest
                           : fate == 8 ? FakeWorld::Fate::kLoseReply
                                       : FakeWorld::Fate::kDelay);
    } else if (dice < 80) {
      plane->RunReady();
    } else if (dice < 88) {
      clock.Advance(std::chrono::milliseconds(1 + Pick(4000)));
      Renew();
    } else if (dice < 90) {
      FailSomething();
    } else if (dice < 91) {
      EvictSomething();
    } else if (dice < 93) {
      Restart();
    } else if (dice < 95) {
      for (auto& [uid, sandbox] : world().sandboxes) sandbox.value = ++work;
    } else if (dice < 96) {
      ExitSomething();
    } else if (dice < 97) {
      world().RestartWorker();
      if (Pick(2) == 0) ReRegister();  // or the node tells it later
    } else if (dice < 98) {
      world().Reboot();
      ReRegister();
    } else if (dice < 99) {
      clock.Advance(std::chrono::seconds(30));  // a silent node
    } else {
      ReRegister();  // the agent was started anew
    }
  }

  void CheckRecord(const std::string& key, const ActorRecord& record) {
    const ateapi::ActorStatus& status = record.actor().status();
    const std::string& uid = record.actor().metadata().uid();
    const std::string about = key + " " + StateName(status.state());
    bool may_hold = IsTransitional(status.state()) || status.state() == ateapi::ACTOR_STATE_RUNNING;
    EXPECT_TRUE(may_hold || !record.has_binding()) << about << " holds a worker";
    EXPECT_EQ(record.has_operation(), IsTransitional(status.state())) << about;
    // The node removes an actor's snapshots before the record says so in these two.
    bool going = status.state() == ateapi::ACTOR_STATE_REVERTING ||
                 status.state() == ateapi::ACTOR_STATE_DELETING;
    for (const auto& generation : record.generations()) {
      const auto* local = core::FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
      if (core::IsComplete(local) && !going && evicted.count(local->snapshot_name()) == 0) {
        EXPECT_TRUE(world().local_snapshots[uid].count(local->snapshot_name()))
            << about << ": local generation is not there";
      }
      const auto* durable = core::FindStorage(generation, torpor::v1::DURABILITY_DURABLE);
      if (core::IsComplete(durable)) {
        EXPECT_TRUE(world().objects.count(durable->uri()))
            << about << ": durable generation is not there";
      }
    }
    // A crash or revert gives generations up and says so; then the promise is a smaller one.
    bool kept = status.state() == ateapi::ACTOR_STATE_PAUSED ||
                status.state() == ateapi::ACTOR_STATE_SUSPENDED ||
                status.state() == ateapi::ACTOR_STATE_RUNNING;
    auto promise = promised.find(uid);
    if (promise == promised.end()) return;
    if (!kept) {
      if (status.state() == ateapi::ACTOR_STATE_CRASHED || going) promised.erase(promise);
      const bool damaged = status.crash().reason() == reasons::kSnapshotCorrupt.name;
      if (going || damaged) promised_durable.erase(uid);
      return;
    }
    const auto* current = core::Current(record);
    int64_t have = current == nullptr ? 0 : current->generation().generation();
    EXPECT_GE(have, promise->second) << about << ": an acknowledged generation is missing";
  }

  void Check() {
    EXPECT_TRUE(world().problems.empty()) << world().problems.front();
    auto checked = plane->CheckRecords({});
    ASSERT_THAT(checked, IsOk());
    for (const auto& finding : checked->findings()) {
      // As long as there are faults an operation may take any time.
      if (finding.rule() == "operation-in-time" && !quiet) continue;
      ADD_FAILURE() << finding.ShortDebugString();
    }
    for (const auto& [key, record] : Records()) {
      if (!record.has_borrowed()) continue;
      EXPECT_TRUE(world().objects.count(record.borrowed().snapshot().uri()))
          << key << " starts from what is not there";
    }
    std::map<std::string, scheduler::Amount> bound;
    for (const auto& [key, record] : Records()) {
      CheckRecord(key, record);
      if (record.has_binding()) ++bound[record.binding().worker_uid()].actors;
    }
    auto workers = plane->ListWorkers({});
    ASSERT_THAT(workers, IsOk());
    for (const ateapi::Worker& worker : workers->workers()) {
      EXPECT_EQ(worker.status().allocated().actors(), bound[worker.metadata().name()].actors);
    }
  }

  // Faults stop: everything must come to rest, with nothing left over.
  void Finish() {
    world().HealAll();
    ReRegister();
    DrainOrNot(/*cancel=*/true);
    for (int i = 0; i < 90; ++i) {
      RunFor(std::chrono::seconds(30));
      Renew();
    }
    EXPECT_EQ(asked, answered);
    quiet = true;
    Check();
    std::set<std::string> sandboxes;
    std::set<std::string> objects;
    std::set<std::string> locals;
    for (const auto& [key, record] : Records()) {
      ateapi::ActorState state = record.actor().status().state();
      EXPECT_FALSE(IsTransitional(state)) << key << " is stuck in " << StateName(state);
      const std::string& uid = record.actor().metadata().uid();
      if (state == ateapi::ACTOR_STATE_RUNNING) sandboxes.insert(uid);
      for (const auto& generation : record.generations()) {
        for (const auto& storage : generation.generation().storages()) {
          EXPECT_TRUE(core::IsComplete(&storage)) << key;
          if (storage.durability() == torpor::v1::DURABILITY_LOCAL) {
            locals.insert(storage.snapshot_name());
          } else {
            objects.insert(storage.uri());
          }
        }
      }
    }
    auto tags = plane->ListTags({});
    ASSERT_THAT(tags, IsOk());
    for (const ateapi::Tag& tag : tags->tags()) {
      EXPECT_TRUE(tag.status().has_snapshot()) << tag.metadata().name() << " is copied for ever";
      objects.insert(tag.status().snapshot().snapshot_uri());
    }
    std::set<std::string> have;
    for (const auto& [uid, sandbox] : world().sandboxes) have.insert(uid);
    EXPECT_EQ(have, sandboxes);
    have.clear();
    for (const auto& [uri, value] : world().objects) have.insert(uri);
    EXPECT_EQ(have, objects) << "objects that no record names, or the other way round";
    // What a node keeps too long its garbage collection finds by ListNodeActors; nothing may be
    // missing.
    std::set<std::string> on_node;
    for (const auto& [uid, names] : world().local_snapshots) {
      EXPECT_LE(names.size(), 2u) << uid;
      for (const auto& [name, value] : names) on_node.insert(name);
    }
    for (const std::string& name : locals) EXPECT_TRUE(on_node.count(name)) << name;
  }

  std::mt19937 random;
  int asked = 0;
  int answered = 0;
  int64_t work = 0;
  std::map<std::string, int64_t> promised;  // uid -> generation
  std::map<std::string, int64_t> promised_durable;
  std::unique_ptr<CutStore> cut;
  bool quiet = false;             // faults have stopped
  std::set<std::string> evicted;  // names of local snapshots
};

TEST_P(Simulation, KeepsEveryPromise) {
  for (int seed = GetParam(); seed < kSeeds; seed += 10) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random.seed(static_cast<uint32_t>(seed));
    promised.clear();
    promised_durable.clear();
    quiet = false;
    plane.reset();
    EXPECT_EQ(asked, answered);
    cut.reset();
    decorate = [this](Store* store) {
      if (cut == nullptr) cut = std::make_unique<CutStore>(store);
      return cut.get();
    };
    Reset();
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    if (seed % 2 == 0) tmpl.mutable_crash_policy()->set_on_crash(torpor::v1::ON_CRASH_REVERT);
    if (seed % 3 == 0) {
      tmpl.mutable_idle_policy()->mutable_pause_after()->set_seconds(10);
      tmpl.mutable_idle_policy()->mutable_suspend_after()->set_seconds(40);
    }
    tmpl.mutable_snapshot_config()->set_keep_generations(seed % 4);
    ASSERT_THAT(MakeTemplate(tmpl), IsOk());
    Register();
    for (int i = 0; i < kSteps && !HasFailure(); ++i) {
      Step();
      if (getenv("SIM_TRACE") != nullptr && seed == atoi(getenv("SIM_TRACE"))) Trace(i);
      Check();
    }
    if (!HasFailure()) Finish();
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulation, ::testing::Range(0, 10));

}  // namespace
}  // namespace torpor::control
