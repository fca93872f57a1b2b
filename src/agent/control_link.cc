#include "agent/control_link.h"

#include <sys/utsname.h>

#include "base/log.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kCallTimeout = seconds(5);
constexpr Duration kInfoTimeout = milliseconds(500);
constexpr Duration kMaintainEvery = std::chrono::minutes(5);
constexpr Duration kPauseMin = milliseconds(50);
constexpr Duration kPauseMax = seconds(1);
constexpr Duration kReadyPauseMin = milliseconds(5);

const char* Architecture() {
#if defined(__aarch64__)
  return "arm64";
#else
  return "amd64";
#endif
}

}  // namespace

ControlLink::ControlLink(ControlLinkOptions options, NodeAgent* agent, RegistryClient* registry,
                         Workers* workers, Clock* clock)
    : options_(std::move(options)),
      agent_(agent),
      registry_(registry),
      workers_(workers),
      clock_(clock) {
  maintain_at_ = clock_->Now() + kMaintainEvery;
  lease_thread_ = std::thread([this] { LeaseLoop(); });
  report_thread_ = std::thread([this] { ReportLoop(); });
}

void ControlLink::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  workers_->Interrupt();
  agent_->operations().Wake();
  if (lease_thread_.joinable()) lease_thread_.join();
  if (report_thread_.joinable()) report_thread_.join();
}

bool ControlLink::stopping() {
  MutexLock lock(&mu_);
  return stopping_;
}

bool ControlLink::Pause(Duration pause) {
  MutexLock lock(&mu_);
  MonotonicTime until = clock_->Now() + pause;
  while (!stopping_) {
    if (!stopped_.WaitUntil(&mu_, until)) break;
  }
  return !stopping_;
}

void ControlLink::LeaseLoop() {
  Duration pause = kPauseMin;
  while (!stopping()) {
    // Taken before the list is sent: what changes during the call is sent right after it.
    const uint64_t seen = workers_->version();
    Status status = registered_ ? Renew() : Register();
    if (!status.ok()) {
      if (registered_ && status.code() == Code::kFailedPrecondition) {
        LogWarning("the lease is gone, registering anew",
                   {{"error", std::string(status.message())}});
        registered_ = false;
        continue;
      }
      if (!Pause(pause)) return;
      pause = std::min<Duration>(pause * 2, kPauseMax);
      continue;
    }
    pause = kPauseMin;
    if (clock_->Now() >= maintain_at_) {
      agent_->Maintain();
      maintain_at_ = clock_->Now() + kMaintainEvery;
    }
    WaitForNews(seen);
  }
}

// Until the next renewal is due or the workers changed. A worker says ready only after its
// registration was answered, so one that is not ready yet is asked again soon.
void ControlLink::WaitForNews(uint64_t seen) {
  const MonotonicTime due = clock_->Now() + renew_every_;
  Duration pause = kReadyPauseMin;
  while (!stopping() && workers_->version() <= seen && clock_->Now() < due) {
    const bool all_ready = workers_->AllReady();
    workers_->WaitForChange(seen, all_ready ? due : std::min(due, clock_->Now() + pause));
    pause = std::min<Duration>(pause * 2, kPauseMax);
    if (workers_->version() <= seen) workers_->Refresh(kInfoTimeout);
  }
}

Status ControlLink::Register() {
  torpor::v1::RegisterNodeRequest request;
  request.set_node_name(agent_->options().node_name);
  request.set_boot_id(agent_->options().boot_id);
  request.set_agent_address(options_.agent_address);
  request.set_version(options_.version);
  request.set_architecture(Architecture());
  utsname kernel;
  if (uname(&kernel) == 0) request.set_kernel(kernel.release);
  for (torpor::v1::WorkerInfo& info : workers_->Infos()) *request.add_workers() = std::move(info);
  *request.mutable_inventory() = agent_->GetInventory();
  ASSIGN_OR_RETURN(torpor::v1::RegisterNodeResponse response,
                   registry_->RegisterNode(request, kCallTimeout));
  // Stopped before any operation is accepted under the new lease.
  StopActors(response.stop_actor_uids());
  agent_->operations().SetLease(response.lease_id());
  if (Duration every = FromProto(response.renew_every()); every > Duration(0)) renew_every_ = every;
  registered_ = true;
  LogInfo("node registered",
          {{"node", agent_->options().node_name}, {"lease", response.lease_id()}});
  return OkStatus();
}

Status ControlLink::Renew() {
  torpor::v1::RenewLeaseRequest request;
  request.set_lease_id(agent_->operations().lease());
  request.set_boot_id(agent_->options().boot_id);
  request.set_sequence(++sequence_);
  for (torpor::v1::WorkerInfo& info : workers_->Infos()) *request.add_workers() = std::move(info);
  *request.mutable_disk() = agent_->Disk();
  ASSIGN_OR_RETURN(torpor::v1::RenewLeaseResponse response,
                   registry_->RenewLease(request, kCallTimeout));
  StopActors(response.stop_actor_uids());
  return OkStatus();
}

void ControlLink::StopActors(const google::protobuf::RepeatedPtrField<std::string>& uids) {
  for (const std::string& uid : uids) {
    Status status = agent_->StopResident(uid);
    if (!status.ok()) {
      LogWarning("an actor that has to stop does not",
                 {{"actor", uid}, {"error", std::string(status.message())}});
    }
  }
}

void ControlLink::ReportLoop() {
  while (!stopping()) {
    agent_->operations().WaitForOutcome(clock_->Now() + kMaintainEvery);
    bool all = true;
    for (const torpor::v1::Operation& operation : agent_->operations().Unacknowledged()) {
      if (stopping()) return;
      torpor::v1::ReportOperationRequest request;
      request.set_lease_id(agent_->operations().lease());
      *request.mutable_operation() = operation;
      Status status = registry_->ReportOperation(request, kCallTimeout);
      if (status.ok()) {
        agent_->Acknowledged(operation);
        continue;
      }
      if (status.code() == Code::kNotFound || status.code() == Code::kInvalidArgument) {
        // Nobody there knows the actor or the operation any more: nothing to wait for.
        agent_->NotWanted(operation);
        continue;
      }
      all = false;
      break;  // in order, so a later capture is never acknowledged before an earlier one
    }
    if (!all && !Pause(kPauseMax)) return;
  }
}

}  // namespace torpor::agent
