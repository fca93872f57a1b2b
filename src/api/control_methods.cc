#include "api/control_methods.h"

#include <fmt/format.h>

#include "api/validate/validate.h"
#include "control/watch.h"

namespace torpor::api {
namespace {

using control::ControlPlane;

// Binds methods of the control plane to paths; the types follow from the methods.
class Binder {
 public:
  Binder(Dispatcher* dispatcher, ControlPlane* control)
      : dispatcher_(dispatcher), control_(control) {}

  template <typename Request, typename Response>
  void Quick(std::string_view path, StatusOr<Response> (ControlPlane::*method)(const Request&)) {
    dispatcher_->Quick<Request, Response>(
        path, [c = control_, method](const Request& request) { return (c->*method)(request); });
  }
  template <typename Request, typename Response>
  void Blocking(std::string_view path, StatusOr<Response> (ControlPlane::*method)(const Request&)) {
    dispatcher_->Blocking<Request, Response>(
        path, [c = control_, method](const Request& request) { return (c->*method)(request); });
  }
  template <typename Request, typename Response>
  void Waiting(std::string_view path,
               void (ControlPlane::*method)(const Request&, const control::CallContext&,
                                            control::Done<Response>)) {
    dispatcher_->Waiting<Request, Response>(
        path, [c = control_, method](const Request& request, const Call& call,
                                     std::function<void(StatusOr<Response>)> done) {
          (c->*method)(request, control::CallContext{call.deadline, call.traceparent},
                       std::move(done));
        });
  }

