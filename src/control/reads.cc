// The reads of the control plane: get and list.

#include <algorithm>

#include "control/control_plane.h"
#include "control/core/actor_step.h"
#include "control/core/invariants.h"
#include "control/core/record_view.h"
#include "control/page_token.h"
#include "control/reconciler/writer.h"
#include "control/resources.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

using core::Key;

template <typename Record>
struct Page {
  std::vector<std::shared_ptr<const Record>> records;
  std::string next_token;
};

// One page of a table in the order of its keys. `binding` is the method with its filters.
template <typename Record>
StatusOr<Page<Record>> ReadPage(const State& state, const std::string& binding, int page_size,
                                const std::string& token, const std::string& atespace,
                                const std::function<bool(const Record&)>& wanted) {
  ASSIGN_OR_RETURN(int size, PageSize(page_size));
  ASSIGN_OR_RETURN(std::string after, ReadPageToken(binding, token));
  const std::string prefix = atespace.empty() ? "" : atespace + "/";
  Page<Record> page;
  size_t bytes = 0;
  std::string last;
  MutexLock lock(&state.mu);
  const Table<Record>& table = state.table<Record>();
  auto it = after.empty() ? table.lower_bound(prefix) : table.upper_bound(after);
  for (; it != table.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    if (!wanted(*it->second.value)) continue;
    if (static_cast<int>(page.records.size()) == size || bytes > kPageBytesMax) {
      page.next_token = MakePageToken(binding, last);
      break;
    }
    bytes += it->second.value->ByteSizeLong();
    last = it->first;
    page.records.push_back(it->second.value);
  }
  return page;
}

template <typename T>
void CopyTable(const Table<T>& table, core::Rows<T>& rows) {
  rows.reserve(table.size());
  for (const auto& [key, entry] : table) rows.emplace_back(key, entry.value);
}

}  // namespace

StatusOr<ateapi::Atespace> ControlPlane::GetAtespace(const ateapi::GetAtespaceRequest& request) {
  const std::string& name = request.atespace().name();
  auto record = writer_->state().Find<torpor::v1::AtespaceRecord>(name);
  if (record != nullptr) return record->atespace();
  return Fail(reasons::kAtespaceNotFound, "no atespace " + name, {{"atespace", name}});
}

StatusOr<ateapi::ListAtespacesResponse> ControlPlane::ListAtespaces(
    const ateapi::ListAtespacesRequest& request) {
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::AtespaceRecord>(
                                  writer_->state(), "ListAtespaces", request.page_size(),
                                  request.page_token(), "", [](const auto&) { return true; }));
  ateapi::ListAtespacesResponse response;
  for (const auto& record : page.records) *response.add_atespaces() = record->atespace();
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<ateapi::ActorTemplate> ControlPlane::GetActorTemplate(
    const ateapi::GetActorTemplateRequest& request) {
  const std::string key = Key(request.actor_template());
  auto record = writer_->state().Find<torpor::v1::TemplateRecord>(key);
  if (record != nullptr) return record->actor_template();
  return Fail(reasons::kTemplateNotFound, "no actor template " + key, {{"actor_template", key}});
}

StatusOr<ateapi::ListActorTemplatesResponse> ControlPlane::ListActorTemplates(
    const ateapi::ListActorTemplatesRequest& request) {
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::TemplateRecord>(
                                  writer_->state(), "ListActorTemplates/" + request.atespace(),
                                  request.page_size(), request.page_token(), request.atespace(),
                                  [](const auto&) { return true; }));
  ateapi::ListActorTemplatesResponse response;
  for (const auto& record : page.records) {
    *response.add_actor_templates() = record->actor_template();
  }
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<ateapi::Actor> ControlPlane::GetActor(const ateapi::GetActorRequest& request) {
  const std::string key = Key(request.actor());
  auto record = writer_->state().Find<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
  return writer_->Shown(*record);
}

