#include "bench/grpc_control.h"

#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::bench {
namespace {

using std::chrono::seconds;

constexpr int kWaitForCapacityS = 30;
constexpr auto kExplainLimit = seconds(10);
constexpr auto kGoldenLimit = std::chrono::minutes(5);

ateapi::ObjectRef Ref(const std::string& name) {
  ateapi::ObjectRef ref;
  ref.set_atespace(kAtespace);
  ref.set_name(name);
  return ref;
}

std::optional<double> ServerMs(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  auto it = trailers.find("x-server-elapsed-us");
  if (it == trailers.end()) return std::nullopt;
  return std::atof(std::string(it->second.data(), it->second.size()).c_str()) / 1000;
}

void AddLimit(ateapi::ActorTemplate* t, const std::string& name, const std::string& quantity) {
  auto* limit = t->mutable_resources()->add_limits();
  limit->set_name(name);
  limit->set_quantity(quantity);
}

// Where glutton keeps its files.
void AddDurableDir(ateapi::ActorTemplate* t, ateapi::Container* container) {
  auto* volume = t->add_volumes();
  volume->set_name("data");
  volume->mutable_durable_dir();
  auto* mount = container->add_volume_mounts();
  mount->set_name("data");
  mount->set_mount_path("/var/lib/glutton");
}

}  // namespace

GrpcControl::GrpcControl(Options options) : options_(std::move(options)) {
  rpc::ConnectOptions connect;
  connect.message_bytes_max = rpc::kPublicMessageBytesMax;
  connect.token = options_.token;
  auto channel = rpc::Connect(options_.endpoint, connect);
  control_ = ateapi::Control::NewStub(channel);
  ops_ = torpor::v1::Ops::NewStub(channel);
}

template <typename Request, typename Response>
Outcome GrpcControl::Call(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                          const Request& request, Response* response) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, options_.call_limit);
  Outcome outcome;
  const MonotonicTime begin = Clock::Real()->Now();
  grpc::Status status = (control_.get()->*method)(&context, request, response);
  outcome.ms = ToMs(Clock::Real()->Now() - begin);
  outcome.status = rpc::FromGrpc(status);
  outcome.server_ms = ServerMs(context);
  outcome.unexplained = !outcome.ok() && ReasonOf(outcome.status).empty();
  return outcome;
}

template <typename Request, typename Response>
Outcome GrpcControl::Lifecycle(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                               torpor::v1::Verb verb, const std::string& actor, ActorView* view) {
  Request request;
  *request.mutable_actor() = Ref(actor);
  if constexpr (std::is_same_v<Request, ateapi::ResumeActorRequest>) {
    // A queue is no failure: waiting is part of the latency.
    request.mutable_wait_for_capacity()->set_seconds(kWaitForCapacityS);
  }
  Response response;
  Outcome outcome = Call(method, request, &response);
  if (!outcome.ok()) return outcome;
  view->uid = response.actor().metadata().uid();
  view->generation = response.generation();
  view->address = response.actor().status().worker_assignment().address();
  if constexpr (std::is_same_v<Response, ateapi::ResumeActorResponse>) {
    view->resumed = response.resumed();
  }
  outcome.phases = Explain(actor, verb, response.op_id());
  return outcome;
}

std::vector<torpor::v1::Phase> GrpcControl::Explain(const std::string& actor, torpor::v1::Verb verb,
                                                    const std::string& op_id) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, kExplainLimit);
  torpor::v1::ExplainActorRequest request;
  *request.mutable_actor() = Ref(actor);
  request.add_verbs(verb);
  request.set_count(1);
  request.set_op_id(op_id);
  torpor::v1::ExplainActorResponse response;
  grpc::Status status = ops_->ExplainActor(&context, request, &response);
  // A missing explanation is no failure of the operation.
  if (!status.ok() || response.reports().empty()) return {};
  const auto& phases = response.reports(0).phases();
  return {phases.begin(), phases.end()};
}

