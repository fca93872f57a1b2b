#pragma once
// Streams of actor changes for clients that watch.
//
// A watch first gives every matching actor as ADDED, then SYNCED, then changes. It remembers only
// which actors its reader has not seen in their newest form, so a slow reader misses versions but
// never the last one, and its memory is bounded by the number of actors. Thread-safe. The state
// must outlive the hub; a watch may outlive the hub and then ends with SHUTTING_DOWN.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/sync.h"
#include "control/done.h"
#include "control/reconciler/state.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::control {

class ActorWatch {
 public:
  using Show = std::function<ateapi::Actor(const torpor::v1::ActorRecord&)>;

  ActorWatch(const State* state, Show show, const torpor::v1::WatchActorsRequest& request);

  // Gives the next message once, possibly before it returns; one call at a time. An error ends the
  // watch.
  void Next(Done<torpor::v1::WatchActorsResponse> done) EXCLUDES(mu_);
  // The reader is gone: what Next waits for ends with CANCELLED.
  void Stop() EXCLUDES(mu_);

 private:
  friend class WatchHub;
  struct Seen {
    std::string uid;
    int64_t version = 0;
    ateapi::Actor last;  // for DELETED
  };

  bool Matches(const std::string& key) const;
  void Changed(const std::string& key) EXCLUDES(mu_);
  void Bookmark() EXCLUDES(mu_);
  void End(const Status& status) EXCLUDES(mu_);
  // The next message, if there is one.
  bool Take(torpor::v1::WatchActorsResponse& message) REQUIRES(mu_);
  void Answer() EXCLUDES(mu_);

  const std::string prefix_;    // "<atespace>/" or empty
  std::set<std::string> keys_;  // empty = all
  const Show show_;

  Mutex mu_;
  const State* state_ GUARDED_BY(mu_);             // null once it has ended
  std::deque<std::string> queue_ GUARDED_BY(mu_);  // keys; "" = SYNCED
  std::set<std::string> queued_ GUARDED_BY(mu_);
  std::map<std::string, Seen> seen_ GUARDED_BY(mu_);
  bool bookmark_ GUARDED_BY(mu_) = false;
  Done<torpor::v1::WatchActorsResponse> waiting_ GUARDED_BY(mu_);
  Status ended_ GUARDED_BY(mu_);
};

class WatchHub {
 public:
  explicit WatchHub(const State* state) : state_(state) {}
  ~WatchHub();

  // RESOURCE_EXHAUSTED TOO_MANY_STREAMS beyond `max`.
  StatusOr<std::shared_ptr<ActorWatch>> Open(const torpor::v1::WatchActorsRequest& request,
                                             ActorWatch::Show show, size_t max) EXCLUDES(mu_);
  // After the change was published.
  void Changed(const std::vector<std::string>& keys) EXCLUDES(mu_);
  void Bookmark() EXCLUDES(mu_);
  bool empty() EXCLUDES(mu_);

 private:
  std::vector<std::shared_ptr<ActorWatch>> Live() EXCLUDES(mu_);

  const State* const state_;
  Mutex mu_;
  std::vector<std::weak_ptr<ActorWatch>> watches_ GUARDED_BY(mu_);
};

}  // namespace torpor::control