StatusOr<ateapi::ListActorsResponse> ControlPlane::ListActors(
    const ateapi::ListActorsRequest& request) {
  std::set<int> states(request.states().begin(), request.states().end());
  const std::string tmpl = request.has_actor_template() ? Key(request.actor_template()) : "";
  std::string binding = "ListActors/" + request.atespace() + "/" + tmpl;
  for (int state : states) binding += fmt::format("/{}", state);
  auto wanted = [&](const torpor::v1::ActorRecord& record) {
    const ateapi::Actor& actor = record.actor();
    return (states.empty() || states.count(actor.status().state()) != 0) &&
           (tmpl.empty() || Key(actor.actor_template()) == tmpl);
  };
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::ActorRecord>(
                                  writer_->state(), binding, request.page_size(),
                                  request.page_token(), request.atespace(), wanted));
  ateapi::ListActorsResponse response;
  for (const auto& record : page.records) *response.add_actors() = writer_->Shown(*record);
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<ateapi::Tag> ControlPlane::GetTag(const ateapi::GetTagRequest& request) {
  const std::string key = Key(request.tag());
  auto record = writer_->state().Find<torpor::v1::TagRecord>(key);
  if (record != nullptr) return record->tag();
  return Fail(reasons::kTagNotFound, "no tag " + key, {{"tag", key}});
}

