#include "worker/rpc/support_client.h"

#include <algorithm>

#include "base/log.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "torpor/v1/worker.grpc.pb.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFirstPause = milliseconds(100);
constexpr Duration kPauseMax = seconds(2);
constexpr Duration kCallTimeout = seconds(10);

// The agent has understood and will not take it.
bool IsRefusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kNotFound ||
         status.code() == Code::kFailedPrecondition || status.code() == Code::kPermissionDenied;
}

}  // namespace

struct SupportClient::Stub {
  std::unique_ptr<torpor::v1::WorkerSupport::Stub> rpc;
};

SupportClient::SupportClient(const std::string& socket_path)
    : stub_(std::make_unique<Stub>(
          Stub{torpor::v1::WorkerSupport::NewStub(rpc::Connect("unix:" + socket_path))})) {}

SupportClient::~SupportClient() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void SupportClient::Register(
    torpor::v1::WorkerInfo info,
    std::function<void(const torpor::v1::RegisterWorkerResponse&)> registered) {
  info_ = std::move(info);
  registered_ = std::move(registered);
  thread_ = std::thread([this] { Run(); });
}

void SupportClient::Report(torpor::v1::ExitReport report) {
  MutexLock lock(&mu_);
  reports_.push_back(std::move(report));
  if (reports_.size() > kReportsMax) reports_.pop_front();
  changed_.SignalAll();
}

bool SupportClient::WaitBeforeRetry(Duration* pause) {
  MonotonicTime until = Clock::Real()->Now() + *pause;
  *pause = std::min(*pause * 2, kPauseMax);
  MutexLock lock(&mu_);
  while (!stopping_ && changed_.WaitUntil(&mu_, until)) {
  }
  return !stopping_;
}

bool SupportClient::DoRegister() {
  Duration pause = kFirstPause;
  while (true) {
    grpc::ClientContext context;
    rpc::SetDeadline(&context, kCallTimeout);
    torpor::v1::RegisterWorkerResponse response;
    Status status = rpc::FromGrpc(stub_->rpc->RegisterWorker(&context, info_, &response));
    if (status.ok()) {
      LogInfo("registered",
              {{"worker", response.worker_uid()}, {"epoch", std::to_string(response.epoch())}});
      registered_(response);
      return true;
    }
    // The agent may simply start later than we did: said once it takes long.
    if (pause == kPauseMax) LogWarning("not registered yet", {{"error", status.ToString()}});
    if (!WaitBeforeRetry(&pause)) return false;
  }
}

bool SupportClient::SendReport(const torpor::v1::ExitReport& report) {
  Duration pause = kFirstPause;
  while (true) {
    grpc::ClientContext context;
    rpc::SetDeadline(&context, kCallTimeout);
    torpor::v1::ReportActorResponse response;
    Status status = rpc::FromGrpc(stub_->rpc->ReportExit(&context, report, &response));
    if (status.ok()) return true;
    LogWarning("exit report not taken",
               {{"actor", report.actor_uid()}, {"error", status.ToString()}});
    if (IsRefusal(status)) return true;
    if (!WaitBeforeRetry(&pause)) return false;
  }
}

void SupportClient::Run() {
  if (!DoRegister()) return;
  while (true) {
    torpor::v1::ExitReport report;
    {
      MutexLock lock(&mu_);
      while (reports_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      report = std::move(reports_.front());
      reports_.pop_front();
    }
    if (!SendReport(report)) return;
  }
}

}  // namespace torpor::worker
