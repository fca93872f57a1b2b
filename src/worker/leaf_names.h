#pragma once
// How the cgroup leaf of an actor, or of a slot of the warm pool, is called.

#include <string>

namespace torpor::worker {

// '_' cannot occur in a name, so no two names meet.
std::string LeafOf(const std::string& actor_uid);
// The actor or slot of a leaf, or empty.
std::string ActorOfLeaf(const std::string& leaf);

}  // namespace torpor::worker
