#include "apps/up/local_client.h"

#include "ateapi/ateapi.grpc.pb.h"
#include "base/sync.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::up {

using std::chrono::seconds;

struct LocalClient::Stubs {
  std::unique_ptr<ateapi::Control::Stub> control;
};

LocalClient::LocalClient(const std::string& api_socket) : stubs_(std::make_unique<Stubs>()) {
  stubs_->control = ateapi::Control::NewStub(rpc::Connect("unix:" + api_socket));
}

LocalClient::~LocalClient() = default;

Status LocalClient::CheckReady(WallTime since) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, seconds(1));
  ateapi::ListWorkersResponse response;
  RETURN_IF_ERROR(rpc::FromGrpc(stubs_->control->ListWorkers(&context, {}, &response)));
  for (const auto& worker : response.workers()) {
    if (worker.status().state() == ateapi::WORKER_STATE_ACTIVE &&
        worker.status().capacity().actors() > 0 &&
        FromProto(worker.metadata().update_time()) >= since) {
      return OkStatus();
    }
  }
  return Error(Code::kUnavailable, "NO_CAPACITY", "no worker has registered yet");
}

Status LocalClient::MakeAtespace(const std::string& name) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, seconds(10));
  ateapi::CreateAtespaceRequest request;
  request.mutable_atespace()->mutable_metadata()->set_name(name);
  ateapi::Atespace response;
  Status status = rpc::FromGrpc(stubs_->control->CreateAtespace(&context, request, &response));
  return status.code() == Code::kAlreadyExists ? OkStatus() : status;
}

std::vector<LocalClient::Outcome> LocalClient::SuspendAll(MonotonicTime deadline) {
  struct Call {
    grpc::ClientContext context;
    ateapi::SuspendActorRequest request;
    ateapi::SuspendActorResponse response;
    Outcome outcome;
  };
  std::vector<Outcome> outcomes;
  std::deque<Call> calls;
  ateapi::ListActorsRequest list;
  list.add_states(ateapi::ACTOR_STATE_RUNNING);
  do {
    grpc::ClientContext context;
    rpc::SetDeadline(&context, seconds(5));
    ateapi::ListActorsResponse response;
    Status status = rpc::FromGrpc(stubs_->control->ListActors(&context, list, &response));
    if (!status.ok()) {
      outcomes.push_back({"(list of actors)", std::move(status)});
      return outcomes;
    }
    for (const auto& actor : response.actors()) {
      Call& call = calls.emplace_back();
      call.request.mutable_actor()->set_atespace(actor.metadata().atespace());
      call.request.mutable_actor()->set_name(actor.metadata().name());
      call.outcome.actor = actor.metadata().atespace() + "/" + actor.metadata().name();
    }
    list.set_page_token(response.next_page_token());
  } while (!list.page_token().empty());

  Mutex mu;
  CondVar ended;
  size_t open = calls.size();
  Duration left = std::max<Duration>(deadline - Clock::Real()->Now(), seconds(1));
  for (Call& call : calls) {
    rpc::SetDeadline(&call.context, left);
    stubs_->control->async()->SuspendActor(&call.context, &call.request, &call.response,
                                           [&](const grpc::Status& status) {
                                             MutexLock lock(&mu);
                                             call.outcome.status = rpc::FromGrpc(status);
                                             --open;
                                             ended.SignalAll();
                                           });
  }
  MutexLock lock(&mu);
  while (open > 0) ended.Wait(&mu);
  for (Call& call : calls) outcomes.push_back(std::move(call.outcome));
  return outcomes;
}

}  // namespace torpor::up
