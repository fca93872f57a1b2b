#pragma once
// A control plane over the fake world with a clock that the test moves; restarts keep store and
// world().

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/testing/matchers.h"
#include "control/control_plane.h"
#include "control/store/memory/memory_store.h"
#include "control/testing/fake_world.h"
#include "model/reasons.h"

namespace torpor::control {

class PlaneTest : public ::testing::Test {
 protected:
  PlaneTest() {
    settings.default_storage_location = "file:///store";
    settings.golden_warmup = std::chrono::seconds(10);
  }
  void SetUp() override { Reset(); }

  FakeWorld& world() { return *owned_world; }
  MemoryStore& store() { return *owned_store; }

  // The next apiserver over the same store.
  void Restart() {
    plane.reset();
    world().EndCopies();
    Store* used = decorate ? decorate(owned_store.get()) : owned_store.get();
    ControlPlane::Parts parts{used, world().admin(), world().clients(), &clock, &ids};
    auto made = ControlPlane::Create(parts, settings, /*threaded=*/false);
    ASSERT_THAT(made, IsOk());
    plane = std::move(*made);
  }
  // A new world with an empty store.
  void Reset() {
    plane.reset();
    owned_world = std::make_unique<FakeWorld>(&clock);
    owned_store = std::make_unique<MemoryStore>();
    Restart();
  }
  void Register() {
    auto response = plane->RegisterNode(world().Registration());
    ASSERT_THAT(response, IsOk());
    lease_id = response->lease_id();
    world().lease_id = lease_id;
  }
  // Runs until nothing moves any more, without moving the clock.
  void Run() {
    while (plane->RunReady() || world().RunAll()) {
    }
  }
  // Moves the clock from timer to timer, renewing the lease as often as a node does.
  void RunFor(Duration time) {
    WallTime end = clock.WallNow() + std::chrono::duration_cast<WallTime::duration>(time);
    Run();
    while (clock.WallNow() < end) {
      WallTime next = clock.WallNow() + std::chrono::seconds(5);
      next = std::max(clock.WallNow(), std::min({next, end, plane->NextTimer()}));
      clock.Advance(next - clock.WallNow());
      RenewLease();
      Run();
    }
  }
  void RenewLease() {
    if (lease_id.empty()) return;
    torpor::v1::RenewLeaseRequest request;
    request.set_lease_id(lease_id);
    request.set_boot_id(world().boot_id);
    (void)plane->RenewLease(request).status().ok();
  }

