// Tags: private copies of snapshots. As long as a copy reads or writes a snapshot, here or when it
// is taken up again, nothing deletes that snapshot.

#include <algorithm>

#include "base/log.h"
#include "control/core/golden.h"
#include "control/core/node_call.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "control/snapshot_admin.h"
#include "snapshot/format/layout.h"

namespace torpor::control {
namespace {

constexpr Duration kCopyBackoffMax = std::chrono::seconds(60);

bool IsGolden(const torpor::v1::TagRecord& tag) {
  return tag.tag().metadata().atespace() == core::kGoldenAtespace;
}

}  // namespace

void Writer::StartTagCall(std::function<StatusOr<std::string>(Txn&)> make,
                          const CallContext& context, Done<ateapi::Tag> done) {
  const WallTime deadline = AnswerBy(context, parts_.clock->WallNow());
  auto reply = std::make_shared<Reply<ateapi::Tag>>(std::move(done));
  inbox_->Post([this, make = std::move(make), deadline, reply](Txn& txn) {
    StatusOr<std::string> key =
        tag_calls_.size() < settings_.waiting_max
            ? make(txn)
            : StatusOr<std::string>(Fail(reasons::kRateLimited, "too many calls wait for tags"));
    if (!key.ok()) {
      txn.AfterCommit([reply, status = key.status()] { reply->Answer(status); });
      return;
    }
    const uint64_t id = next_waiter_++;
    tag_calls_[id] = {txn.Get<torpor::v1::TagRecord>(*key)->tag().metadata().uid(), reply};
    timers_.Set(fmt::format("k/{}", id), deadline);
  });
}

std::string Writer::PutTag(Txn& txn, ateapi::Tag tag, const torpor::v1::ActorRecord& actor,
                           const torpor::v1::BorrowedSnapshot& snapshot, bool forked) {
  std::string location = actor.storage_location();
  if (location.empty()) {  // it never ran, so what it holds is the copy of another tag
    auto source = txn.Get<torpor::v1::TagRecord>(core::Key(actor.borrowed().tag()));
    CHECK(source != nullptr);
    location = source->tag().status().storage_location();
  }
  ateapi::ResourceMetadata& metadata = *tag.mutable_metadata();
  metadata.set_uid(parts_.ids->NewUuid());
  metadata.clear_version();
  metadata.clear_create_time();
  metadata.clear_update_time();
  tag.mutable_status()->set_actor_template_uid(snapshot.template_uid());
  tag.mutable_status()->set_storage_location(location);
  torpor::v1::TagRecord record;
  *record.mutable_source() = snapshot.snapshot();
  *record.mutable_snapshot() = snapshot.snapshot();
  record.mutable_snapshot()->set_uri(
      snapshot::TagSnapshotUri(location, metadata.atespace(), metadata.uid()));
  record.set_fidelity(snapshot.fidelity());
  record.set_generation(snapshot.generation());
  record.set_template_uid(snapshot.template_uid());
  record.set_cpu_id(snapshot.cpu_id());
  record.set_forked(forked);
  const std::string key = core::Key(metadata);
  *record.mutable_tag() = std::move(tag);
  BeginCopy(txn, *txn.Put(key, std::move(record)));
  return key;
}

void Writer::RecoverTags(Txn& txn) {
  for (const auto& [key, tag] : txn.All<torpor::v1::TagRecord>()) {
    if (tag->forked() && Borrowers(txn, *tag).empty()) {
      // The fork ended with the process that it was in.
      RemoveTag(txn, *tag, Fail(reasons::kShuttingDown, "the fork was cut"));
    } else if (!tag->ready()) {
      BeginCopy(txn, *tag);
    }
  }
}

void Writer::BeginCopy(Txn& txn, const torpor::v1::TagRecord& tag) {
  const std::string uid = tag.tag().metadata().uid();
  Copy& copy = copies_[uid];
  copy.tag_key = core::Key(tag.tag().metadata());
  copy.from = tag.source();
  copy.to = tag.snapshot().uri();
  txn.AfterCommit([this, uid] { RunCopy(uid); });
}

void Writer::RunCopy(const std::string& uid) {
  auto it = copies_.find(uid);
  if (it == copies_.end() || it->second.under_way) return;
  it->second.under_way = true;
  // A copy of these: an answer that comes at once changes the table.
  const torpor::v1::SnapshotRef from = it->second.from;
  const std::string to = it->second.to;
  parts_.snapshots->CopySnapshot(from, to, [this, inbox = inbox_, uid](Status status) {
    auto shared = std::make_shared<Status>(std::move(status));
    inbox->Post([this, uid, shared](Txn& txn) { OnCopied(txn, uid, *shared); });
  });
}

void Writer::OnCopied(Txn& txn, const std::string& uid, const Status& status) {
  auto it = copies_.find(uid);
  if (it == copies_.end()) return;
  Copy& copy = it->second;
  copy.under_way = false;
  const std::string key = copy.tag_key;
  auto tag = txn.Get<torpor::v1::TagRecord>(key);
  if (tag == nullptr || tag->tag().metadata().uid() != uid) {
    copies_.erase(it);  // deleted meanwhile: what was copied is garbage
    return;
  }
  if (status.ok()) {
    copies_.erase(it);
    torpor::v1::TagRecord record = *tag;
    record.set_ready(true);
    record.clear_source();
    ateapi::ExternalSnapshot& shown = *record.mutable_tag()->mutable_status()->mutable_snapshot();
    shown.set_snapshot_uri(record.snapshot().uri());
    shown.set_content_scope(record.fidelity() == torpor::v1::FIDELITY_MEMORY
                                ? ateapi::SNAPSHOT_CONTENT_SCOPE_FULL
                                : ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
    shown.set_actor_template_uid(record.template_uid());
    AddTagEvent(txn, record, "TagReady", torpor::v1::Event::SEVERITY_INFO, "its copy is complete");
    txn.Put(key, std::move(record));
    TagEnded(txn, uid, key, OkStatus());
    if (IsGolden(*tag)) GoldenTagEnded(txn, tag->template_uid(), OkStatus());
    return;
  }
  if (!IsGolden(*tag) && core::Judge(status) == core::Verdict::kRetry) {
    timers_.Set("c/" + uid,
                core::Later(txn.now(), core::Backoff(copy.attempts++, kCopyBackoffMax)));
    copy.last_error = status;
    return;
  }
  AddTagEvent(txn, *tag, "TagFailed", torpor::v1::Event::SEVERITY_ERROR,
              std::string(status.message()));
  RemoveTag(txn, *tag, status);
  // A golden build counts attempts of its own.
  if (IsGolden(*tag)) GoldenTagEnded(txn, tag->template_uid(), status);
}

bool Writer::IsBeingCopied(const std::string& uri) const {
  return std::any_of(copies_.begin(), copies_.end(), [&](const auto& entry) {
    return entry.second.from.uri() == uri || (entry.second.under_way && entry.second.to == uri);
  });
}

void Writer::RemoveTag(Txn& txn, const torpor::v1::TagRecord& tag, const Status& why) {
  const std::string uid = tag.tag().metadata().uid();
  const std::string key = core::Key(tag.tag().metadata());
  torpor::v1::GarbageRecord garbage;
  garbage.set_id(parts_.ids->NewUuid());
  garbage.set_uri(tag.snapshot().uri());
  PutGarbage(txn, std::move(garbage));
  txn.Remove<torpor::v1::TagRecord>(key);
  timers_.Cancel("c/" + uid);
  auto copy = copies_.find(uid);
  if (copy != copies_.end() && !copy->second.under_way) copies_.erase(copy);
  TagEnded(txn, uid, key, why);
}

std::vector<std::string> Writer::Borrowers(const Txn& txn, const torpor::v1::TagRecord& tag) const {
  std::vector<std::string> keys;
  for (const auto& [key, actor] : txn.All<torpor::v1::ActorRecord>()) {
    if (actor->has_borrowed() && actor->borrowed().tag_uid() == tag.tag().metadata().uid()) {
      keys.push_back(key);
    }
  }
  return keys;
}

void Writer::ReleaseTag(Txn& txn, const torpor::v1::BorrowedSnapshot& borrowed) {
  auto tag = txn.Get<torpor::v1::TagRecord>(core::Key(borrowed.tag()));
  if (tag == nullptr || !tag->forked() || tag->tag().metadata().uid() != borrowed.tag_uid()) return;
  if (!Borrowers(txn, *tag).empty()) return;
  RemoveTag(txn, *tag, Fail(reasons::kSuperseded, "no actor of the fork needs it any more"));
}

void Writer::TagEnded(Txn& txn, const std::string& uid, const std::string& key,
                      const Status& status) {
  for (auto it = tag_calls_.begin(); it != tag_calls_.end();) {
    if (it->second.tag_uid != uid) {
      ++it;
      continue;
    }
    auto shared = std::make_shared<StatusOr<ateapi::Tag>>(ateapi::Tag());
    if (status.ok()) {
      *shared = txn.Get<torpor::v1::TagRecord>(key)->tag();
    } else {
      *shared = status;
    }
    txn.AfterCommit([reply = it->second.reply, shared] { reply->Answer(std::move(*shared)); });
    timers_.Cancel(fmt::format("k/{}", it->first));
    it = tag_calls_.erase(it);
  }
  ForkTagEnded(txn, uid, key, status);
}

void Writer::ExpireTagCall(Txn& txn, uint64_t id) {
  auto call = tag_calls_.find(id);
  if (call == tag_calls_.end()) return;
  auto copy = copies_.find(call->second.tag_uid);
  Status status = Fail(reasons::kDeadlineExceeded,
                       "the time of the call is over; the copy goes on, ask GetTag");
  if (copy != copies_.end()) {
    AddMetadata(status, "tag", copy->second.tag_key);
    if (!copy->second.last_error.ok()) {
      AddMetadata(status, "cause", ReasonOf(copy->second.last_error));
      AddMetadata(status, "cause_message", std::string(copy->second.last_error.message()));
    }
  }
  txn.AfterCommit([reply = call->second.reply, status] { reply->Answer(status); });
  tag_calls_.erase(call);
}

void Writer::AddTagEvent(Txn& txn, const torpor::v1::TagRecord& tag, const std::string& type,
                         torpor::v1::Event::Severity severity, const std::string& message) {
  if (IsGolden(tag)) return;  // its build tells
  torpor::v1::Event event;
  event.set_event_id(parts_.ids->NewUuid());
  *event.mutable_time() = ToProto(txn.now());
  event.set_severity(severity);
  event.set_type(type);
  *event.mutable_actor() = tag.tag().source_actor();
  event.set_generation(tag.generation());
  event.set_message(fmt::format("tag {}: {}", core::Key(tag.tag().metadata()), message));
  txn.AddEvent(std::move(event));
}

}  // namespace torpor::control
