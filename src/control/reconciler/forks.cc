// Forks: new actors with the state of another one, or of a tag. All of them or none.
//
// A fork lives in this process only: what it leaves in the store when the process ends is a tag
// that nobody borrows, which the next process removes. The steps: the source is captured, unless it
// rests in object storage already; it runs on from the local generation as soon as that is
// complete; when the generation is durable it is copied for a tag; when the copy is complete, the
// children are made in one commit.

#include <algorithm>
#include <set>

#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "control/resources.h"

namespace torpor::control {
namespace {

constexpr size_t kPrefixMax = 57;
constexpr size_t kSuffix = 5;
// Once more after an upload that was given up; each capture is a stall of the source.
constexpr int kCapturesMax = 2;

// The names that were asked for, or new ones.
std::vector<std::string> ChildNames(const Txn& txn, IdSource& ids, const std::string& atespace,
                                    const torpor::v1::ForkActorRequest& request) {
  std::vector<std::string> names(request.names().begin(), request.names().end());
  if (!names.empty()) return names;
  std::string prefix = request.name_prefix();
  if (prefix.empty()) prefix = request.has_actor() ? request.actor().name() : request.tag().name();
  prefix.resize(std::min(prefix.size(), kPrefixMax));
  while (prefix.back() == '-') prefix.pop_back();
  std::set<std::string> drawn;
  while (drawn.size() < static_cast<size_t>(request.count())) {
    const std::string uuid = ids.NewUuid();
    std::string name = prefix + "-" + uuid.substr(uuid.size() - kSuffix);
    const bool taken = txn.Get<torpor::v1::ActorRecord>(core::Key(atespace, name)) != nullptr;
    if (!taken && drawn.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

std::string TargetAtespace(const torpor::v1::ForkActorRequest& request) {
  if (!request.atespace().empty()) return request.atespace();
  return request.has_actor() ? request.actor().atespace() : request.tag().atespace();
}

// What can be said before anything is begun.
Status CheckFork(const Txn& txn, const torpor::v1::ForkActorRequest& request) {
  if (request.has_actor()) {
    RETURN_IF_ERROR(CheckNotReserved(request.actor().atespace()));
  }
  const std::string atespace = TargetAtespace(request);
  RETURN_IF_ERROR(CheckNotReserved(atespace));
  if (txn.Get<torpor::v1::AtespaceRecord>(atespace) == nullptr) {
    return Fail(reasons::kParentNotFound, "no atespace " + atespace, {{"atespace", atespace}});
  }
  for (const std::string& name : request.names()) {
    const std::string key = core::Key(atespace, name);
    if (txn.Get<torpor::v1::ActorRecord>(key) == nullptr) continue;
    return Fail(reasons::kAlreadyExists,
                fmt::format("actor {} exists already; nothing was forked", key), {{"actor", key}});
  }
  return OkStatus();
}

bool IsOpen(const torpor::v1::ActorRecord& record, int64_t generation) {
  if (record.has_operation() && record.operation().generation() == generation) return true;
  return std::any_of(record.uploads().begin(), record.uploads().end(),
                     [&](const auto& upload) { return upload.generation() == generation; });
}

}  // namespace

struct Writer::Fork {
  uint64_t id = 0;
  torpor::v1::ForkActorRequest request;
  std::shared_ptr<Reply<torpor::v1::ForkActorResponse>> reply;
  std::string traceparent;
  WallTime asked;
  WallTime deadline;  // of the caller
  WallTime ends;      // then it is given up
  std::string source_key;
  std::string source_uid;   // empty: it has not been looked at yet
  bool begun = false;       // `generation` is on its way
  int captures = 0;         // so often it was begun
  int64_t generation = 0;   // that is captured for the fork; 0 = none has to be
  bool wake = false;        // the source ran and has to run again
  bool wake_tried = false;  // while it was being uploaded
  std::string tag_uid;      // of the copy
  ateapi::Actor model;      // what the children have of the source
  torpor::v1::ForkActorResponse response;
};

void Writer::StartFork(const torpor::v1::ForkActorRequest& request, const CallContext& context,
                       Done<torpor::v1::ForkActorResponse> done) {
  auto fork = std::make_shared<Fork>();
  fork->request = request;
  fork->reply = std::make_shared<Reply<torpor::v1::ForkActorResponse>>(std::move(done));
  fork->traceparent = context.traceparent;
  fork->asked = parts_.clock->WallNow();
  fork->deadline = AnswerBy(context, fork->asked);
  fork->ends = core::Later(fork->asked, settings_.wait_max);
  inbox_->Post([this, fork](Txn& txn) { BeginFork(txn, fork); });
}

void Writer::BeginFork(Txn& txn, const std::shared_ptr<Fork>& fork) {
  const bool room = forks_.size() < settings_.waiting_max;
  fork->id = next_waiter_++;
  forks_[fork->id] = fork;
  timers_.Set(fmt::format("f/{}", fork->id), fork->deadline);
  Status status = room ? CheckFork(txn, fork->request)
                       : Fail(reasons::kRateLimited, "too many forks are under way");
  if (!status.ok()) return EndFork(txn, fork, status);
  if (fork->request.has_actor()) {
    fork->source_key = core::Key(fork->request.actor());
    return LookAtFork(txn, fork);
  }
  const std::string key = core::Key(fork->request.tag());
  auto tag = txn.Get<torpor::v1::TagRecord>(key);
  if (tag == nullptr) {
    return EndFork(txn, fork, Fail(reasons::kTagNotFound, "no tag " + key, {{"tag", key}}));
  }
  const std::string template_key = state_.TemplateKeyOf(tag->template_uid());
  if (txn.Get<torpor::v1::TemplateRecord>(template_key) == nullptr) {
    return EndFork(txn, fork,
                   Fail(reasons::kTemplateMissing,
                        fmt::format("the template of tag {} does not exist any more", key)));
  }
  const size_t slash = template_key.find('/');
  fork->model.mutable_actor_template()->set_atespace(template_key.substr(0, slash));
  fork->model.mutable_actor_template()->set_name(template_key.substr(slash + 1));
  MakeChildren(txn, fork, key, /*forked=*/false);
}

void Writer::LookAtForks(Txn& txn, const std::string& actor_key) {
  std::vector<std::shared_ptr<Fork>> concerned;
  for (const auto& [id, fork] : forks_) {
    if (fork->source_key == actor_key) concerned.push_back(fork);
  }
  for (const auto& fork : concerned) LookAtFork(txn, fork);
}

void Writer::LookAtFork(Txn& txn, const std::shared_ptr<Fork>& fork) {
  if (!fork->tag_uid.empty()) return;  // the copy does not need the source any more
  const std::string& key = fork->source_key;
  auto source = txn.Get<torpor::v1::ActorRecord>(key);
  if (source != nullptr && fork->source_uid.empty()) {
    fork->source_uid = source->actor().metadata().uid();
  }
  if (source == nullptr || source->actor().metadata().uid() != fork->source_uid) {
    return EndFork(txn, fork, Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}}));
  }
  const ateapi::ActorState state = source->actor().status().state();
  if (state == ateapi::ACTOR_STATE_RESUMING || state == ateapi::ACTOR_STATE_RUNNING) {
    fork->wake = false;  // it goes on already; whoever puts it to sleep now means it
  }
  if (!fork->begun) {
    Status status = CaptureForFork(txn, *fork, *source);
    if (!status.ok()) return EndFork(txn, fork, status);
    if (!fork->begun) return;  // once the source has changed
    source = txn.Get<torpor::v1::ActorRecord>(key);
  }
  if (auto snapshot = core::DurableSnapshot(*source, fork->generation)) {
    return CopyForFork(txn, fork, *source, *std::move(snapshot));
  }
  if (fork->generation == 0) {
    return EndFork(
        txn, fork,
        Fail(reasons::kNoSnapshot,
             fmt::format("actor {} has no snapshot yet; resume it first", key), {{"actor", key}}));
  }
  if (fork->wake && !fork->wake_tried && core::IsUploading(*source)) {
    fork->wake_tried = true;
    WakeSource(txn, *fork);
    return;  // it has changed, so this is called again
  }
  if (IsOpen(*source, fork->generation)) return;
  const torpor::v1::OperationError& error = source->actor().status().last_error();
  if (!error.op_id().empty() && error.op_id() == fork->response.op_id() &&
      error.reason() != reasons::kSuperseded.name) {
    Status status = Error(static_cast<Code>(error.code()), error.reason(), error.message());
    AddMetadata(status, "actor", key);
    return EndFork(txn, fork, status);
  }
  // The upload was given up: a later capture of the source came between, or the store is away.
  if (fork->captures < kCapturesMax) {
    fork->begun = false;
    return LookAtFork(txn, fork);
  }
  EndFork(txn, fork,
          Fail(reasons::kSuperseded,
               fmt::format("generation {} of actor {} did not reach the object store, so nothing "
                           "was forked; try again",
                           fork->generation, key),
               {{"actor", key}}));
}

Status Writer::CaptureForFork(Txn& txn, Fork& fork, const torpor::v1::ActorRecord& source) {
  constexpr torpor::v1::Verb kVerb = torpor::v1::VERB_SUSPEND;
  const ateapi::ActorState state = source.actor().status().state();
  const VerbAnswer answer = AnswerVerb(state, kVerb, false, false);
  const bool again = fork.captures > 0;
  if (again && answer == VerbAnswer::kBusy) return OkStatus();
  ++fork.captures;
  fork.begun = true;
  fork.generation = 0;
  fork.wake_tried = false;
  if (answer == VerbAnswer::kOk) return OkStatus();
  if (answer != VerbAnswer::kStart && answer != VerbAnswer::kJoin) {
    return Refusal(answer, fork.source_key, source, kVerb);
  }
  if (answer == VerbAnswer::kStart) {
    fork.wake |= state == ateapi::ACTOR_STATE_RUNNING;
    core::StartVerb start;
    start.verb = kVerb;
    start.trigger = "fork";
    start.traceparent = fork.traceparent;
    start.asked = fork.asked;
    RETURN_IF_ERROR(StepActor(txn, fork.source_key, start));
  }
  auto now = txn.Get<torpor::v1::ActorRecord>(fork.source_key);
  // A paused actor may have been durable already.
  fork.generation = now->has_operation() ? now->operation().generation()
                                         : now->actor().status().last_snapshot_generation();
  fork.response.set_op_id(now->operation().op_id());
  return OkStatus();
}

void Writer::CopyForFork(Txn& txn, const std::shared_ptr<Fork>& fork,
                         const torpor::v1::ActorRecord& source,
                         torpor::v1::BorrowedSnapshot snapshot) {
  const torpor::v1::Fidelity wanted = fork->request.fidelity();
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(core::Key(source.actor().actor_template()));
  if (tmpl == nullptr) {
    return EndFork(
        txn, fork,
        Fail(reasons::kTemplateMissing,
             fmt::format("the template of actor {} does not exist any more", fork->source_key)));
  }
  if (wanted > snapshot.fidelity()) {
    return EndFork(
        txn, fork,
        Fail(reasons::kFidelityNotCaptured,
             fmt::format("the snapshot of actor {} holds {} only; leave fidelity out",
                         fork->source_key, torpor::v1::Fidelity_Name(snapshot.fidelity()))));
  }
  if (wanted == torpor::v1::FIDELITY_ROOTFS &&
      tmpl->actor_template().sandbox_config().sandbox_class() == ateapi::SANDBOX_CLASS_GVISOR) {
    return EndFork(txn, fork,
                   Fail(reasons::kFidelityUnsupported,
                        "gVisor brings back VOLUMES or MEMORY, not the root filesystem alone"));
  }
  if (wanted != torpor::v1::FIDELITY_UNSPECIFIED) snapshot.set_fidelity(wanted);
  *fork->model.mutable_actor_template() = source.actor().actor_template();
  if (source.actor().has_worker_selector()) {
    *fork->model.mutable_worker_selector() = source.actor().worker_selector();
  }
  if (source.actor().has_idle_policy()) {
    *fork->model.mutable_idle_policy() = source.actor().idle_policy();
  }
  if (source.actor().has_crash_policy()) {
    *fork->model.mutable_crash_policy() = source.actor().crash_policy();
  }
  ateapi::Tag tag;
  tag.mutable_metadata()->set_atespace(fork->request.actor().atespace());
  tag.mutable_metadata()->set_name("fork-" + parts_.ids->NewUuid());
  tag.set_scope(ateapi::TAG_SCOPE_ATESPACE);
  *tag.mutable_source_actor() = fork->request.actor();
  const std::string key = PutTag(txn, std::move(tag), source, snapshot, /*forked=*/true);
  fork->tag_uid = txn.Get<torpor::v1::TagRecord>(key)->tag().metadata().uid();
  WakeSource(txn, *fork);
}

void Writer::WakeSource(Txn& txn, Fork& fork) {
  if (!fork.wake) return;
  auto source = txn.Get<torpor::v1::ActorRecord>(fork.source_key);
  if (source == nullptr || source->actor().metadata().uid() != fork.source_uid) return;
  const ateapi::ActorState state = source->actor().status().state();
  if (AnswerVerb(state, torpor::v1::VERB_RESUME, false, core::IsUploading(*source)) !=
      VerbAnswer::kStart) {
    return;
  }
  core::StartVerb start;
  start.verb = torpor::v1::VERB_RESUME;
  start.trigger = "fork";
  start.traceparent = fork.traceparent;
  // If there is no room, the next request of a client wakes it.
  if (StepActor(txn, fork.source_key, start).ok()) fork.wake = false;
}

void Writer::ForkTagEnded(Txn& txn, const std::string& tag_uid, const std::string& tag_key,
                          const Status& status) {
  auto it = std::find_if(forks_.begin(), forks_.end(),
                         [&](const auto& entry) { return entry.second->tag_uid == tag_uid; });
  if (it == forks_.end()) return;
  const std::shared_ptr<Fork> fork = it->second;
  if (!status.ok()) return EndFork(txn, fork, status);
  MakeChildren(txn, fork, tag_key, /*forked=*/true);
}

void Writer::MakeChildren(Txn& txn, const std::shared_ptr<Fork>& fork, const std::string& tag_key,
                          bool forked) {
  // Names may have been taken since they were looked at; after this nothing fails for one child
  // only.
  Status status = CheckFork(txn, fork->request);
  if (!status.ok()) return EndFork(txn, fork, status);
  auto tag = txn.Get<torpor::v1::TagRecord>(tag_key);
  const std::string atespace = TargetAtespace(fork->request);
  for (const std::string& name : ChildNames(txn, *parts_.ids, atespace, fork->request)) {
    ateapi::CreateActorRequest create;
    *create.mutable_actor() = fork->model;
    create.mutable_actor()->mutable_metadata()->set_atespace(atespace);
    create.mutable_actor()->mutable_metadata()->set_name(name);
    create.mutable_actor()->mutable_source_tag()->set_atespace(tag->tag().metadata().atespace());
    create.mutable_actor()->mutable_source_tag()->set_name(tag->tag().metadata().name());
    auto child = CreateActor(*this, txn, create, forked);
    if (!child.ok()) return EndFork(txn, fork, child.status());
    *fork->response.add_actors() = *std::move(child);
  }
  fork->response.mutable_tag()->set_atespace(tag->tag().metadata().atespace());
  fork->response.mutable_tag()->set_name(tag->tag().metadata().name());
  fork->response.set_source_generation(tag->generation());
  AddTagEvent(txn, *tag, "ActorForked", torpor::v1::Event::SEVERITY_INFO,
              fmt::format("{} actors start from it", fork->response.actors_size()));
  EndFork(txn, fork, OkStatus());
}

void Writer::EndFork(Txn& txn, const std::shared_ptr<Fork>& fork, const Status& status) {
  if (forks_.erase(fork->id) == 0) return;
  timers_.Cancel(fmt::format("f/{}", fork->id));
  WakeSource(txn, *fork);
  if (!status.ok() && !fork->tag_uid.empty()) {
    for (const auto& [key, tag] : txn.All<torpor::v1::TagRecord>()) {
      if (tag->tag().metadata().uid() == fork->tag_uid) RemoveTag(txn, *tag, status);
    }
  }
  txn.AfterCommit([fork, status] {
    if (status.ok()) {
      fork->reply->Answer(std::move(fork->response));
    } else {
      fork->reply->Answer(status);
    }
  });
}

void Writer::ExpireFork(Txn& txn, uint64_t id) {
  auto it = forks_.find(id);
  if (it == forks_.end()) return;
  const std::shared_ptr<Fork> fork = it->second;
  if (txn.now() >= fork->ends) {
    return EndFork(txn, fork,
                   Fail(reasons::kDeadlineExceeded,
                        "the source did not reach the object store in time; nothing was forked",
                        {{"op_id", fork->response.op_id()}}));
  }
  Status status = Fail(reasons::kDeadlineExceeded,
                       "the time of the call is over; the fork goes on, ask ListActors");
  if (!fork->response.op_id().empty()) AddMetadata(status, "op_id", fork->response.op_id());
  txn.AfterCommit([fork, status] { fork->reply->Answer(status); });
  timers_.Set(fmt::format("f/{}", id), fork->ends);
}

}  // namespace torpor::control
