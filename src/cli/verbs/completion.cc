// torpor completion bash|zsh|fish

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/command_table.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {

void AddCompletion(CLI::App& app, Invocation& invocation) {
  auto* completion = app.add_subcommand("completion", "completion script of a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, &invocation, shell] {
    invocation.run = [&app, shell](Session&) {
      printf("%s", CompletionScript(CommandTable(app), KindWords(), *shell).c_str());
      return 0;
    };
  });
}

}  // namespace torpor::cli
