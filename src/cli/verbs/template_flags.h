#pragma once
// Flags that make an ActorTemplate without a file; shared by `create template` and `run`.

#include <string>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"

namespace CLI {
class App;
}

namespace torpor::cli {

struct TemplateFlags {
  std::string image;
  int port = 0;
  std::string probe;
  std::string memory;
  std::string cpu;
  std::string sandbox_class = "gvisor";
  std::string config_name;
  std::string storage;
  std::string pause_after;
  std::string suspend_after;
  std::string on_crash;
  bool no_golden = false;
  std::vector<std::string> env;
  std::vector<std::string> command;
};

void AddTemplateFlags(CLI::App& app, TemplateFlags* flags);
// INVALID_ARGUMENT names the flag that is wrong.
StatusOr<ateapi::ActorTemplate> MakeTemplate(const TemplateFlags& flags,
                                             const ateapi::ObjectRef& name);

}  // namespace torpor::cli