 private:
  Dispatcher* const dispatcher_;
  ControlPlane* const control_;
};

// One line that says why there are no others.
void Mark(const std::shared_ptr<ResponseStream>& stream, std::string_view text) {
  torpor::v1::LogLine line;
  line.set_stream("torpor");
  line.set_line(std::string(text));
  stream->Write(line, [stream](bool) { stream->Finish(OkStatus()); });
}

// One message after the other, each once the one before was taken.
void PumpWatch(const std::shared_ptr<control::ActorWatch>& watch,
               const std::shared_ptr<ResponseStream>& stream) {
  watch->Next([watch, stream](StatusOr<torpor::v1::WatchActorsResponse> message) {
    if (!message.ok()) return stream->Finish(std::move(message).status());
    stream->Write(*message, [watch, stream](bool written) {
      if (written) return PumpWatch(watch, stream);
      watch->Stop();
      stream->Finish(OkStatus());
    });
  });
}

void WatchActors(ControlPlane* control, const torpor::v1::WatchActorsRequest& request,
                 const std::shared_ptr<ResponseStream>& stream) {
  auto watch = control->WatchActors(request);
  if (!watch.ok()) return stream->Finish(std::move(watch).status());
  stream->OnGone([weak = std::weak_ptr<control::ActorWatch>(*watch)] {
    if (auto open = weak.lock()) open->Stop();
  });
  PumpWatch(*watch, stream);
}

void ReadLogs(ControlPlane* control, LogReader* logs, const torpor::v1::ReadLogsRequest& request,
              const Call& call, std::shared_ptr<ResponseStream> stream) {
  auto source = control->FindLogs(request.actor());
  if (!source.ok()) return stream->Finish(std::move(source).status());
  if (!source->agent_address.empty()) {
    return logs->Read(source->agent_address, request, call, std::move(stream));
  }
  if (source->node_name.empty()) return Mark(stream, "no logs: the actor has not run yet");
  Mark(stream, fmt::format("logs are missing: node {} is not connected", source->node_name));
}

}  // namespace

void ServeControlPlane(Dispatcher* dispatcher, ControlPlane* control, LogReader* logs) {
  Binder bind(dispatcher, control);
  bind.Blocking("/ateapi.Control/CreateAtespace", &ControlPlane::CreateAtespace);
  bind.Quick("/ateapi.Control/GetAtespace", &ControlPlane::GetAtespace);
  bind.Blocking("/ateapi.Control/ListAtespaces", &ControlPlane::ListAtespaces);
  bind.Blocking("/ateapi.Control/DeleteAtespace", &ControlPlane::DeleteAtespace);

  dispatcher->Blocking<ateapi::CreateActorTemplateRequest, ateapi::ActorTemplate>(
      "/ateapi.Control/CreateActorTemplate",
      [control](const ateapi::CreateActorTemplateRequest& request) {
        ateapi::CreateActorTemplateRequest complete = request;
        ApplyDefaults(complete.mutable_actor_template());
        return control->CreateActorTemplate(complete);
      });
  bind.Quick("/ateapi.Control/GetActorTemplate", &ControlPlane::GetActorTemplate);
  bind.Blocking("/ateapi.Control/ListActorTemplates", &ControlPlane::ListActorTemplates);
  bind.Blocking("/ateapi.Control/DeleteActorTemplate", &ControlPlane::DeleteActorTemplate);

  bind.Blocking("/ateapi.Control/CreateActor", &ControlPlane::CreateActor);
  bind.Quick("/ateapi.Control/GetActor", &ControlPlane::GetActor);
  bind.Blocking("/ateapi.Control/ListActors", &ControlPlane::ListActors);
  bind.Blocking("/ateapi.Control/UpdateActor", &ControlPlane::UpdateActor);
  bind.Waiting("/ateapi.Control/DeleteActor", &ControlPlane::DeleteActor);
  bind.Waiting("/ateapi.Control/ResumeActor", &ControlPlane::ResumeActor);
  bind.Waiting("/ateapi.Control/PauseActor", &ControlPlane::PauseActor);
  bind.Waiting("/ateapi.Control/SuspendActor", &ControlPlane::SuspendActor);
  bind.Waiting("/ateapi.Control/RevertActor", &ControlPlane::RevertActor);

  bind.Waiting("/ateapi.Control/CreateTag", &ControlPlane::CreateTag);
  bind.Blocking("/ateapi.Control/UpdateTag", &ControlPlane::UpdateTag);
  bind.Blocking("/ateapi.Control/DeleteTag", &ControlPlane::DeleteTag);
  bind.Quick("/ateapi.Control/GetTag", &ControlPlane::GetTag);
  bind.Blocking("/ateapi.Control/ListTags", &ControlPlane::ListTags);

  bind.Quick("/ateapi.Control/GetWorker", &ControlPlane::GetWorker);
  bind.Blocking("/ateapi.Control/ListWorkers", &ControlPlane::ListWorkers);
  bind.Blocking("/ateapi.Control/ListWorkerActorAssignments",
                &ControlPlane::ListWorkerActorAssignments);
  bind.Blocking("/ateapi.Control/DrainWorker", &ControlPlane::DrainWorker);

  bind.Waiting("/torpor.v1.Ops/WaitActor", &ControlPlane::WaitActor);
  bind.Waiting("/torpor.v1.Ops/ForkActor", &ControlPlane::ForkActor);
  bind.Waiting("/torpor.v1.Ops/RollbackActor", &ControlPlane::RollbackActor);
  bind.Blocking("/torpor.v1.Ops/ListEvents", &ControlPlane::ListEvents);
  bind.Blocking("/torpor.v1.Ops/ExplainActor", &ControlPlane::ExplainActor);
  bind.Blocking("/torpor.v1.Ops/ListGenerations", &ControlPlane::ListGenerations);
  bind.Blocking("/torpor.v1.Ops/KeepActorAwake", &ControlPlane::KeepActorAwake);
  bind.Blocking("/torpor.v1.Ops/DrainNode", &ControlPlane::DrainNode);
  bind.Blocking("/torpor.v1.Ops/CheckRecords", &ControlPlane::CheckRecords);
  dispatcher->Streaming<torpor::v1::WatchActorsRequest>(
      "/torpor.v1.Ops/WatchActors",
      [control](const torpor::v1::WatchActorsRequest& request, const Call&,
                std::shared_ptr<ResponseStream> stream) { WatchActors(control, request, stream); });
  bind.Quick("/torpor.v1.Ops/GetNode", &ControlPlane::GetNode);
  bind.Blocking("/torpor.v1.Ops/ListNodes", &ControlPlane::ListNodes);
  dispatcher->Streaming<torpor::v1::ReadLogsRequest>(
      "/torpor.v1.Ops/ReadLogs",
      [control, logs](const torpor::v1::ReadLogsRequest& request, const Call& call,
                      std::shared_ptr<ResponseStream> stream) {
        ReadLogs(control, logs, request, call, std::move(stream));
      });
}

}  // namespace torpor::api
