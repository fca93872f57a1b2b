#include "runtime/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/fake/fake_runtime.h"
#include "runtime/gvisor/gvisor_runtime.h"

namespace torpor::runtime {
namespace {

struct Entry {
  const char* name;
  StatusOr<std::unique_ptr<Runtime>> (*create)(const RuntimeConfig& config);
};

const Entry kRuntimes[] = {
    {"gvisor", gvisor::GvisorRuntime::Create},
    {"fake",
     [](const RuntimeConfig&) -> StatusOr<std::unique_ptr<Runtime>> {
       return std::make_unique<FakeRuntime>(FakeRuntime::Options{.serve_http = true});
     }},
};

}  // namespace

StatusOr<std::unique_ptr<Runtime>> CreateRuntime(const std::string& sandbox_class,
                                                 const RuntimeConfig& config) {
  for (const Entry& entry : kRuntimes) {
    if (sandbox_class == entry.name) return entry.create(config);
  }
  return Error(Code::kNotFound, "INTERNAL",
               fmt::format("no sandbox class {}; there are {}", sandbox_class,
                           fmt::join(RuntimeClasses(), ", ")));
}

std::vector<std::string> RuntimeClasses() {
  std::vector<std::string> names;
  for (const Entry& entry : kRuntimes) names.push_back(entry.name);
  return names;
}

}  // namespace torpor::runtime
