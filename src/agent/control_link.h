#pragma once
// Keeps the control plane informed: registers the node, renews its lease, reports outcomes until
// they are acknowledged. Two threads from construction to Stop.
//
// The control plane may be away at any time and for any length; everything is tried again with
// pauses of up to a second. A lease that it does not know any more leads to a new registration.

#include <atomic>
#include <string>
#include <thread>

#include "agent/node_agent.h"
#include "agent/registry_client.h"
#include "base/status.h"
#include "base/time.h"

namespace torpor::agent {

struct ControlLinkOptions {
  std::string agent_address;  // unix:<path> where the control plane reaches the agent
  std::string version;
};

class ControlLink {
 public:
  // All outlive the link. The agent has recovered.
  ControlLink(ControlLinkOptions options, NodeAgent* agent, RegistryClient* registry,
              Workers* workers, Clock* clock);
  ~ControlLink() { Stop(); }
  // Idempotent; returns when both threads have ended.
  void Stop() EXCLUDES(mu_);

 private:
  void LeaseLoop();
  void ReportLoop();
  void WaitForNews(uint64_t seen);
  Status Register();
  Status Renew();
  void StopActors(const google::protobuf::RepeatedPtrField<std::string>& uids);
  // False when the link was stopped meanwhile.
  bool Pause(Duration pause) EXCLUDES(mu_);
  bool stopping() EXCLUDES(mu_);

  const ControlLinkOptions options_;
  NodeAgent* const agent_;
  RegistryClient* const registry_;
  Workers* const workers_;
  Clock* const clock_;

  // Of the lease thread.
  bool registered_ = false;
  int64_t sequence_ = 0;
  Duration renew_every_ = std::chrono::seconds(5);
  MonotonicTime maintain_at_{};

  Mutex mu_;
  CondVar stopped_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread lease_thread_;
  std::thread report_thread_;
};

}  // namespace torpor::agent
