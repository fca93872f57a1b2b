#include "worker/request_check.h"

#include <algorithm>
#include <set>

#include "base/time.h"
#include "model/names.h"
#include "worker/volumes.h"

namespace torpor::worker {
namespace {

using torpor::v1::ActorDirs;

constexpr int kContainersMax = 16;
constexpr int kFilesMax = 256;

class Checker {
 public:
  void Require(bool good, std::string field, std::string description) {
    if (!good) bad_.push_back({std::move(field), std::move(description)});
  }
  // `path` lies below `root`; empty is allowed unless `required`.
  void Below(const std::string& path, const std::string& root, const std::string& field,
             bool required) {
    if (path.empty() && !required) return;
    Require(IsCleanRelativePath(path) && path.size() > root.size() + 1 &&
                path.compare(0, root.size() + 1, root + "/") == 0,
            field, "must be a clean path below dirs.root");
  }
  // The root of an actor ends with its uid, so that a mix-up of two actors is noticed here.
  void Root(const ActorDirs& dirs, const std::string& uid) {
    const std::string& root = dirs.root();
    Require(IsCleanRelativePath(root) && root.size() > uid.size() &&
                root.compare(root.size() - uid.size() - 1, std::string::npos, "/" + uid) == 0,
            "dirs.root", "must be a clean path that ends with the actor's uid");
  }
  Status Result() const { return bad_.empty() ? OkStatus() : InvalidFields("FIELD_INVALID", bad_); }

 private:
  std::vector<FieldViolation> bad_;
};

bool IsPort(int port) { return port >= 1 && port <= 65535; }

// What goes into the request line of a probe.
bool IsProbePath(const std::string& path) {
  if (path.empty()) return true;
  return path[0] == '/' && path.size() <= 1024 &&
         std::all_of(path.begin(), path.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

void CheckSpec(const torpor::v1::WorkloadSpec& spec, Checker& check) {
  check.Require(spec.containers_size() >= 1 && spec.containers_size() <= kContainersMax,
                "spec.containers", "must be 1 to 16");
  check.Require(spec.http_port() == 0 || IsPort(spec.http_port()), "spec.http_port",
                "must be a port");
  check.Require(spec.memory_bytes() >= 0, "spec.memory_bytes", "must not be negative");
  check.Require(spec.cpu_milli() >= 0, "spec.cpu_milli", "must not be negative");
  check.Require(FromProto(spec.freeze_after()) >= Duration::zero(), "spec.freeze_after",
                "must not be negative");
  std::set<std::string> volumes;
  for (const torpor::v1::VolumeSpec& volume : spec.volumes()) {
    check.Require(IsLabel(volume.name()) && volumes.insert(volume.name()).second,
                  "spec.volumes.name", "must be a label that no other volume has");
  }
  std::set<std::string> names;
  for (const torpor::v1::ContainerSpec& container : spec.containers()) {
    check.Require(IsLabel(container.name()) && names.insert(container.name()).second,
                  "spec.containers.name", "must be a label that no other container has");
    if (!container.has_wakeup_probe()) continue;
    const ateapi::HTTPGetAction& get = container.wakeup_probe().http_get();
    check.Require(IsPort(get.port()), "spec.containers.wakeup_probe.http_get.port",
                  "must be a port");
    check.Require(IsProbePath(get.path()), "spec.containers.wakeup_probe.http_get.path",
                  "must begin with / and be printable");
    check.Require(container.wakeup_probe().timeout_seconds() >= 0 &&
                      container.wakeup_probe().timeout_seconds() <= 3600,
                  "spec.containers.wakeup_probe.timeout_seconds", "must be 0 to 3600");
  }
}

}  // namespace

Status CheckStart(const torpor::v1::StartWorkloadRequest& request) {
  Checker check;
  const ActorDirs& dirs = request.dirs();
  check.Require(request.actor().uid() == request.op().actor_uid(), "actor.uid",
                "must be the uid of the header");
  CheckSpec(request.spec(), check);
  check.Root(dirs, request.op().actor_uid());
  check.Below(dirs.bundles(), dirs.root(), "dirs.bundles", true);
  check.Below(dirs.state(), dirs.root(), "dirs.state", true);
  check.Below(dirs.logs(), dirs.root(), "dirs.logs", true);
  check.Below(dirs.durable(), dirs.root(), "dirs.durable", HasDurableDirs(request.spec()));
  bool restore = request.restore() != torpor::v1::FIDELITY_UNSPECIFIED;
  check.Below(dirs.restore(), dirs.root(), "dirs.restore", restore);
  check.Require(restore || request.files_size() == 0, "files", "are for a restore only");
  check.Require(request.files_size() <= kFilesMax, "files", "must be at most 256");
  std::set<std::string> names;
  for (const torpor::v1::SnapshotFile& file : request.files()) {
    check.Require(IsSnapshotFileName(file.name()) && names.insert(file.name()).second, "files.name",
                  "must be a clean name that no other file has");
    check.Require(file.logical_bytes() >= 0, "files.logical_bytes", "must not be negative");
  }
  return check.Result();
}

Status CheckCapture(const torpor::v1::CaptureWorkloadRequest& request) {
  Checker check;
  check.Root(request.dirs(), request.op().actor_uid());
  check.Below(request.dirs().capture(), request.dirs().root(), "dirs.capture", true);
  check.Require(request.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED, "fidelity", "is required");
  return check.Result();
}

Status CheckStop(const torpor::v1::StopWorkloadRequest& request) {
  Checker check;
  // Stopping must also work for whoever does not know the directories any more.
  if (!request.dirs().root().empty()) check.Root(request.dirs(), request.op().actor_uid());
  check.Below(request.dirs().state(), request.dirs().root(), "dirs.state", false);
  return check.Result();
}

std::vector<int> PortsOf(const torpor::v1::WorkloadSpec& spec) {
  std::set<int> ports = {spec.http_port() == 0 ? 80 : spec.http_port()};
  for (const torpor::v1::ContainerSpec& container : spec.containers()) {
    if (container.has_wakeup_probe()) ports.insert(container.wakeup_probe().http_get().port());
  }
  return {ports.begin(), ports.end()};
}

}  // namespace torpor::worker
