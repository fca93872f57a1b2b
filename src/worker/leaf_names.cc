#include "worker/leaf_names.h"

#include <string_view>

#include "base/uuid.h"

namespace torpor::worker {
namespace {

constexpr std::string_view kLeafSuffix = "-_box";

}  // namespace

std::string LeafOf(const std::string& actor_uid) { return actor_uid + std::string(kLeafSuffix); }

std::string ActorOfLeaf(const std::string& leaf) {
  if (leaf.size() <= kLeafSuffix.size()) return "";
  std::string uid = leaf.substr(0, leaf.size() - kLeafSuffix.size());
  return IsUuid(uid) && LeafOf(uid) == leaf ? uid : "";
}

}  // namespace torpor::worker
