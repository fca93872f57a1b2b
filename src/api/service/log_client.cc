#include "api/service/log_client.h"

#include <grpcpp/support/client_callback.h>

#include <set>

#include "model/reasons.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::api {

using torpor::v1::LogLine;
using torpor::v1::Ops;

struct LogClient::State {
  Mutex mu;
  CondVar changed;
  bool stopped GUARDED_BY(mu) = false;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels GUARDED_BY(mu);
  std::set<std::shared_ptr<grpc::ClientContext>> open GUARDED_BY(mu);
};

namespace {

Status Unreachable(const Status& status, const std::string& address) {
  if (status.code() != Code::kUnavailable || !ReasonOf(status).empty()) return status;
  return Fail(reasons::kNodeUnreachable,
              "the node agent at " + address + " does not answer; try again");
}

// One stream; deletes itself when it is done. A hold keeps it while a line is being written.
class LogCall : public grpc::ClientReadReactor<LogLine> {
 public:
  LogCall(std::shared_ptr<grpc::Channel> channel, std::string address,
          const torpor::v1::ReadLogsRequest& request, std::shared_ptr<grpc::ClientContext> context,
          std::shared_ptr<ResponseStream> stream, std::function<void()> ended)
      : stub_(Ops::NewStub(std::move(channel))),
        address_(std::move(address)),
        request_(request),
        context_(std::move(context)),
        stream_(std::move(stream)),
        ended_(std::move(ended)) {}

  void Start() {
    // The callback outlives this object, so it holds the context alone.
    stream_->OnGone([context = context_] { context->TryCancel(); });
    stub_->async()->ReadLogs(context_.get(), &request_, this);
    StartRead(&line_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    AddHold();
    stream_->Write(line_, [this](bool written) {
      if (written) {
        StartRead(&line_);
      } else {
        context_->TryCancel();
      }
      RemoveHold();
    });
  }

  void OnDone(const grpc::Status& status) override {
    stream_->Finish(Unreachable(rpc::FromGrpc(status), address_));
    stream_.reset();
    auto ended = std::move(ended_);
    delete this;
    ended();
  }

 private:
  const std::unique_ptr<Ops::Stub> stub_;
  const std::string address_;
  const torpor::v1::ReadLogsRequest request_;
  const std::shared_ptr<grpc::ClientContext> context_;
  std::shared_ptr<ResponseStream> stream_;
  std::function<void()> ended_;
  LogLine line_;
};

}  // namespace

LogClient::LogClient() : state_(std::make_shared<State>()) {}

LogClient::~LogClient() { Stop(); }

void LogClient::Read(const std::string& agent_address, const torpor::v1::ReadLogsRequest& request,
                     const Call& call, std::shared_ptr<ResponseStream> stream) {
  auto context = std::make_shared<grpc::ClientContext>();
  if (call.deadline != MonotonicTime::max()) {
    rpc::SetDeadline(context.get(), call.deadline - Clock::Real()->Now());
  }
  std::shared_ptr<grpc::Channel> channel;
  {
    MutexLock lock(&state_->mu);
    if (!state_->stopped) {
      std::shared_ptr<grpc::Channel>& known = state_->channels[agent_address];
      if (known == nullptr) known = rpc::Connect(agent_address);
      channel = known;
      state_->open.insert(context);
    }
  }
  if (channel == nullptr) {
    return stream->Finish(
        Fail(reasons::kShuttingDown, "the apiserver is shutting down; try again"));
  }
  auto ended = [state = state_, context] {
    MutexLock lock(&state->mu);
    state->open.erase(context);
    state->changed.SignalAll();
  };
  (new LogCall(std::move(channel), agent_address, request, context, std::move(stream),
               std::move(ended)))
      ->Start();
}

void LogClient::Stop() {
  MutexLock lock(&state_->mu);
  state_->stopped = true;
  for (const auto& context : state_->open) context->TryCancel();
  while (!state_->open.empty()) state_->changed.Wait(&state_->mu);
}

}  // namespace torpor::api
