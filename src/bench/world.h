#pragma once
// A Torpor with the template of a scenario: what every pattern of load works on.

#include <memory>
#include <string>
#include <vector>

#include "base/sync.h"
#include "bench/glutton.h"
#include "bench/grpc_control.h"
#include "bench/scenario.h"
#include "bench/stack.h"

namespace torpor::bench {

struct World {
  Scenario scenario;
  std::unique_ptr<Stack> stack;
  std::unique_ptr<GrpcControl> control;
  std::string config;  // of the first actor's bundle; set while it runs

  // Deletes the actors and the template of a Torpor that is not ours.
  ~World();

  // Every actor is told of before it is made, so that it can be deleted. Thread-safe.
  void Note(const std::string& actor) EXCLUDES(mu);
  std::string HostOf(const std::string& actor) const;
  // A connection of its own to the router; the deadline of a request is the scenario's.
  Poster PosterOf(const std::string& actor) const;

  Mutex mu;
  std::vector<std::string> actors GUARDED_BY(mu);
};

struct WorldOptions {
  StackOptions stack;
  // A Torpor that is up already, instead of an own one; empty = an own one.
  std::string attach_dir;
  std::string attach_router;  // host:port
  std::string image_layout_dir;
  bool golden = true;
};

// Returns when the template's golden snapshot is there.
StatusOr<std::unique_ptr<World>> StartWorld(const WorldOptions& options, const Scenario& scenario);

// The reference NAME@DIGEST of an image, from images.txt.
StatusOr<std::string> FindImage(const std::string& image_layout_dir, const std::string& name);

}  // namespace torpor::bench
