#include "cli/command_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <CLI/CLI.hpp>

#include "base/testing/matchers.h"
#include "cli/verbs/verbs.h"
#include "os/process/process.h"

namespace torpor::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

struct Program {
  Program() {
    AddGet(app, invocation);
    AddCreate(app, invocation);
    AddDelete(app, invocation);
    AddLifecycle(app, invocation);
    AddNode(app, invocation);
    AddEvents(app, invocation);
    AddCompletion(app, invocation);
    table = CommandTable(app);
  }
  const Command& Find(const std::string& path) const {
    for (const Command& command : table) {
      if (command.path == path) return command;
    }
    static const Command none;
    ADD_FAILURE() << "no command " << path;
    return none;
  }
  CLI::App app{"Torpor", "torpor"};
  Invocation invocation;
  std::vector<Command> table;
};

TEST(CommandTable, L2_HoldsWhatTheParserKnows) {
  Program program;
  EXPECT_THAT(program.Find("").subcommands,
              IsSupersetOf({"get", "create", "node", "up", "worker", "doctor", "pause"}));
  EXPECT_THAT(program.Find("create").subcommands, IsSupersetOf({"actor", "template", "tag"}));
  EXPECT_THAT(program.Find("node").subcommands, IsSupersetOf({"status", "drain", "uncordon"}));
  EXPECT_EQ(program.Find("pause").arguments, std::vector<std::string>{"ACTOR"});
  bool watch = false;
  for (const Flag& flag : program.Find("get").flags) {
    if (flag.names != std::vector<std::string>{"--watch", "-w"}) continue;
    watch = true;
    EXPECT_FALSE(flag.takes_value);
  }
  EXPECT_TRUE(watch);
  for (const Flag& flag : program.Find("node drain").flags) {
    if (flag.names[0] == "--mode") {
      EXPECT_TRUE(flag.takes_value);
    }
  }
}

// Runs the script in a real bash, with a `torpor` that knows two actors.
std::string Complete(const std::string& script, const std::string& words) {
  char name[] = "/tmp/torpor-completion-XXXXXX";
  const std::string dir = mkdtemp(name);
  std::ofstream(dir + "/script") << script << "torpor() { printf 'default/a\\nother/b\\n'; }\n"
                                 << "COMP_WORDS=(" << words << ")\n"
                                 << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_torpor\n"
                                 << "echo \"${COMPREPLY[@]}\"\n";
  os::CommandOptions options;
  options.deadline = Clock::Real()->Now() + std::chrono::seconds(30);
  auto out = os::CommandOutput({"bash", dir + "/script"}, options);
  std::filesystem::remove_all(dir);
  EXPECT_OK(out);
  return out.ok() ? *out : "";
}

TEST(Completion, WorksInBash) {
  Program program;
  const std::string script = CompletionScript(program.table, KindWords(), "bash");
  EXPECT_EQ(Complete(script, "torpor pau"), "pause\n");
  EXPECT_EQ(Complete(script, "torpor node dr"), "drain\n");
  EXPECT_THAT(Complete(script, "torpor get ''"), HasSubstr("generations"));
  EXPECT_THAT(Complete(script, "torpor get --w"), HasSubstr("--watch"));
  EXPECT_EQ(Complete(script, "torpor pause ''"), "a other/b\n");
  EXPECT_EQ(Complete(script, "torpor -o json create act"), "actor\n");
  EXPECT_EQ(Complete(script, "torpor completion z"), "zsh\n");
}

TEST(Completion, EveryCommandIsInEveryScript) {
  Program program;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = CompletionScript(program.table, KindWords(), shell);
    for (const Command& command : program.table) {
      for (const std::string& word : command.subcommands) {
        EXPECT_THAT(script, HasSubstr(word)) << shell;
      }
    }
  }
}

}  // namespace
}  // namespace torpor::cli
