#pragma once
// The table of verbs. Each Add function declares one verb with its flags on the parser; when the
// verb was typed, its callback sets `Invocation::run`, which Main calls afterwards with a session.

#include <functional>
#include <string>
#include <vector>

#include "cli/session.h"

namespace CLI {
class App;
}

namespace torpor::cli {

struct Invocation {
  Settings settings;
  std::function<int(Session& session)> run;
};

void AddGet(CLI::App& app, Invocation& invocation);
void AddCreate(CLI::App& app, Invocation& invocation);
void AddRun(CLI::App& app, Invocation& invocation);
void AddLifecycle(CLI::App& app, Invocation& invocation);  // resume, pause, suspend, revert
void AddRollback(CLI::App& app, Invocation& invocation);
void AddFork(CLI::App& app, Invocation& invocation);
void AddDelete(CLI::App& app, Invocation& invocation);
void AddLogs(CLI::App& app, Invocation& invocation);
void AddEvents(CLI::App& app, Invocation& invocation);
void AddWhy(CLI::App& app, Invocation& invocation);
void AddUrl(CLI::App& app, Invocation& invocation);
void AddNode(CLI::App& app, Invocation& invocation);
void AddCompletion(CLI::App& app, Invocation& invocation);

// The kinds of `get`, in the form that completion offers.
const std::vector<std::string>& KindWords();

}  // namespace torpor::cli
