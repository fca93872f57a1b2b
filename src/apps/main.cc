// The torpor program: finds the subcommand and runs it.

#include <sys/resource.h>

#include <cstdio>

#include "apps/commands.h"
#include "apps/run_as.h"
#include "cli/cli.h"

namespace {

struct Command {
  const char* name;
  int (*run)(const torpor::Args& args);
};

constexpr Command kCommands[] = {
    {"apiserver", torpor::ApiserverCommand},
    {"router", torpor::RouterCommand},
    {"node", torpor::NodeCommand},
    {"worker", torpor::WorkerCommand},
    {"mover", torpor::MoverCommand},
    {"up", torpor::UpCommand},
    {"down", torpor::DownCommand},
    {"status", torpor::StatusCommand},
    {"config", torpor::ConfigCommand},
    {"bench", torpor::BenchCommand},
    {"doctor", torpor::DoctorCommand},
    {"snapshot", torpor::SnapshotCommand},
    {"check-storage", torpor::CheckStorageCommand},
};

// Takes --run-as USER out of a role's arguments and gives up root. True when that went well.
bool TakeRunAs(torpor::Args* args) {
  for (size_t i = 0; i + 1 < args->size(); ++i) {
    if ((*args)[i] != "--run-as") continue;
    torpor::Status status = torpor::BecomeUser((*args)[i + 1]);
    if (!status.ok()) {
      fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
      return false;
    }
    args->erase(args->begin() + static_cast<long>(i), args->begin() + static_cast<long>(i) + 2);
    return true;
  }
  return true;
}

// Sandboxes, connections and snapshots all take descriptors; the hard limit is the machine's word.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  torpor::Args args(argv + 1, argv + argc);
  // The start helper of sandboxes comes first: it must cost nothing.
  if (!args.empty() && args[0] == "internal") {
    return torpor::InternalCommand({args.begin() + 1, args.end()});
  }
  if (torpor::cli::IsNodeVerb(args)) return torpor::cli::Main(args);
  for (const Command& command : kCommands) {
    if (args.empty() || args[0] != command.name) continue;
    RaiseDescriptorLimit();
    torpor::Args rest(args.begin() + 1, args.end());
    if (!TakeRunAs(&rest)) return 2;
    return command.run(rest);
  }
  return torpor::cli::Main(args);
}