StatusOr<ateapi::ListTagsResponse> ControlPlane::ListTags(const ateapi::ListTagsRequest& request) {
  ASSIGN_OR_RETURN(auto page,
                   ReadPage<torpor::v1::TagRecord>(
                       writer_->state(), "ListTags/" + request.atespace(), request.page_size(),
                       request.page_token(), request.atespace(), [](const auto&) { return true; }));
  ateapi::ListTagsResponse response;
  for (const auto& record : page.records) *response.add_tags() = record->tag();
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<ateapi::Worker> ControlPlane::GetWorker(const ateapi::GetWorkerRequest& request) {
  const std::string& name = request.worker().name();
  auto record = writer_->state().Find<torpor::v1::WorkerRecord>(name);
  if (record == nullptr) {
    return Fail(reasons::kWorkerNotFound, "no worker " + name, {{"worker", name}});
  }
  return RenderWorker(*record, writer_->Allocated(name));
}

StatusOr<ateapi::ListWorkersResponse> ControlPlane::ListWorkers(
    const ateapi::ListWorkersRequest& request) {
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::WorkerRecord>(
                                  writer_->state(), "ListWorkers", request.page_size(),
                                  request.page_token(), "", [](const auto&) { return true; }));
  ateapi::ListWorkersResponse response;
  for (const auto& record : page.records) {
    *response.add_workers() =
        RenderWorker(*record, writer_->Allocated(record->worker().metadata().name()));
  }
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<ateapi::ListWorkerActorAssignmentsResponse> ControlPlane::ListWorkerActorAssignments(
    const ateapi::ListWorkerActorAssignmentsRequest& request) {
  const std::string& name = request.worker().name();
  if (writer_->state().Find<torpor::v1::WorkerRecord>(name) == nullptr) {
    return Fail(reasons::kWorkerNotFound, "no worker " + name, {{"worker", name}});
  }
  auto wanted = [&](const torpor::v1::ActorRecord& record) {
    return record.has_binding() && record.binding().worker_uid() == name;
  };
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::ActorRecord>(
                                  writer_->state(), "ListWorkerActorAssignments/" + name,
                                  request.page_size(), request.page_token(), "", wanted));
  ateapi::ListWorkerActorAssignmentsResponse response;
  for (const auto& record : page.records) {
    const ateapi::ResourceMetadata& metadata = record->actor().metadata();
    ateapi::ActorAssignment& assignment = *response.add_actor_assignments();
    assignment.mutable_actor()->set_atespace(metadata.atespace());
    assignment.mutable_actor()->set_name(metadata.name());
    assignment.set_actor_uid(metadata.uid());
    *assignment.mutable_actor_template_ref() = record->actor().actor_template();
    scheduler::Amount amount{record->binding().memory_bytes(), record->binding().cpu_milli(), 1};
    *assignment.mutable_resources() = ToResources(amount).resources();
    *assignment.mutable_metadata() = metadata;
    assignment.mutable_metadata()->clear_atespace();
    assignment.mutable_metadata()->set_name(metadata.uid());
    assignment.set_worker_epoch(record->binding().worker_epoch());
  }
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<torpor::v1::ListEventsResponse> ControlPlane::ListEvents(
    const torpor::v1::ListEventsRequest& request) {
  EventQuery query;
  query.atespace = request.has_actor() ? request.actor().atespace() : request.atespace();
  query.actor_name = request.actor().name();
  query.node_name = request.node_name();
  if (request.has_start_time()) query.start = FromProto(request.start_time());
  if (request.has_end_time()) query.end = FromProto(request.end_time());
  const std::string binding =
      fmt::format("ListEvents/{}/{}/{}/{}/{}", query.atespace, query.actor_name, query.node_name,
                  request.start_time().ShortDebugString(), request.end_time().ShortDebugString());
  ASSIGN_OR_RETURN(query.limit, PageSize(request.page_size()));
  ASSIGN_OR_RETURN(std::string before, ReadPageToken(binding, request.page_token()));
  if (!before.empty()) query.before_sequence = std::strtoll(before.c_str(), nullptr, 10);
  ASSIGN_OR_RETURN(std::vector<StoredEvent> events, writer_->store().ListEvents(query));
  torpor::v1::ListEventsResponse response;
  size_t bytes = 0;
  bool cut = static_cast<int>(events.size()) == query.limit;
  int64_t last = 0;
  for (StoredEvent& event : events) {
    if (bytes > kPageBytesMax) {
      cut = true;
      break;
    }
    bytes += event.event.ByteSizeLong();
    last = event.sequence;
    *response.add_events() = std::move(event.event);
  }
  if (cut) response.set_next_page_token(MakePageToken(binding, fmt::to_string(last)));
  return response;
}

StatusOr<torpor::v1::ExplainActorResponse> ControlPlane::ExplainActor(
    const torpor::v1::ExplainActorRequest& request) {
  const std::string key = Key(request.actor());
  auto record = writer_->state().Find<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
  std::set<int> verbs(request.verbs().begin(), request.verbs().end());
  if (verbs.empty() && request.op_id().empty()) verbs.insert(torpor::v1::VERB_RESUME);
  ASSIGN_OR_RETURN(std::vector<Row> rows,
                   writer_->store().Scan(Kind::kReport, record->actor().metadata().uid() + "/", "",
                                         writer_->settings().reports_per_actor_max));
  std::vector<torpor::v1::OperationReport> reports;
  for (const Row& row : rows) {
    torpor::v1::OperationReport report;
    if (!report.ParseFromString(row.value)) {
      return Fail(reasons::kStoreCorrupt, "an operation report cannot be read");
    }
    bool wanted = request.op_id().empty() ? verbs.count(report.verb()) != 0
                                          : report.op_id() == request.op_id();
    if (wanted) reports.push_back(std::move(report));
  }
  if (record->has_operation()) {
    torpor::v1::OperationReport open = core::OpenReport(*record, writer_->clock().WallNow());
    if (request.op_id().empty() ? verbs.count(open.verb()) != 0 : open.op_id() == request.op_id()) {
      reports.push_back(std::move(open));
    }
  }
  if (!request.op_id().empty() && reports.empty()) {
    return Fail(reasons::kOperationNotFound, "no report of operation " + request.op_id());
  }
  std::sort(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
    return std::pair(FromProto(a.start_time()), a.generation()) >
           std::pair(FromProto(b.start_time()), b.generation());
  });
  torpor::v1::ExplainActorResponse response;
  *response.mutable_actor() = writer_->Shown(*record);
  size_t count = request.count() <= 0 ? 1 : static_cast<size_t>(request.count());
  for (size_t i = 0; i < reports.size() && i < count; ++i) {
    *response.add_reports() = std::move(reports[i]);
  }
  return response;
}

