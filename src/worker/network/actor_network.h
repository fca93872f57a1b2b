#pragma once
// How a worker's sandboxes get a network, and how the worker reaches into it.
//
// An ActorNetwork belongs to one activation of one actor: made before the sandbox, destroyed after
// it. Dial may be called from any thread at any time; the others by the operation that owns it.

#include <memory>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace torpor::worker {

class ActorNetwork {
 public:
  virtual ~ActorNetwork() = default;
  // For StartArgs::netns_path; empty when the guest shares the worker's namespace.
  virtual std::string netns_path() const = 0;
  // Sets the sandbox's addresses again; for StartArgs::prepare_network.
  virtual Status Prepare() = 0;
  // Begins a connection to a port of the guest: non-blocking, connecting or connected.
  virtual StatusOr<UniqueFd> Dial(int port) = 0;
  // Removes everything; takes tens of milliseconds, so not on a path somebody waits for.
  // Idempotent.
  virtual Status Remove() = 0;
};

class NetworkProvider {
 public:
  virtual ~NetworkProvider() = default;
  virtual StatusOr<std::shared_ptr<ActorNetwork>> Create(const std::string& actor_uid) = 0;
};

}  // namespace torpor::worker
