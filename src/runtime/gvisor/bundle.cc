#include "runtime/gvisor/bundle.h"

#include <nlohmann/json.hpp>

#include "model/reasons.h"

namespace torpor::gvisor {
namespace {

using nlohmann::json;

Status Invalid(const std::string& what) {
  return Fail(reasons::kInvalidContainerConfig, "config.json: " + what);
}

}  // namespace

StatusOr<std::string> ComposeConfig(const std::string& config, const std::string& bundle_dir,
                                    int64_t cpu_milli, const Membership* member) {
  json spec = json::parse(config, nullptr, false);
  if (!spec.is_object()) return Invalid("is not a JSON object");
  auto root = spec.find("root");
  if (root == spec.end() || !root->is_object() || !(*root)["path"].is_string()) {
    return Invalid("has no root.path");
  }
  std::string path = (*root)["path"].get<std::string>();
  if (path.empty()) return Invalid("root.path is empty");
  if (path[0] != '/') (*root)["path"] = bundle_dir + "/" + path;

  json& linux = spec["linux"];
  if (!linux.is_object() && !linux.is_null()) return Invalid("linux is not an object");
  json namespaces = json::array();
  if (linux.contains("namespaces") && linux["namespaces"].is_array()) {
    for (const json& entry : linux["namespaces"]) {
      if (!entry.is_object() || !entry.contains("type") || entry["type"] == "network") continue;
      namespaces.push_back(entry);
    }
  }
  namespaces.push_back({{"type", "network"}, {"path", "/proc/self/ns/net"}});
  linux["namespaces"] = std::move(namespaces);
  linux.erase("cgroupsPath");
  linux.erase("resources");
  if (cpu_milli > 0) {
    linux["resources"]["cpu"] = {{"quota", cpu_milli * 100}, {"period", 100000}};
  }
  if (member != nullptr) {
    json& annotations = spec["annotations"];
    if (!annotations.is_object() && !annotations.is_null()) {
      return Invalid("annotations is not an object");
    }
    annotations["io.kubernetes.cri.container-type"] = member->root ? "sandbox" : "container";
    annotations["io.kubernetes.cri.sandbox-id"] = member->sandbox_id;
    annotations["io.kubernetes.cri.container-name"] = member->name;
  }
  return spec.dump();
}

}  // namespace torpor::gvisor
