#pragma once
// Every command with its words and flags, read from the parser that also prints the help: so help,
// completion and the test of docs/ cannot tell different things.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace torpor::cli {

struct Flag {
  std::vector<std::string> names;  // "--watch", "-w"
  std::string help;
  bool takes_value = false;
};

struct Command {
  std::string path;  // "create actor"; empty for the program itself
  std::string help;
  std::vector<std::string> subcommands;
  std::vector<Flag> flags;
  std::vector<std::string> arguments;  // names of the positional ones: ACTOR, KIND
};

// The program first, then each command in the order of the help, subcommands behind theirs.
std::vector<Command> CommandTable(const CLI::App& app);

// Words that complete a positional argument: fixed ones of `kinds`, or asked of torpor itself for
// ACTOR, NODE and the like.
std::string CompletionScript(const std::vector<Command>& commands,
                             const std::vector<std::string>& kinds, const std::string& shell);

}  // namespace torpor::cli
