#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "api/validate/parts.h"
#include "api/validate/validate.h"
#include "model/reasons.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::api {

void CheckActor(const Field& field, const ateapi::Actor& actor, bool update) {
  CheckMetadata(field.At("metadata"), actor.has_metadata(), actor.metadata(), Scope::kAtespaced,
                update);
  CheckRef(field.At("actor_template"), actor.has_actor_template(), actor.actor_template(),
           Scope::kAtespaced);
  CheckSelector(field.At("worker_selector"), actor.has_worker_selector(), actor.worker_selector());
  if (actor.has_source_tag()) {
    CheckRef(field.At("source_tag"), true, actor.source_tag(), Scope::kAtespaced);
  }
  CheckPolicies(field, actor.idle_policy(), actor.crash_policy());
}

namespace {

using google::protobuf::Message;
using std::chrono::minutes;
using std::chrono::seconds;

void CheckRequestId(const Field& field, const std::string& id) {
  const bool well_formed = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (id.size() > 64 || !well_formed) field.Fail("must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'");
}

// The resource of a create or update: there alone are unknown fields refused, at any depth.
void CheckResource(const Field& field, bool present, const Message& resource) {
  if (present) {
    CheckUnknownFields(field, resource);
  } else {
    field.Fail("must be set");
  }
}

void Check(const Field& root, const ateapi::CreateAtespaceRequest& r) {
  const Field at = root.At("atespace");
  CheckResource(at, r.has_atespace(), r.atespace());
  CheckRequestId(root.At("request_id"), r.request_id());
  if (!r.has_atespace()) return;
  CheckMetadata(at.At("metadata"), r.atespace().has_metadata(), r.atespace().metadata(),
                Scope::kGlobal, /*update=*/false);
}

void Check(const Field& root, const ateapi::GetAtespaceRequest& r) {
  CheckRef(root.At("atespace"), r.has_atespace(), r.atespace(), Scope::kGlobal);
}

void Check(const Field& root, const ateapi::ListAtespacesRequest& r) {
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const ateapi::DeleteAtespaceRequest& r) {
  CheckRef(root.At("atespace"), r.has_atespace(), r.atespace(), Scope::kGlobal);
  CheckDeleteOptions(root.At("options"), r.options());
}

void Check(const Field& root, const ateapi::CreateActorTemplateRequest& r) {
  const Field at = root.At("actor_template");
  CheckResource(at, r.has_actor_template(), r.actor_template());
  CheckRequestId(root.At("request_id"), r.request_id());
  if (r.has_actor_template()) CheckTemplate(at, r.actor_template());
}

void Check(const Field& root, const ateapi::GetActorTemplateRequest& r) {
  CheckRef(root.At("actor_template"), r.has_actor_template(), r.actor_template(),
           Scope::kAtespaced);
}

void Check(const Field& root, const ateapi::ListActorTemplatesRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const ateapi::DeleteActorTemplateRequest& r) {
  CheckRef(root.At("actor_template"), r.has_actor_template(), r.actor_template(),
           Scope::kAtespaced);
  CheckDeleteOptions(root.At("options"), r.options());
}

void Check(const Field& root, const ateapi::CreateActorRequest& r) {
  CheckResource(root.At("actor"), r.has_actor(), r.actor());
  CheckRequestId(root.At("request_id"), r.request_id());
  if (r.has_actor()) CheckActor(root.At("actor"), r.actor(), /*update=*/false);
}

void Check(const Field& root, const ateapi::UpdateActorRequest& r) {
  CheckResource(root.At("actor"), r.has_actor(), r.actor());
  if (r.has_actor()) CheckActor(root.At("actor"), r.actor(), /*update=*/true);
}

// Requests that consist of a reference to an actor, and perhaps of more that is checked elsewhere.
template <typename Request>
void CheckActorRef(const Field& root, const Request& r) {
  CheckRef(root.At("actor"), r.has_actor(), r.actor(), Scope::kAtespaced);
}

void Check(const Field& root, const ateapi::GetActorRequest& r) { CheckActorRef(root, r); }
void Check(const Field& root, const ateapi::PauseActorRequest& r) { CheckActorRef(root, r); }
void Check(const Field& root, const ateapi::SuspendActorRequest& r) { CheckActorRef(root, r); }
void Check(const Field& root, const ateapi::RevertActorRequest& r) { CheckActorRef(root, r); }

void Check(const Field& root, const ateapi::DeleteActorRequest& r) {
  CheckActorRef(root, r);
  CheckDeleteOptions(root.At("options"), r.options());
}

void Check(const Field& root, const ateapi::ResumeActorRequest& r) {
  CheckActorRef(root, r);
  if (r.has_wait_for_capacity()) {
    CheckDuration(root.At("wait_for_capacity"), r.wait_for_capacity(), Duration(0), seconds(60),
                  /*zero=*/true);
  }
}

void Check(const Field& root, const ateapi::ListActorsRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  CheckPage(root, r.page_size(), r.page_token());
  CheckCount(root.At("states"), r.states_size(), 0, 9);
  if (r.has_actor_template()) {
    CheckRef(root.At("actor_template"), true, r.actor_template(), Scope::kAtespaced);
  }
}

void CheckTag(const Field& field, const ateapi::Tag& tag, bool update) {
  CheckMetadata(field.At("metadata"), tag.has_metadata(), tag.metadata(), Scope::kAtespaced,
                update);
  if (tag.scope() == ateapi::TAG_SCOPE_UNSPECIFIED) field.At("scope").Fail("must be set");
  CheckRef(field.At("source_actor"), tag.has_source_actor(), tag.source_actor(), Scope::kAtespaced);
  if (!tag.source_actor().atespace().empty() &&
      tag.source_actor().atespace() != tag.metadata().atespace()) {
    field.At("source_actor").At("atespace").Fail("must be the atespace of the tag");
  }
}

void Check(const Field& root, const ateapi::CreateTagRequest& r) {
  CheckResource(root.At("tag"), r.has_tag(), r.tag());
  CheckRequestId(root.At("request_id"), r.request_id());
  if (r.has_tag()) CheckTag(root.At("tag"), r.tag(), /*update=*/false);
}

void Check(const Field& root, const ateapi::UpdateTagRequest& r) {
  CheckResource(root.At("tag"), r.has_tag(), r.tag());
  if (r.has_tag()) CheckTag(root.At("tag"), r.tag(), /*update=*/true);
}

void Check(const Field& root, const ateapi::DeleteTagRequest& r) {
  CheckRef(root.At("tag"), r.has_tag(), r.tag(), Scope::kAtespaced);
  CheckDeleteOptions(root.At("options"), r.options());
}

void Check(const Field& root, const ateapi::GetTagRequest& r) {
  CheckRef(root.At("tag"), r.has_tag(), r.tag(), Scope::kAtespaced);
}

void Check(const Field& root, const ateapi::ListTagsRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const ateapi::GetWorkerRequest& r) {
  CheckRef(root.At("worker"), r.has_worker(), r.worker(), Scope::kGlobal);
}

void Check(const Field& root, const ateapi::DrainWorkerRequest& r) {
  CheckRef(root.At("worker"), r.has_worker(), r.worker(), Scope::kGlobal);
}

void Check(const Field& root, const ateapi::ListWorkersRequest& r) {
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const ateapi::ListWorkerActorAssignmentsRequest& r) {
  CheckRef(root.At("worker"), r.has_worker(), r.worker(), Scope::kGlobal);
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const torpor::v1::WaitActorRequest& r) {
  CheckActorRef(root, r);
  CheckCount(root.At("states"), r.states_size(), 1, 9);
  for (int i = 0; i < r.states_size(); ++i) {
    if (r.states(i) == 0) root.At("states").At(i).Fail("must be a state");
  }
  if (r.has_timeout()) {
    CheckDuration(root.At("timeout"), r.timeout(), Duration(0), minutes(10), /*zero=*/true);
  }
}

void Check(const Field& root, const torpor::v1::ForkActorRequest& r) {
  constexpr size_t kPrefixMax = 57;
  if (r.has_actor()) {
    CheckActorRef(root, r);
    if (!r.atespace().empty() && r.atespace() != r.actor().atespace()) {
      root.At("atespace")
          .Fail("an actor is forked into its own atespace only; a published tag goes into any");
    }
  } else if (r.has_tag()) {
    CheckRef(root.At("tag"), true, r.tag(), Scope::kAtespaced);
    if (r.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED) {
      root.At("fidelity").Fail("must not be set with a tag, which has one");
    }
  } else {
    root.At("actor").Fail("must be set, or tag");
  }
  CheckRange(root.At("count"), r.count(), 1, 100);
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  CheckLabel(root.At("name_prefix"), r.name_prefix(), Need::kMaybe);
  if (r.name_prefix().size() > kPrefixMax) {
    root.At("name_prefix").Fail("must have at most 57 characters");
  }
  if (r.names_size() > 0) {
    if (!r.name_prefix().empty()) root.At("name_prefix").Fail("must not be set with names");
    if (r.names_size() != r.count()) root.At("names").Fail("must be as many as count");
  }
  std::set<std::string> names;
  for (int i = 0; i < r.names_size(); ++i) {
    CheckLabel(root.At("names").At(i), r.names(i), Need::kSet);
    if (!names.insert(r.names(i)).second) root.At("names").At(i).Fail("is there twice");
  }
  CheckRequestId(root.At("request_id"), r.request_id());
}

void Check(const Field& root, const torpor::v1::RollbackActorRequest& r) {
  CheckActorRef(root, r);
  CheckRange(root.At("generation"), r.generation(), 1, std::numeric_limits<int64_t>::max());
  CheckUuid(root.At("uid"), r.uid(), Need::kMaybe);
  CheckRange(root.At("version"), r.version(), 0, std::numeric_limits<int64_t>::max());
  CheckRequestId(root.At("request_id"), r.request_id());
}

void Check(const Field& root, const torpor::v1::ExplainActorRequest& r) {
  CheckActorRef(root, r);
  CheckCount(root.At("verbs"), r.verbs_size(), 0, 9);
  CheckRange(root.At("count"), r.count(), 0, 20);
  CheckUuid(root.At("op_id"), r.op_id(), Need::kMaybe);
}

void Check(const Field& root, const torpor::v1::ListEventsRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  if (r.has_actor()) CheckActorRef(root, r);
  CheckSubdomain(root.At("node_name"), r.node_name(), Need::kMaybe);
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const torpor::v1::ListGenerationsRequest& r) {
  CheckActorRef(root, r);
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const torpor::v1::GetNodeRequest& r) {
  CheckSubdomain(root.At("name"), r.name(), Need::kSet);
}

void Check(const Field& root, const torpor::v1::DrainNodeRequest& r) {
  CheckSubdomain(root.At("name"), r.name(), Need::kSet);
  CheckRequestId(root.At("request_id"), r.request_id());
}

void Check(const Field& root, const torpor::v1::KeepActorAwakeRequest& r) {
  CheckActorRef(root, r);
  if (r.has_duration()) {
    CheckDuration(root.At("duration"), r.duration(), Duration(0), std::chrono::hours(24),
                  /*zero=*/true);
  }
}

void Check(const Field& root, const torpor::v1::CheckRecordsRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
}

void Check(const Field& root, const torpor::v1::WatchActorsRequest& r) {
  CheckLabel(root.At("atespace"), r.atespace(), Need::kMaybe);
  CheckCount(root.At("actors"), r.actors_size(), 0, 100);
  for (int i = 0; i < r.actors_size(); ++i) {
    CheckRef(root.At("actors").At(i), true, r.actors(i), Scope::kAtespaced);
  }
  CheckText(root.At("resume_token"), r.resume_token(), 256, Need::kMaybe);
}

void Check(const Field& root, const torpor::v1::ListNodesRequest& r) {
  CheckPage(root, r.page_size(), r.page_token());
}

void Check(const Field& root, const torpor::v1::ReadLogsRequest& r) {
  CheckActorRef(root, r);
  CheckLabel(root.At("container"), r.container(), Need::kMaybe);
  CheckRange(root.At("tail_lines"), r.tail_lines(), 0, 1000000);
}

using Checker = std::function<void(const Field&, const Message&)>;

template <typename... Requests>
std::map<const google::protobuf::Descriptor*, Checker> TableOf() {
  return {{Requests::descriptor(), [](const Field& root, const Message& message) {
             Check(root, static_cast<const Requests&>(message));
           }}...};
}

const std::map<const google::protobuf::Descriptor*, Checker>& Checkers() {
  static const auto* table = new auto(
      TableOf<
          ateapi::CreateAtespaceRequest, ateapi::GetAtespaceRequest, ateapi::ListAtespacesRequest,
          ateapi::DeleteAtespaceRequest, ateapi::CreateActorTemplateRequest,
          ateapi::GetActorTemplateRequest, ateapi::ListActorTemplatesRequest,
          ateapi::DeleteActorTemplateRequest, ateapi::CreateActorRequest, ateapi::GetActorRequest,
          ateapi::ListActorsRequest, ateapi::UpdateActorRequest, ateapi::DeleteActorRequest,
          ateapi::ResumeActorRequest, ateapi::PauseActorRequest, ateapi::SuspendActorRequest,
          ateapi::RevertActorRequest, ateapi::CreateTagRequest, ateapi::UpdateTagRequest,
          ateapi::DeleteTagRequest, torpor::v1::ForkActorRequest, torpor::v1::RollbackActorRequest,
          ateapi::GetTagRequest, ateapi::ListTagsRequest, ateapi::GetWorkerRequest,
          ateapi::ListWorkersRequest, ateapi::ListWorkerActorAssignmentsRequest,
          ateapi::DrainWorkerRequest, torpor::v1::WaitActorRequest, torpor::v1::ExplainActorRequest,
          torpor::v1::ListEventsRequest, torpor::v1::ListGenerationsRequest,
          torpor::v1::GetNodeRequest, torpor::v1::ListNodesRequest, torpor::v1::DrainNodeRequest,
          torpor::v1::KeepActorAwakeRequest, torpor::v1::CheckRecordsRequest,
          torpor::v1::WatchActorsRequest, torpor::v1::ReadLogsRequest>());
  return *table;
}

// Answers are not remembered, so a repeat would do it twice.
template <typename Request>
bool HasRequestId(const Message& request) {
  return request.GetDescriptor() == Request::descriptor() &&
         !static_cast<const Request&>(request).request_id().empty();
}

int Rank(const std::string& reason) {
  if (reason == "UNKNOWN_FIELD") return 0;
  if (reason == "FIELD_INVALID") return 1;
  return 2;
}

}  // namespace

