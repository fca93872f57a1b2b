// torpor config check FILE | print [--config FILE]: what the roles would make of a file.

#include <cstdio>

#include "apps/commands.h"
#include "base/options.h"
#include "os/process/process.h"

namespace torpor {
namespace {

// Each role reads its own section with its own options, in a process of its own: the check can
// never differ from what the role does at its start.
int AskRoles(const std::string& file, bool print) {
  int code = 0;
  for (std::string_view role : Options::kRoles) {
    std::vector<std::string> argv{"/proc/self/exe", std::string(role), "--print-config"};
    if (!file.empty()) {
      argv.push_back(role == "up" ? "--config" : "--config-section");
      argv.push_back(file);
    }
    os::CommandOptions options;
    options.deadline = Clock::Real()->Now() + std::chrono::seconds(30);
    auto result = os::RunCommand(argv, options);
    if (!result.ok() || !result->status.ok()) {
      code = 2;
      fprintf(stderr, "%s",
              result.ok() ? result->err.c_str() : std::string(result.status().message()).c_str());
      continue;
    }
    if (!print) continue;
    printf("%s:\n", std::string(role).c_str());
    std::istringstream lines(result->out);
    for (std::string line; std::getline(lines, line);) printf("  %s\n", line.c_str());
  }
  return code;
}

}  // namespace

int ConfigCommand(const Args& args) {
  if (args.size() == 2 && args[0] == "check") {
    int code = AskRoles(args[1], false);
    if (code == 0) printf("%s is valid\n", args[1].c_str());
    return code;
  }
  if (args.size() == 1 && args[0] == "print") return AskRoles("", true);
  if (args.size() == 3 && args[0] == "print" && args[1] == "--config") {
    return AskRoles(args[2], true);
  }
  fprintf(stderr, "usage: torpor config check FILE | torpor config print [--config FILE]\n");
  return 2;
}

}  // namespace torpor