StatusOr<torpor::v1::ListGenerationsResponse> ControlPlane::ListGenerations(
    const torpor::v1::ListGenerationsRequest& request) {
  const std::string key = Key(request.actor());
  auto record = writer_->state().Find<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
  ASSIGN_OR_RETURN(int size, PageSize(request.page_size()));
  const std::string binding = "ListGenerations/" + record->actor().metadata().uid();
  ASSIGN_OR_RETURN(std::string after, ReadPageToken(binding, request.page_token()));
  int64_t below = after.empty() ? INT64_MAX : std::strtoll(after.c_str(), nullptr, 10);
  torpor::v1::ListGenerationsResponse response;
  for (int i = record->generations_size() - 1; i >= 0; --i) {
    const torpor::v1::Generation& generation = record->generations(i).generation();
    if (generation.generation() >= below) continue;
    if (response.generations_size() == size) {
      int64_t last = response.generations(size - 1).generation();
      response.set_next_page_token(MakePageToken(binding, fmt::to_string(last)));
      break;
    }
    *response.add_generations() = generation;
  }
  return response;
}

StatusOr<torpor::v1::Node> ControlPlane::GetNode(const torpor::v1::GetNodeRequest& request) {
  auto record = writer_->state().Find<torpor::v1::NodeRecord>(request.name());
  if (record != nullptr) return writer_->RenderNode(*record);
  return Fail(reasons::kNodeNotFound, "no node " + request.name(), {{"node", request.name()}});
}

StatusOr<torpor::v1::ListNodesResponse> ControlPlane::ListNodes(
    const torpor::v1::ListNodesRequest& request) {
  ASSIGN_OR_RETURN(auto page, ReadPage<torpor::v1::NodeRecord>(
                                  writer_->state(), "ListNodes", request.page_size(),
                                  request.page_token(), "", [](const auto&) { return true; }));
  torpor::v1::ListNodesResponse response;
  for (const auto& record : page.records) *response.add_nodes() = writer_->RenderNode(*record);
  response.set_next_page_token(page.next_token);
  return response;
}

StatusOr<torpor::v1::CheckRecordsResponse> ControlPlane::CheckRecords(
    const torpor::v1::CheckRecordsRequest& request) {
  constexpr int kFindingsMax = 1000;
  core::Records records;
  {
    const State& state = writer_->state();
    // One lock for all, so that the records belong to one commit.
    MutexLock lock(&state.mu);
    CopyTable(state.table<torpor::v1::AtespaceRecord>(), records.atespaces);
    CopyTable(state.table<torpor::v1::ActorRecord>(), records.actors);
    CopyTable(state.table<torpor::v1::TagRecord>(), records.tags);
    CopyTable(state.table<torpor::v1::NodeRecord>(), records.nodes);
    CopyTable(state.table<torpor::v1::WorkerRecord>(), records.workers);
    CopyTable(state.table<torpor::v1::GarbageRecord>(), records.garbage);
    records.allocated.insert(state.allocated.begin(), state.allocated.end());
  }
  torpor::v1::CheckRecordsResponse response;
  for (const auto& [key, record] : records.actors) {
    const bool wanted =
        request.atespace().empty() || record->actor().metadata().atespace() == request.atespace();
    response.set_actors_checked(response.actors_checked() + (wanted ? 1 : 0));
  }
  for (torpor::v1::RecordFinding& finding :
       core::CheckRecords(records, writer_->clock().WallNow(), request.atespace())) {
    if (response.findings_size() == kFindingsMax) {
      response.set_more(true);
      break;
    }
    *response.add_findings() = std::move(finding);
  }
  return response;
}

StatusOr<LogSource> ControlPlane::FindLogs(const ateapi::ObjectRef& actor) {
  const std::string key = Key(actor);
  auto record = writer_->state().Find<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
  LogSource source{record->actor(), record->last_node_name(), ""};
  auto node = writer_->state().Find<torpor::v1::NodeRecord>(source.node_name);
  if (node != nullptr) source.agent_address = node->agent_address();
  return source;
}

}  // namespace torpor::control