Status GrpcControl::MakeTemplate(const Scenario& scenario, const std::string& image, bool golden) {
  ateapi::CreateAtespaceRequest atespace;
  atespace.mutable_atespace()->mutable_metadata()->set_name(kAtespace);
  ateapi::Atespace made;
  Status status = Call(&ateapi::Control::Stub::CreateAtespace, atespace, &made).status;
  if (!status.ok() && status.code() != Code::kAlreadyExists) return status;

  ateapi::CreateActorTemplateRequest request;
  ateapi::ActorTemplate* t = request.mutable_actor_template();
  t->mutable_metadata()->set_atespace(kAtespace);
  t->mutable_metadata()->set_name(options_.template_name);
  auto* container = t->add_containers();
  container->set_name(kContainer);
  container->set_image(image);
  auto* probe = container->mutable_wakeup_probe()->mutable_http_get();
  probe->set_path(kProbePath);
  probe->set_port(kActorPort);
  t->mutable_sandbox_config()->set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  t->mutable_sandbox_config()->set_config_name("gvisor");
  const bool durdir = scenario.pattern == "durdir";
  const bool files_only = durdir && scenario.durdir_template == "glutton-durdir-data";
  t->mutable_snapshot_config()->set_preferred_fidelity(files_only ? torpor::v1::FIDELITY_VOLUMES
                                                                  : torpor::v1::FIDELITY_MEMORY);
  if (durdir) AddDurableDir(t, container);
  if (scenario.freeze_after > Duration::zero()) {
    auto* after = t->mutable_idle_policy()->mutable_freeze_after();
    const auto ns = std::chrono::nanoseconds(scenario.freeze_after).count();
    after->set_seconds(ns / 1000000000);
    after->set_nanos(static_cast<int32_t>(ns % 1000000000));
  }
  AddLimit(t, "memory", std::to_string(scenario.actor_memory));
  AddLimit(t, "cpu", "1");
  t->set_http_port(kActorPort);
  if (!golden) t->mutable_golden_config()->set_disabled(true);
  ateapi::ActorTemplate response;
  RETURN_IF_ERROR(Call(&ateapi::Control::Stub::CreateActorTemplate, request, &response).status);
  return golden ? WaitForGolden() : OkStatus();
}

Status GrpcControl::WaitForGolden() {
  ateapi::GetActorTemplateRequest request;
  *request.mutable_actor_template() = Ref(options_.template_name);
  const MonotonicTime deadline = Clock::Real()->Now() + kGoldenLimit;
  while (Clock::Real()->Now() < deadline) {
    ateapi::ActorTemplate t;
    RETURN_IF_ERROR(Call(&ateapi::Control::Stub::GetActorTemplate, request, &t).status);
    const auto& golden = t.status().golden_snapshot_status();
    if (!golden.golden_tag().name().empty()) return OkStatus();
    if (!golden.error_message().empty()) {
      return Status(Code::kFailedPrecondition, "golden snapshot: " + golden.error_message());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Status(Code::kDeadlineExceeded, "the golden snapshot is not built");
}

Status GrpcControl::DeleteTemplate() {
  ateapi::DeleteActorTemplateRequest request;
  *request.mutable_actor_template() = Ref(options_.template_name);
  ateapi::ActorTemplate response;
  return Call(&ateapi::Control::Stub::DeleteActorTemplate, request, &response).status;
}

Outcome GrpcControl::Create(const std::string& actor) {
  ateapi::CreateActorRequest request;
  request.mutable_actor()->mutable_metadata()->set_atespace(kAtespace);
  request.mutable_actor()->mutable_metadata()->set_name(actor);
  *request.mutable_actor()->mutable_actor_template() = Ref(options_.template_name);
  ateapi::Actor response;
  return Call(&ateapi::Control::Stub::CreateActor, request, &response);
}

Outcome GrpcControl::Resume(const std::string& actor, ActorView* view) {
  return Lifecycle(&ateapi::Control::Stub::ResumeActor, torpor::v1::VERB_RESUME, actor, view);
}

Outcome GrpcControl::Pause(const std::string& actor, ActorView* view) {
  return Lifecycle(&ateapi::Control::Stub::PauseActor, torpor::v1::VERB_PAUSE, actor, view);
}

Outcome GrpcControl::Suspend(const std::string& actor, ActorView* view) {
  return Lifecycle(&ateapi::Control::Stub::SuspendActor, torpor::v1::VERB_SUSPEND, actor, view);
}

Outcome GrpcControl::Delete(const std::string& actor) {
  ateapi::DeleteActorRequest request;
  *request.mutable_actor() = Ref(actor);
  request.set_any_state(true);
  ateapi::Actor response;
  return Call(&ateapi::Control::Stub::DeleteActor, request, &response);
}

std::vector<torpor::v1::Phase> GrpcControl::PhasesOfLastWake(const std::string& actor) {
  return Explain(actor, torpor::v1::VERB_RESUME, "");
}

bool GrpcControl::IsCrashed(const std::string& actor) {
  ateapi::GetActorRequest request;
  *request.mutable_actor() = Ref(actor);
  ateapi::Actor response;
  return Call(&ateapi::Control::Stub::GetActor, request, &response).ok() &&
         response.status().state() == ateapi::ACTOR_STATE_CRASHED;
}

}  // namespace torpor::bench