Status Validate(const Message& request) {
  std::vector<Violation> violations;
  const Field root(&violations, "");
  CheckValues(root, request);
  auto checker = Checkers().find(request.GetDescriptor());
  if (checker == Checkers().end()) {
    return Fail(reasons::kInternal,
                "no rules for " + request.GetDescriptor()->full_name() + "; report this");
  }
  checker->second(root, request);
  if (!violations.empty()) {
    std::string reason = violations[0].reason;
    std::vector<FieldViolation> fields;
    for (Violation& violation : violations) {
      if (Rank(violation.reason) < Rank(reason)) reason = violation.reason;
      fields.push_back(std::move(violation.field));
    }
    return InvalidFields(reason, fields);
  }
  if (request.GetDescriptor() == ateapi::CreateActorTemplateRequest::descriptor()) {
    const auto& create = static_cast<const ateapi::CreateActorTemplateRequest&>(request);
    if (std::string part = NotServedYet(create.actor_template()); !part.empty()) {
      return Fail(reasons::kNotImplemented, part + " is not supported yet; leave it out");
    }
  }
  if (HasRequestId<torpor::v1::ForkActorRequest>(request) ||
      HasRequestId<torpor::v1::RollbackActorRequest>(request)) {
    return Fail(reasons::kNotImplemented,
                "request_id is not supported yet; leave it out. Names make a repeated fork "
                "ALREADY_EXISTS, version makes a repeated rollback VERSION_CONFLICT");
  }
  return OkStatus();
}

}  // namespace torpor::api