  static ateapi::ObjectRef Ref(const std::string& name, const std::string& atespace = "demo") {
    ateapi::ObjectRef ref;
    ref.set_atespace(atespace);
    ref.set_name(name);
    return ref;
  }
  void MakeAtespace(const std::string& name = "demo") {
    ateapi::CreateAtespaceRequest request;
    request.mutable_atespace()->mutable_metadata()->set_name(name);
    ASSERT_THAT(plane->CreateAtespace(request), IsOk());
  }
  static ateapi::ActorTemplate Template(const std::string& name = "counter") {
    ateapi::ActorTemplate tmpl;
    tmpl.mutable_metadata()->set_atespace("demo");
    tmpl.mutable_metadata()->set_name(name);
    tmpl.mutable_sandbox_config()->set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
    tmpl.mutable_sandbox_config()->set_config_name("gvisor");
    tmpl.add_containers()->set_name("main");
    tmpl.mutable_golden_config()->set_disabled(true);
    return tmpl;
  }
  StatusOr<ateapi::ActorTemplate> MakeTemplate(const ateapi::ActorTemplate& tmpl) {
    ateapi::CreateActorTemplateRequest request;
    *request.mutable_actor_template() = tmpl;
    return plane->CreateActorTemplate(request);
  }
  StatusOr<ateapi::Actor> MakeActor(const std::string& name, const std::string& tmpl = "counter") {
    ateapi::CreateActorRequest request;
    request.mutable_actor()->mutable_metadata()->set_atespace("demo");
    request.mutable_actor()->mutable_metadata()->set_name(name);
    *request.mutable_actor()->mutable_actor_template() = Ref(tmpl);
    return plane->CreateActor(request);
  }
  StatusOr<ateapi::Actor> MakeActorFrom(const std::string& tag, const std::string& name,
                                        const std::string& atespace = "demo") {
    ateapi::CreateActorRequest request;
    request.mutable_actor()->mutable_metadata()->set_atespace(atespace);
    request.mutable_actor()->mutable_metadata()->set_name(name);
    *request.mutable_actor()->mutable_actor_template() = Ref("counter");
    *request.mutable_actor()->mutable_source_tag() = Ref(tag);
    return plane->CreateActor(request);
  }
  StatusOr<ateapi::Tag> GetTag(const std::string& name) {
    ateapi::GetTagRequest request;
    *request.mutable_tag() = Ref(name);
    return plane->GetTag(request);
  }
  StatusOr<ateapi::Tag> DeleteTag(const std::string& name) {
    ateapi::DeleteTagRequest request;
    *request.mutable_tag() = Ref(name);
    return plane->DeleteTag(request);
  }
  // Atespace demo, template counter without golden build, a registered node, actor a.
  void MakeAll() {
    MakeAtespace();
    ASSERT_THAT(MakeTemplate(Template()), IsOk());
    Register();
    ASSERT_THAT(MakeActor("a"), IsOk());
  }
  ateapi::Actor Get(const std::string& name, const std::string& atespace = "demo") {
    ateapi::GetActorRequest request;
    *request.mutable_actor() = Ref(name, atespace);
    auto actor = plane->GetActor(request);
    EXPECT_THAT(actor, IsOk());
    return actor.ok() ? *actor : ateapi::Actor();
  }
  bool Exists(const std::string& name = "a") {
    ateapi::GetActorRequest request;
    *request.mutable_actor() = Ref(name);
    return plane->GetActor(request).ok();
  }
  ateapi::ActorState State(const std::string& name) { return Get(name).status().state(); }
  std::string Uid(const std::string& name) { return Get(name).metadata().uid(); }
  ateapi::ActorTemplate GetTemplate(const std::string& name = "counter") {
    ateapi::GetActorTemplateRequest request;
    *request.mutable_actor_template() = Ref(name);
    auto tmpl = plane->GetActorTemplate(request);
    EXPECT_THAT(tmpl, IsOk());
    return tmpl.ok() ? *tmpl : ateapi::ActorTemplate();
  }

  // Every rule between the records holds, and what they name is there.
  void CheckRules() {
    auto checked = plane->CheckRecords({});
    ASSERT_THAT(checked, IsOk());
    for (const auto& finding : checked->findings()) ADD_FAILURE() << finding.ShortDebugString();
    for (const std::string& problem : world().problems) ADD_FAILURE() << problem;
    auto actors = plane->ListActors({});
    ASSERT_THAT(actors, IsOk());
    for (const ateapi::Actor& actor : actors->actors()) {
      torpor::v1::ListGenerationsRequest request;
      request.mutable_actor()->set_atespace(actor.metadata().atespace());
      request.mutable_actor()->set_name(actor.metadata().name());
      auto generations = plane->ListGenerations(request);
      ASSERT_THAT(generations, IsOk());
      for (const auto& generation : generations->generations()) {
        for (const auto& storage : generation.storages()) {
          if (storage.status() != torpor::v1::STORAGE_STATUS_COMPLETED) continue;
          const bool there = storage.durability() == torpor::v1::DURABILITY_DURABLE
                                 ? world().objects.count(storage.uri()) != 0
                                 : world().local_snapshots[actor.metadata().uid()].count(
                                       storage.snapshot_name()) != 0;
          EXPECT_TRUE(there) << actor.metadata().name()
                             << " names what is not there: " << storage.ShortDebugString();
        }
      }
      const std::string& external = actor.status().external_snapshot().snapshot_uri();
      EXPECT_TRUE(external.empty() || world().objects.count(external) != 0)
          << actor.metadata().name() << " starts from what is not there: " << external;
      const bool runs = actor.status().state() == ateapi::ACTOR_STATE_RUNNING;
      if (runs) {
        EXPECT_EQ(world().sandboxes.count(actor.metadata().uid()), 1u)
            << actor.metadata().name() << " has no sandbox";
      }
    }
    auto tags = plane->ListTags({});
    ASSERT_THAT(tags, IsOk());
    for (const ateapi::Tag& tag : tags->tags()) {
      const std::string& uri = tag.status().snapshot().snapshot_uri();
      EXPECT_TRUE(uri.empty() || world().objects.count(uri) != 0)
          << "the copy of tag " << tag.metadata().name() << " is not there";
    }
  }

