#include "control/core/invariants.h"

#include <set>

#include <fmt/format.h>

#include "control/core/record_view.h"
#include "model/actor_lifecycle.h"

namespace torpor::control::core {
namespace {

using torpor::v1::ActorRecord;
using torpor::v1::GenerationRecord;
using torpor::v1::RecordFinding;
using torpor::v1::SnapshotStorage;

// An operation is overdue so long after its deadline: one more period of whoever drives it.
constexpr Duration kDriverPeriod = std::chrono::minutes(1);

class Check {
 public:
  Check(const Records& records, WallTime now, const std::string& atespace)
      : records_(records), now_(now), atespace_(atespace) {
    for (const auto& [key, node] : records.nodes) nodes_.insert(key);
    for (const auto& [key, worker] : records.workers) workers_[key] = worker.get();
    for (const auto& [key, row] : records.atespaces) atespaces_.insert(key);
    for (const auto& [key, tag] : records.tags) tags_[tag->tag().metadata().uid()] = tag.get();
  }

  std::vector<RecordFinding> Run() {
    for (const auto& [key, actor] : records_.actors) CheckActor(key, *actor);
    for (const auto& [key, tag] : records_.tags) CheckTag(key, *tag);
    CheckWorkers();
    CheckGarbage();
    return std::move(findings_);
  }

 private:
  void Find(const std::string& rule, const std::string& kind, const std::string& object,
            const std::string& message) {
    const bool scoped = kind == "actor" || kind == "tag";
    if (scoped && !atespace_.empty() &&
        object.compare(0, atespace_.size() + 1, atespace_ + "/") != 0)
      return;
    RecordFinding& finding = findings_.emplace_back();
    finding.set_rule(rule);
    finding.set_kind(kind);
    finding.set_object(object);
    finding.set_message(message);
  }

  void CheckActor(const std::string& key, const ActorRecord& record) {
    auto find = [&](const std::string& rule, const std::string& message) {
      Find(rule, "actor", key, message);
    };
    const ateapi::Actor& actor = record.actor();
    const ateapi::ActorState state = actor.status().state();
    const std::string name = StateName(state);
    if (!uids_.insert(actor.metadata().uid()).second || actor.metadata().uid().empty()) {
      find("uid-unique", "another actor has the uid " + actor.metadata().uid());
    }
    if (atespaces_.count(actor.metadata().atespace()) == 0) {
      find("parent-exists", "its atespace does not exist");
    }
    if (record.has_operation() != IsTransitional(state)) {
      find("operation-matches-state",
           fmt::format("{} {} an operation", name, record.has_operation() ? "with" : "without"));
    }
    CheckOperation(record, find);
    CheckBinding(record, name, find);
    CheckGenerations(record, name, find);
    if (record.has_borrowed()) {
      auto tag = tags_.find(record.borrowed().tag_uid());
      if (tag == tags_.end() ||
          tag->second->snapshot().uri() != record.borrowed().snapshot().uri()) {
        find("borrowed-exists", "the tag that it borrows from is gone or has another snapshot");
      }
    }
  }

  template <typename F>
  void CheckOperation(const ActorRecord& record, const F& find) {
    if (!record.has_operation()) return;
    const torpor::v1::ActorOperation& operation = record.operation();
    // Uploads and deletions are tried until they succeed; then the last error says what is wrong.
    const bool endless = operation.step() == torpor::v1::OPERATION_STEP_UPLOAD ||
                         operation.step() == torpor::v1::OPERATION_STEP_TERMINATE ||
                         operation.step() == torpor::v1::OPERATION_STEP_DELETE;
    if (Later(FromProto(operation.deadline()), kDriverPeriod) >= now_) return;
    if (endless && operation.has_last_error()) {
      find("operation-in-time",
           fmt::format("{} is tried again and again: {}", VerbName(operation.verb()),
                       operation.last_error().message()));
    } else if (!endless || operation.has_call()) {
      find("operation-in-time",
           fmt::format("{} should have ended at {}", VerbName(operation.verb()),
                       FormatRfc3339(FromProto(operation.deadline()))));
    }
  }

  template <typename F>
  void CheckBinding(const ActorRecord& record, const std::string& state, const F& find) {
    const bool running = record.actor().status().state() == ateapi::ACTOR_STATE_RUNNING;
    if (running && !record.has_binding()) find("running-has-worker", "RUNNING without a worker");
    if (!record.has_binding()) return;
    if (!running && !IsTransitional(record.actor().status().state())) {
      find("resting-has-no-worker", state + " holds room on a worker");
    }
    const torpor::v1::Binding& binding = record.binding();
    scheduler::Amount& bound = bound_[binding.worker_uid()];
    bound.memory_bytes += binding.memory_bytes();
    bound.cpu_milli += binding.cpu_milli();
    ++bound.actors;
    auto worker = workers_.find(binding.worker_uid());
    if (worker == workers_.end()) {
      find("worker-exists", "it is bound to worker " + binding.worker_uid() + ", which is gone");
    } else if (worker->second->node_name() != binding.node_name()) {
      find("worker-on-node", fmt::format("its worker is on node {}, not {}",
                                         worker->second->node_name(), binding.node_name()));
    } else if (running && worker->second->info().epoch() > binding.worker_epoch()) {
      find("worker-epoch", "its worker was started anew since");
    }
  }

