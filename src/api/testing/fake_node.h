#pragma once
// A node whose operations succeed at once, and storage that holds nothing: enough of a world for a
// real ControlPlane behind the API.

#include <memory>
#include <string>

#include "control/control_plane.h"
#include "control/node_client.h"
#include "control/snapshot_admin.h"

namespace torpor::api {

inline constexpr char kFakeNode[] = "node-1";
inline constexpr char kFakeWorkerUid[] = "11111111-1111-4111-8111-111111111111";

// While `hold` is set, operations are kept instead of answered. Thread-safe.
class FakeNode {
 public:
  void Hold() EXCLUDES(mu_);
  // Answers what was held, from the calling thread, and holds no more.
  void Release() EXCLUDES(mu_);
  control::NodeClientFactory Factory();
  // What the agent of this node would send to NodeRegistry.
  static torpor::v1::RegisterNodeRequest Registration();

 private:
  class Client;
  struct Held {
    const Client* client;
    torpor::v1::Operation operation;
    control::OperationDone done;
  };
  void Answer(const Client* client, torpor::v1::Operation operation, control::OperationDone done)
      EXCLUDES(mu_);
  // Answers what `client` still waits for with CANCELLED.
  void Forget(const Client* client) EXCLUDES(mu_);

  Mutex mu_;
  bool holding_ GUARDED_BY(mu_) = false;
  std::vector<Held> held_ GUARDED_BY(mu_);
};

class EmptyStorage : public control::SnapshotAdmin {
 public:
  void CopySnapshot(const torpor::v1::SnapshotRef&, const std::string&,
                    control::DoneStatus done) override {
    done(OkStatus());
  }
  void DeleteSnapshot(const std::string&, control::DoneStatus done) override { done(OkStatus()); }
};

}  // namespace torpor::api