  // A verb whose answer is kept; nullopt = not answered yet.
  template <typename T>
  using Slot = std::shared_ptr<std::optional<StatusOr<T>>>;
  template <typename T>
  static Done<T> Into(Slot<T> slot) {
    return [slot](StatusOr<T> result) {
      EXPECT_FALSE(slot->has_value()) << "answered twice";
      *slot = std::move(result);
    };
  }
  template <typename T>
  static Slot<T> MakeSlot() {
    return std::make_shared<std::optional<StatusOr<T>>>();
  }
  Slot<ateapi::ResumeActorResponse> StartResume(const std::string& name,
                                                Duration wait = Duration::zero()) {
    auto slot = MakeSlot<ateapi::ResumeActorResponse>();
    ateapi::ResumeActorRequest request;
    *request.mutable_actor() = Ref(name);
    if (wait > Duration::zero()) *request.mutable_wait_for_capacity() = ToProto(wait);
    plane->ResumeActor(request, {}, Into(slot));
    return slot;
  }
  Slot<ateapi::PauseActorResponse> StartPause(const std::string& name) {
    auto slot = MakeSlot<ateapi::PauseActorResponse>();
    ateapi::PauseActorRequest request;
    *request.mutable_actor() = Ref(name);
    plane->PauseActor(request, {}, Into(slot));
    return slot;
  }
  Slot<ateapi::SuspendActorResponse> StartSuspend(const std::string& name) {
    auto slot = MakeSlot<ateapi::SuspendActorResponse>();
    ateapi::SuspendActorRequest request;
    *request.mutable_actor() = Ref(name);
    plane->SuspendActor(request, {}, Into(slot));
    return slot;
  }
  Slot<ateapi::RevertActorResponse> StartRevert(const std::string& name) {
    auto slot = MakeSlot<ateapi::RevertActorResponse>();
    ateapi::RevertActorRequest request;
    *request.mutable_actor() = Ref(name);
    plane->RevertActor(request, {}, Into(slot));
    return slot;
  }
  Slot<ateapi::Actor> StartDelete(const std::string& name, bool any_state = false) {
    auto slot = MakeSlot<ateapi::Actor>();
    ateapi::DeleteActorRequest request;
    *request.mutable_actor() = Ref(name);
    request.set_any_state(any_state);
    plane->DeleteActor(request, {}, Into(slot));
    return slot;
  }
  Slot<ateapi::Tag> StartTag(const std::string& name, const std::string& actor = "a",
                             ateapi::TagScope scope = ateapi::TAG_SCOPE_ATESPACE,
                             const CallContext& context = {}) {
    auto slot = MakeSlot<ateapi::Tag>();
    ateapi::CreateTagRequest request;
    request.mutable_tag()->mutable_metadata()->set_atespace("demo");
    request.mutable_tag()->mutable_metadata()->set_name(name);
    *request.mutable_tag()->mutable_source_actor() = Ref(actor);
    request.mutable_tag()->set_scope(scope);
    plane->CreateTag(request, context, Into(slot));
    return slot;
  }
  static torpor::v1::ForkActorRequest ForkOf(const std::string& actor, int count) {
    torpor::v1::ForkActorRequest request;
    *request.mutable_actor() = Ref(actor);
    request.set_count(count);
    return request;
  }
  Slot<torpor::v1::ForkActorResponse> StartFork(const torpor::v1::ForkActorRequest& request,
                                                const CallContext& context = {}) {
    auto slot = MakeSlot<torpor::v1::ForkActorResponse>();
    plane->ForkActor(request, context, Into(slot));
    return slot;
  }
  template <typename T>
  StatusOr<T> Await(Slot<T> slot) {
    Run();
    if (!slot->has_value()) return Fail(reasons_missing, "not answered");
    return **slot;
  }
  static constexpr Reason reasons_missing{"NOT_ANSWERED", Code::kUnknown, 0};

  FakeClock clock;
  SequentialIds ids;
  std::unique_ptr<FakeWorld> owned_world;
  std::unique_ptr<MemoryStore> owned_store;
  // What the control plane sees of the store; unset: the store itself.
  std::function<Store*(Store*)> decorate;
  Settings settings;
  std::unique_ptr<ControlPlane> plane;
  std::string lease_id;
};

}  // namespace torpor::control
