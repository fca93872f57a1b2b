// Tags: what clients are told, and that nobody who starts from one is stranded.

#include "control/testing/interleaving.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

class Tags : public Interleaving {
 protected:
  // Actor a with a durable generation of 5, SUSPENDED.
  void MakeSource() {
    MakeAll();
    RunsWith(5);
    ASSERT_THAT(Await(StartSuspend("a")), IsOk());
  }
  // Resumes it and says which state it has.
  int64_t ValueOf(const std::string& name) {
    EXPECT_THAT(Await(StartResume(name)), IsOk());
    return world().sandboxes[Uid(name)].value;
  }
  // It has a generation of its own afterwards.
  void Suspend(const std::string& name) { EXPECT_THAT(Await(StartSuspend(name)), IsOk()); }
  StatusOr<ateapi::Tag> Update(ateapi::Tag tag) {
    ateapi::UpdateTagRequest request;
    *request.mutable_tag() = std::move(tag);
    return plane->UpdateTag(request);
  }
  size_t ListedTags() {
    auto tags = plane->ListTags({});
    EXPECT_THAT(tags, IsOk());
    return static_cast<size_t>(tags->tags_size());
  }
};

TEST_F(Tags, CreateNeedsASnapshotInObjectStorage) {
  MakeAll();
  EXPECT_THAT(Await(StartTag("t", "none")),
              HasReason(Code::kFailedPrecondition, "ACTOR_NOT_FOUND"));
  EXPECT_THAT(Await(StartTag("t")), HasReason(Code::kFailedPrecondition, "NO_SNAPSHOT"));
  RunsWith(5);
  EXPECT_THAT(Await(StartTag("t")), HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
  ASSERT_OK(Await(StartPause("a")));
  auto refused = Await(StartTag("t")).status();
  EXPECT_THAT(refused, HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
  EXPECT_THAT(refused, MessageHas("suspend it first"));
  EXPECT_EQ(ListedTags(), 0u);
  ateapi::CreateTagRequest request;
  request.mutable_tag()->mutable_metadata()->set_atespace("none");
  request.mutable_tag()->mutable_metadata()->set_name("t");
  *request.mutable_tag()->mutable_source_actor() = Ref("a", "none");
  auto slot = MakeSlot<ateapi::Tag>();
  plane->CreateTag(request, {}, Into(slot));
  EXPECT_THAT(Await(slot), HasReason(Code::kFailedPrecondition, "PARENT_NOT_FOUND"));
  request.mutable_tag()->mutable_metadata()->set_atespace("ate-golden");
  slot = MakeSlot<ateapi::Tag>();
  plane->CreateTag(request, {}, Into(slot));
  EXPECT_THAT(Await(slot), HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
}

TEST_F(Tags, CreateAnswersWhenTheCopyIsComplete) {
  MakeSource();
  auto slot = StartTag("t");
  while (plane->RunReady()) {
  }
  EXPECT_FALSE(slot->has_value());
  ASSERT_OK_AND_ASSIGN(auto copying, GetTag("t"));
  EXPECT_FALSE(copying.status().has_snapshot());
  EXPECT_THAT(MakeActorFrom("t", "b"), HasReason(Code::kFailedPrecondition, "TAG_NOT_READY"));
  EXPECT_THAT(Update(copying), HasReason(Code::kFailedPrecondition, "TAG_NOT_READY"));
  ASSERT_OK_AND_ASSIGN(auto tag, Await(slot));
  EXPECT_EQ(tag.source_actor().name(), "a");
  EXPECT_EQ(tag.status().actor_template_uid(), GetTemplate().metadata().uid());
  EXPECT_EQ(tag.status().storage_location(), "file:///store");
  EXPECT_EQ(tag.status().snapshot().content_scope(), ateapi::SNAPSHOT_CONTENT_SCOPE_FULL);
  EXPECT_EQ(world().objects.count(tag.status().snapshot().snapshot_uri()), 1u);
  EXPECT_EQ(world().objects.size(), 2u) << "a private copy";
  EXPECT_THAT(Await(StartTag("t")), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  CheckRules();
}

TEST_F(Tags, UpdateChangesTheScopeOnly) {
  MakeSource();
  ASSERT_OK_AND_ASSIGN(auto tag, Await(StartTag("t")));
  ateapi::Tag changed = tag;
  changed.set_scope(ateapi::TAG_SCOPE_PUBLISHED);
  ASSERT_OK_AND_ASSIGN(auto updated, Update(changed));
  EXPECT_EQ(updated.scope(), ateapi::TAG_SCOPE_PUBLISHED);
  EXPECT_EQ(updated.status().snapshot().snapshot_uri(), tag.status().snapshot().snapshot_uri());
  EXPECT_THAT(Update(changed), HasReason(Code::kAborted, "VERSION_CONFLICT"));
  changed = updated;
  changed.mutable_metadata()->set_uid("00000000-0000-4000-8000-ffffffffffff");
  EXPECT_THAT(Update(changed), HasReason(Code::kAborted, "UID_CONFLICT"));
  changed.mutable_metadata()->clear_uid();
  EXPECT_THAT(Update(changed), HasReason(Code::kInvalidArgument, "PRECONDITION_MISSING"));
  changed = updated;
  *changed.mutable_source_actor() = Ref("b");
  EXPECT_THAT(Update(changed), HasReason(Code::kInvalidArgument, "FIELD_IMMUTABLE"));
  changed = updated;
  changed.mutable_metadata()->set_name("none");
  EXPECT_THAT(Update(changed), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
}

TEST_F(Tags, ScopeAndTemplateDecideWhoMayStartFromIt) {
  MakeSource();
  MakeAtespace("other");
  ASSERT_OK_AND_ASSIGN(auto tag, Await(StartTag("t")));
  EXPECT_THAT(MakeActorFrom("t", "b", "other"),
              HasReason(Code::kFailedPrecondition, "TAG_NOT_PUBLISHED"));
  tag.set_scope(ateapi::TAG_SCOPE_PUBLISHED);
  ASSERT_OK(Update(tag));
  EXPECT_OK(MakeActorFrom("t", "b", "other"));
  ASSERT_OK(MakeTemplate(Template("second")));
  ateapi::CreateActorRequest request;
  request.mutable_actor()->mutable_metadata()->set_atespace("demo");
  request.mutable_actor()->mutable_metadata()->set_name("c");
  *request.mutable_actor()->mutable_actor_template() = Ref("second");
  *request.mutable_actor()->mutable_source_tag() = Ref("t");
  EXPECT_THAT(plane->CreateActor(request),
              HasReason(Code::kFailedPrecondition, "TAG_TEMPLATE_MISMATCH"));
}

TEST_F(Tags, A9_TagDeleteStrandsBorrowers) {
  MakeSource();
  ASSERT_OK_AND_ASSIGN(auto tag, Await(StartTag("t")));
  ASSERT_OK(Await(StartDelete("a")));
  const std::string uri = tag.status().snapshot().snapshot_uri();
  for (const char* name : {"b", "c", "d"}) ASSERT_OK(MakeActorFrom("t", name));
  auto refused = DeleteTag("t").status();
  EXPECT_THAT(refused, HasReason(Code::kFailedPrecondition, "TAG_IN_USE"));
  for (const char* name : {"demo/b", "demo/c", "demo/d"}) EXPECT_THAT(refused, MessageHas(name));
  for (const char* name : {"b", "c", "d"}) EXPECT_EQ(ValueOf(name), 5);
  Suspend("b");
  ASSERT_OK(Await(StartPause("c")));
  EXPECT_THAT(DeleteTag("t").status(), MessageHas("demo/c, demo/d start")) << "not b any more";
  ASSERT_OK(Await(StartSuspend("c")));
  ASSERT_OK(Await(StartDelete("d", /*any_state=*/true)));
  ASSERT_OK(DeleteTag("t"));
  EXPECT_THAT(GetTag("t"), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
  EXPECT_THAT(DeleteTag("t"), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
  Run();
  EXPECT_EQ(world().objects.count(uri), 0u);
  for (const char* name : {"b", "c"}) EXPECT_EQ(ValueOf(name), 5);
  CheckRules();
}

// What a crash or a revert goes back to is still the tag's.
TEST_F(Tags, ABorrowerThatCrashedStillBorrows) {
  MakeSource();
  ASSERT_OK(Await(StartTag("t")));
  ASSERT_OK(MakeActorFrom("t", "b"));
  EXPECT_EQ(ValueOf("b"), 5);
  world().sandboxes[Uid("b")].value = 6;
  ASSERT_OK(Await(StartPause("b")));
  EXPECT_THAT(DeleteTag("t"), HasReason(Code::kFailedPrecondition, "TAG_IN_USE"));
  ASSERT_OK(Await(StartRevert("b")));
  EXPECT_THAT(DeleteTag("t"), HasReason(Code::kFailedPrecondition, "TAG_IN_USE"));
  EXPECT_EQ(ValueOf("b"), 5);
}

TEST_F(Tags, DeletePreconditions) {
  MakeSource();
  ASSERT_OK_AND_ASSIGN(auto tag, Await(StartTag("t")));
  ateapi::DeleteTagRequest request;
  *request.mutable_tag() = Ref("t");
  request.mutable_options()->set_version(tag.metadata().version() + 1);
  EXPECT_THAT(plane->DeleteTag(request), HasReason(Code::kAborted, "VERSION_CONFLICT"));
  *request.mutable_tag() = Ref("t", "ate-golden");
  EXPECT_THAT(plane->DeleteTag(request), HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
  ateapi::DeleteAtespaceRequest atespace;
  atespace.mutable_atespace()->set_name("demo");
  EXPECT_THAT(plane->DeleteAtespace(atespace).status(), MessageHas("1 tags"));
}

TEST_F(Tags, F18_HalfCopiedTag) {
  MakeSource();
  world().FailNext("Copy", Fail(reasons::kObjectStorageUnavailable, "503"), 3);
  auto slot = StartTag("t", "a", ateapi::TAG_SCOPE_ATESPACE,
                       CallContext{clock.Now() + std::chrono::milliseconds(100), {}});
  Run();
  EXPECT_THAT(MakeActorFrom("t", "b"), HasReason(Code::kFailedPrecondition, "TAG_NOT_READY"));
  RunFor(std::chrono::milliseconds(200));
  ASSERT_TRUE(slot->has_value());
  EXPECT_THAT(**slot, HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_EQ(MetadataOf((*slot)->status())["cause"], "OBJECT_STORAGE_UNAVAILABLE");
  RunFor(std::chrono::seconds(10));
  ASSERT_OK_AND_ASSIGN(auto tag, GetTag("t"));
  EXPECT_TRUE(tag.status().has_snapshot()) << "the copy went on";
  ASSERT_OK(MakeActorFrom("t", "b"));
  EXPECT_EQ(ValueOf("b"), 5);
  EXPECT_EQ(world().objects.size(), 2u);
}

TEST_F(Tags, ACopyThatCannotSucceedLeavesNoTag) {
  MakeSource();
  world().FailNext("Copy", Fail(reasons::kSnapshotCorrupt, "object a has 3 bytes, not 4"));
  EXPECT_THAT(Await(StartTag("t")), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(GetTag("t"), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
  EXPECT_EQ(world().objects.size(), 1u);
  EXPECT_OK(Await(StartTag("t"))) << "the name is free again";
}

TEST_F(Tags, ARestartTakesTheCopyUp) {
  MakeSource();
  auto slot = StartTag("t");
  plane->RunReady();
  Restart();
  EXPECT_THAT(**slot, HasReason(Code::kUnavailable, "SHUTTING_DOWN"));
  Register();
  RunFor(std::chrono::seconds(1));
  ASSERT_OK_AND_ASSIGN(auto tag, GetTag("t"));
  EXPECT_TRUE(tag.status().has_snapshot());
  CheckRules();
}

// An actor that never ran holds the copy of the tag that it was made from.
TEST_F(Tags, ATagOfAnActorThatNeverRan) {
  MakeSource();
  ASSERT_OK(Await(StartTag("first")));
  ASSERT_OK(MakeActorFrom("first", "b"));
  auto second = StartTag("second", "b");
  plane->RunReady();
  ASSERT_OK(Await(StartDelete("b")));
  ASSERT_OK(DeleteTag("first"));
  RunFor(std::chrono::minutes(6));
  ASSERT_OK(Await(second));
  EXPECT_THAT(GetTag("first"), HasReason(Code::kNotFound, "TAG_NOT_FOUND"));
  EXPECT_EQ(world().objects.size(), 2u) << "the source's and the second tag's";
  ASSERT_OK(MakeActorFrom("second", "c"));
  EXPECT_EQ(ValueOf("c"), 5);
}

// ---- what may meet a copy ----

// The source goes on, and its older generations are removed; or it is deleted.
TEST_F(Tags, TheSourceChangesDuringTheCopy) {
  for (bool removed : {false, true}) {
    Slot<ateapi::Tag> slot;
    EveryOrder(
        "nnntx",
        [&] {
          RunsWith(5);
          ASSERT_THAT(Await(StartSuspend("a")), IsOk());
          slot = StartTag("t");
          plane->RunReady();
        },
        [&](char letter) {
          if (letter == 'n') Step();
          if (letter == 't') Time();
          if (letter == 'x' && removed) StartDelete("a");
          if (letter == 'x' && !removed) {
            const size_t copies = world().queued();
            for (int i = 0; i < 2; ++i) {  // keep_generations is 1
              StartResume("a");
              while (plane->RunReady() ||
                     (world().queued() > copies && (world().RunAt(copies), true))) {
              }
              world().sandboxes[uid].value = 8 + i;
              StartSuspend("a");
              while (plane->RunReady() ||
                     (world().queued() > copies && (world().RunAt(copies), true))) {
              }
            }
          }
        },
        [&] {
          RunFor(std::chrono::minutes(6));
          ASSERT_TRUE(slot->has_value());
          ASSERT_OK(**slot);
          EXPECT_EQ(Exists(), !removed);
          ASSERT_OK(MakeActorFrom("t", "b"));
          EXPECT_EQ(ValueOf("b"), 5) << "the state that was tagged";
          EXPECT_EQ(world().objects.size(), removed ? 1u : 3u) << "nothing is left over";
        });
  }
}

TEST_F(Tags, DeletedWhileItIsCopied) {
  Slot<ateapi::Tag> slot;
  EveryOrder(
      "nnlxt",
      [&] {
        RunsWith(5);
        ASSERT_THAT(Await(StartSuspend("a")), IsOk());
        slot = StartTag("t");
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 'l') Step(Fate::kHoldReply);
        if (letter == 't') Time();
        if (letter == 'x') {
          EXPECT_THAT(DeleteTag("t"), IsOk());
        }
      },
      [&] {
        RunFor(std::chrono::minutes(6));
        ASSERT_TRUE(slot->has_value());
        if (!(*slot)->ok()) {
          EXPECT_THAT(**slot, HasReason(Code::kAborted, "SUPERSEDED"));
        }
        EXPECT_EQ(ListedTags(), 0u);
        EXPECT_EQ(world().objects.size(), 1u) << "the copy is garbage, the source is not";
        EXPECT_EQ(ValueAfterWake(), 5);
      });
}

}  // namespace
}  // namespace torpor::control
