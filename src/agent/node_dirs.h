#pragma once
// The directories of a node (node.md 2): one tree per actor, made, reset and removed here.
//
// Every path handed out is relative to the node directory and made of checked names, so it is safe
// in a message to worker or mover. The object holds the node directory open and is thread-safe for
// different actors; calls for one actor are serialised by its operation.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "os/fs/dir_fd.h"
#include "torpor/v1/agent.pb.h"
#include "torpor/v1/worker.pb.h"

namespace torpor::agent {

// Below actors/<uid>.
inline constexpr char kBundles[] = "bundles";
inline constexpr char kState[] = "state";
inline constexpr char kLogs[] = "logs";
inline constexpr char kCaptureDir[] = "checkpoint-state";
inline constexpr char kRestoreDir[] = "restore-state";
inline constexpr char kLocalDir[] = "local-checkpoint";
inline constexpr char kDurableDir[] = "durable-dir";
inline constexpr char kSystemInfo[] = "system-info";
inline constexpr char kVolumes[] = "volumes";
inline constexpr char kRunningFile[] = "running.json";

class NodeDirs {
 public:
  // Makes what is missing of the fixed tree. `mover` owns what the mover writes; `path` is
  // absolute.
  static StatusOr<std::unique_ptr<NodeDirs>> Open(const std::string& path, os::Ownership mover);

  const os::DirFd& root() const { return root_; }
  const os::DirFd& journals() const { return journals_; }
  const std::string& path() const { return path_; }
  os::Ownership mover() const { return mover_; }

  // "actors/<uid>" and "actors/<uid>/<part>".
  static std::string ActorPath(const std::string& uid);
  static std::string ActorPath(const std::string& uid, const std::string& part);
  // "actors/<uid>/local-checkpoint/<name>"
  static std::string LocalPath(const std::string& uid, const std::string& name);
  // All directories of an actor; `restore` is restore-state.
  static torpor::v1::ActorDirs ToMessage(const std::string& uid);

  StatusOr<os::DirFd> OpenActor(const std::string& uid) const;
  // The actor's tree with its parts that survive a RESET.
  StatusOr<os::DirFd> EnsureActor(const std::string& uid) const;
  // Names of the trees, whoever they belong to.
  StatusOr<std::vector<std::string>> ListActors() const;

  // RESET of node.md 4.1: everything of one activation is renamed away and made anew;
  // local-checkpoint and logs stay. UNAVAILABLE VOLUME_BUSY when a volume is still mounted: then
  // nothing was touched.
  Status Reset(const std::string& uid, WallTime now) const;
  // The capture directory, empty.
  Status FreshCapture(const std::string& uid, WallTime now) const;
  Status DropCapture(const std::string& uid, WallTime now) const;
  // A little space that is kept for the commit of a capture, so that a disk which others fill
  // meanwhile does not cost the captured state; and its return, right before it is needed.
  Status SetAside(const std::string& uid) const;
  void GiveBack(const std::string& uid) const;
  // The restore directory, empty; after a failed start, so that no link pins a cache entry.
  Status FreshRestore(const std::string& uid, WallTime now) const;
  // The whole tree is renamed away.
  Status RetireActor(const std::string& uid, WallTime now) const;
  // Removes what was renamed away at and below `uid`'s tree; at the top of the node too.
  Status SweepActor(const std::string& uid) const;
  Status SweepAll() const;

  Status WriteRunning(const std::string& uid, const torpor::v1::RunningRecord& record) const;
  StatusOr<torpor::v1::RunningRecord> ReadRunning(const std::string& uid) const;

 private:
  NodeDirs(std::string path, os::DirFd root, os::DirFd journals, os::Ownership mover)
      : path_(std::move(path)),
        root_(std::move(root)),
        journals_(std::move(journals)),
        mover_(mover) {}
  Status Renew(const os::DirFd& actor, const char* part, WallTime now) const;

  const std::string path_;
  const os::DirFd root_;
  const os::DirFd journals_;
  const os::Ownership mover_;
};

// JSON of a message, for small files that people read.
StatusOr<std::string> ToJson(const google::protobuf::Message& message);
Status FromJson(const std::string& json, google::protobuf::Message* message);

}  // namespace torpor::agent
