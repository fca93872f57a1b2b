#pragma once
// The state machine of one actor: a pure function from a record and an event to the changed record
// and effects. Nothing else changes an actor.
//
// Step(context, record, event) changes `record` in place and says what is to be done once the
// change is committed: calls to node agents, deletions in object storage, answers. Nothing is done
// before the commit, and every effect can be repeated: after a restart the event Recover gives the
// effects of the open operation again. An event that does not fit (a late answer, an exit of an
// earlier activation) changes nothing.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/uuid.h"
#include "control/settings.h"
#include "scheduler/placement.h"
#include "torpor/v1/ops.pb.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

// What the state machine asks about the rest of the world, as it is at this step.
class ClusterView {
 public:
  virtual ~ClusterView() = default;
  // `*chosen` is the worker of the decision, or null.
  virtual scheduler::Decision Place(const scheduler::Request& request,
                                    const torpor::v1::WorkerRecord** chosen) const = 0;
  // Registered, and its lease has not run out.
  virtual bool NodeAlive(const std::string& node_name) const = 0;
  // Null when no CPU has that id.
  virtual std::shared_ptr<const torpor::v1::CpuRecord> FindCpu(const std::string& id) const = 0;
};

struct Context {
  WallTime now;
  IdSource* ids = nullptr;
  const Settings* settings = nullptr;
  const torpor::v1::TemplateRecord* tmpl = nullptr;  // null: it does not exist (any more)
  const ClusterView* cluster = nullptr;
  // For the lengths of phases in reports, never for a decision; null: no time passes in a step.
  Clock* clock = nullptr;
  // The newest sign of life of the actor.
  WallTime last_active{};
};

// ---- Events ----

// The caller has checked with AnswerVerb that the verb starts in this state.
struct StartVerb {
  torpor::v1::Verb verb = torpor::v1::VERB_UNSPECIFIED;
  std::string trigger = "api";
  torpor::v1::Fidelity fidelity = torpor::v1::FIDELITY_UNSPECIFIED;  // unset: the template's
  bool any_state = false;
  std::string traceparent;
  // For the report: when the caller asked, and since when it waited for room. Unset: now.
  WallTime asked{};
  WallTime refused{};
  // Of a pause because nobody uses the actor: the newest sign of life that the decision knew. The
  // verb is refused with ACTOR_BUSY when there is a newer one.
  WallTime stamp{};
  int64_t generation = 0;  // of a rollback
};
struct CallAnswer {
  std::string op_id;
  StatusOr<torpor::v1::Operation> answer;
  bool query = false;    // of GetOperation
  bool refused = false;  // which forbade a later start
  // For the report: when the request left and when its answer came. Unset: not known, now.
  WallTime dispatched{};
  WallTime received{};
};
struct Exited {
  torpor::v1::ExitReport report;
};
// The sandboxes of the actor's worker are gone.
struct HostLost {
  std::string reason;  // a crash reason
  std::string message;
  bool rebooted = false;  // the whole machine: nothing of an open operation is left either
};
// The node does not have these local snapshots any more.
struct LocalLost {
  std::vector<std::string> names;
};
// The disk of that node is nearly full: local copies of what is also durable go.
struct CacheUnwanted {
  std::string node_name;
};
struct ObjectDeleted {
  std::string uri;
  Status status;
};
struct Tick {};
struct Recover {};
using Event = std::variant<StartVerb, CallAnswer, Exited, HostLost, LocalLost, CacheUnwanted,
                           ObjectDeleted, Tick, Recover>;

// ---- Effects ----

struct Send {
  torpor::v1::NodeCall call;
  bool query = false;   // GetOperation of it instead of the request
  bool refuse = false;  // with refuse_if_unknown
};
struct Ended {
  std::string op_id;
  torpor::v1::Verb verb;
  Status status;
  ateapi::Actor actor;  // as the operation left it
  std::vector<int64_t> lost_generations;
  // A resume that failed because its place was gone: for who waits another one is begun.
  bool place_again = false;
};
struct Told {
  std::string op_id;
  Status status;
};
struct Change {
  Status status;           // of StartVerb: not OK = nothing was begun
  bool full_only = false;  // ... because every worker that would do is full
  bool awaited = false;    // ... because a worker that would do has not reported yet
  bool dirty = false;      // `record` changed
  bool removed = false;    // the record is to be deleted
  std::vector<Send> sends;
  std::vector<std::string> delete_uris;
  std::vector<torpor::v1::GarbageRecord> garbage;
  std::vector<torpor::v1::Event> events;
  std::vector<Ended> ended;
  std::vector<torpor::v1::OperationReport> reports;
  // Nodes that could not be told to stop a sandbox: they must register anew, and learn it then,
  // before anything is placed on them again.
  std::vector<std::string> fenced_nodes;
  // Worker processes that are gone, as a node says: nothing is placed on them until it reports
  // them.
  std::vector<torpor::v1::Binding> stale_workers;
  // What the record names by an id that the store may not have yet.
  std::map<std::string, torpor::v1::CpuFeatures> cpus;
  std::vector<Told> told;  // waiting callers get this now, the operation goes on
};

// Something that CacheUnwanted of that node would take.
bool HasCache(const torpor::v1::ActorRecord& record, const std::string& node_name);

Change Step(const Context& context, torpor::v1::ActorRecord& record, const Event& event);

// What the report of the open operation says so far.
torpor::v1::OperationReport OpenReport(const torpor::v1::ActorRecord& record, WallTime now);

// When the record wants a Tick; nullopt = not by itself.
std::optional<WallTime> NextTick(const torpor::v1::ActorRecord& record);

}  // namespace torpor::control::core