  template <typename F>
  void CheckGenerations(const ActorRecord& record, const std::string& state, const F& find) {
    int64_t last = 0;
    for (const GenerationRecord& generation : record.generations()) {
      const int64_t number = generation.generation().generation();
      if (number <= last || number > record.actor().status().generation()) {
        find("generation-order", fmt::format("generation {} after {}, the actor is at {}", number,
                                             last, record.actor().status().generation()));
      }
      last = number;
      std::set<int> kinds;
      for (const SnapshotStorage& storage : generation.generation().storages()) {
        if (!kinds.insert(storage.durability()).second) {
          find("one-storage-per-durability", fmt::format("generation {} has two", number));
        }
        CheckStorage(record, generation, storage, find);
      }
      if (kinds.empty()) find("generation-has-storage", fmt::format("generation {}", number));
    }
    const GenerationRecord* current = Current(record);
    const bool paused = record.actor().status().state() == ateapi::ACTOR_STATE_PAUSED;
    if (paused && (current == nullptr || LocalNode(record).empty())) {
      find("current-generation-complete", state + " without a complete local generation");
    }
  }

  template <typename F>
  void CheckStorage(const ActorRecord& record, const GenerationRecord& generation,
                    const SnapshotStorage& storage, const F& find) {
    const std::string number = fmt::format("generation {}", generation.generation().generation());
    if (storage.durability() == torpor::v1::DURABILITY_LOCAL) {
      if (nodes_.count(storage.node_name()) == 0) {
        find("local-on-known-node", number + " is on node '" + storage.node_name() + "'");
      }
      if (!names_.insert(storage.snapshot_name()).second) {
        find("snapshot-named-once", number + " shares the name " + storage.snapshot_name());
      }
    } else {
      if (!uris_.insert(storage.uri()).second || storage.uri().empty()) {
        find("snapshot-named-once", number + " shares the address " + storage.uri());
      }
      if (IsComplete(&storage) && generation.manifest_sha256().empty()) {
        find("durable-has-manifest", number + " is complete without a manifest");
      }
    }
    if (!IsComplete(&storage) && !record.has_operation() && record.uploads().empty()) {
      find("in-progress-is-driven", number + " is in progress and nothing drives it");
    }
  }

  void CheckTag(const std::string& key, const torpor::v1::TagRecord& tag) {
    if (!uris_.insert(tag.snapshot().uri()).second) {
      Find("tag-snapshot-not-shared", "tag", key, tag.snapshot().uri() + " is also an actor's");
    }
  }

  void CheckWorkers() {
    std::set<std::string> all;
    for (const auto& [uid, amount] : bound_) all.insert(uid);
    for (const auto& [uid, amount] : records_.allocated) all.insert(uid);
    for (const std::string& uid : all) {
      scheduler::Amount booked;
      if (auto it = records_.allocated.find(uid); it != records_.allocated.end())
        booked = it->second;
      const scheduler::Amount& bound = bound_[uid];
      if (booked.actors != bound.actors || booked.memory_bytes != bound.memory_bytes ||
          booked.cpu_milli != bound.cpu_milli) {
        Find("allocation-equals-bound", "worker", uid,
             fmt::format("{} actors are booked, {} are bound", booked.actors, bound.actors));
      }
    }
  }

  void CheckGarbage() {
    for (const auto& [id, garbage] : records_.garbage) {
      if (!garbage->uri().empty() && uris_.count(garbage->uri()) != 0) {
        Find("garbage-is-unnamed", "garbage", id, garbage->uri() + " is to be deleted and in use");
      }
      for (const std::string& name : garbage->call().delete_local().snapshot_names()) {
        if (names_.count(name) != 0) {
          Find("garbage-is-unnamed", "garbage", id, name + " is to be deleted and in use");
        }
      }
    }
  }

  const Records& records_;
  const WallTime now_;
  const std::string atespace_;
  std::set<std::string> nodes_;
  std::set<std::string> atespaces_;
  std::map<std::string, const torpor::v1::WorkerRecord*> workers_;
  std::map<std::string, const torpor::v1::TagRecord*> tags_;  // by uid
  std::set<std::string> uids_;
  std::set<std::string> names_;
  std::set<std::string> uris_;
  std::map<std::string, scheduler::Amount> bound_;
  std::vector<RecordFinding> findings_;
};

}  // namespace

std::vector<RecordFinding> CheckRecords(const Records& records, WallTime now,
                                        const std::string& atespace) {
  return Check(records, now, atespace).Run();
}

}  // namespace torpor::control::core
