// Targets: an accepted one has two labels and an origin-form path.

#include <cstdint>
#include <cstdlib>

#include "model/names.h"
#include "router/target/target.h"

using namespace torpor::router;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TargetRules rules({"actors.localhost", "example.org"}, {"gateway.corp"});
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  RequestHead head;
  if (ParseRequestHead(bytes, HeadLimits(), &head) != Rule::kNone) return 0;
  auto result = ResolveTarget(head, rules);
  if (auto* target = std::get_if<Target>(&result)) {
    bool good = torpor::IsLabel(target->key.atespace) && torpor::IsLabel(target->key.actor) &&
                (target->path == "*" || target->path.front() == '/') &&
                target->path.find_first_of(std::string_view("\r\n \0", 4)) == std::string::npos;
    if (!good) abort();
  }
  return 0;
}
