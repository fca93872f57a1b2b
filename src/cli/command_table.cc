#include "cli/command_table.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace torpor::cli {
namespace {

// Roles and machine commands parse their own flags (base/options.h); here they are words only.
constexpr std::pair<const char*, const char*> kMachineCommands[] = {
    {"up", "start all roles of this machine"},
    {"down", "stop them; running actors are suspended first"},
    {"status", "the roles of this machine"},
    {"doctor", "check this machine, its node directory and its records"},
    {"check-storage", "try the storage of snapshots"},
    {"config", "check or print a configuration"},
    {"snapshot", "inspect, verify or print the objects of a durable snapshot"},
    {"bench", "benchmarks"},
    {"apiserver", "one role"},
    {"router", "one role"},
    {"node", "one role, or node status, drain, uncordon"},
    {"worker", "one role"},
    {"mover", "one role"},
};

void Collect(const CLI::App& app, const std::string& path, std::vector<Command>* out) {
  Command command;
  command.path = path;
  command.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.arguments.push_back(option->get_name());
      continue;
    }
    Flag flag;
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    flag.help = option->get_description();
    flag.takes_value = option->get_expected_max() > 0;
    command.flags.push_back(std::move(flag));
  }
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subcommands) command.subcommands.push_back(sub->get_name());
  out->push_back(std::move(command));
  for (const CLI::App* sub : subcommands) {
    Collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
  }
}

std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::vector<std::string> FlagNames(const Command& command, const std::vector<Flag>& global) {
  std::vector<std::string> out;
  for (const auto* flags : {&command.flags, &global}) {
    for (const Flag& flag : *flags) {
      for (const std::string& name : flag.names) {
        if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
      }
    }
  }
  return out;
}

// What `torpor get` is asked for, by the name of the argument.
std::string Asked(const Command& command) {
  if (command.arguments.empty()) return "";
  const std::string& argument = command.arguments[0];
  if (argument == "ACTOR") return "actors";
  if (argument == "NODE") return "nodes";
  if (argument == "NAME" && command.path.rfind("delete ", 0) == 0) {
    return command.path.substr(std::string_view("delete ").size()) + "s";
  }
  return "";
}

std::string Quote(std::string text) {
  std::string out;
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

// One function for bash and, through bashcompinit, zsh: the longest command that was typed decides.
std::string BashScript(const std::vector<Command>& commands,
                       const std::vector<std::string>& kinds) {
  std::string words;
  std::string flags;
  std::string asked;
  for (const Command& c : commands) {
    std::vector<std::string> list = c.subcommands;
    if (!c.arguments.empty() && c.arguments[0] == "KIND") list = kinds;
    if (c.path == "completion") list = {"bash", "zsh", "fish"};
    if (!list.empty()) words += fmt::format("    {}) words='{}' ;;\n", Quote(c.path), Join(list));
    flags += fmt::format("    {}) flags='{}' ;;\n", Quote(c.path),
                         Join(FlagNames(c, commands[0].flags)));
    if (std::string kind = Asked(c); !kind.empty()) {
      asked += fmt::format("    {}) kind={} ;;\n", Quote(c.path), kind);
    }
  }
  return fmt::format(
      R"(_torpor() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path='' words='' flags='' kind='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " ${{COMP_WORDS[i]}}" in ' -'*) continue ;; esac
    case "|{}|" in
      *"|${{path:+$path }}${{COMP_WORDS[i]}}|"*) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{}  esac
  case "$path" in
{}  esac
  case "$path" in
{}  esac
  case "$current" in
    -*) words=$flags ;;
    *) [ -z "$kind" ] || words=$(torpor get "$kind" -o name 2>/dev/null | sed 's,^default/,,') ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _torpor torpor
)",
      [&] {
        std::string paths;
        for (const Command& c : commands) {
          if (!c.path.empty()) paths += (paths.empty() ? "" : "|") + c.path;
        }
        return paths;
      }(),
      words, flags, asked);
}

std::string FishScript(const std::vector<Command>& commands,
                       const std::vector<std::string>& kinds) {
  std::string out = "complete -c torpor -f\n";
  std::map<std::string, std::string> help;
  for (const Command& c : commands) help[c.path] = c.help;
  for (const Command& c : commands) {
    std::string here;  // true when exactly this command was typed
    if (c.path.empty()) {
      here = "__fish_use_subcommand";
    } else {
      const size_t space = c.path.rfind(' ');
      here = "__fish_seen_subcommand_from " +
             (space == std::string::npos ? c.path : c.path.substr(space + 1));
      if (space != std::string::npos) {
        here = "__fish_seen_subcommand_from " + c.path.substr(0, space) + "; and " + here;
      }
      if (!c.subcommands.empty()) {
        here += "; and not __fish_seen_subcommand_from " + Join(c.subcommands);
      }
    }
    for (const std::string& sub : c.subcommands) {
      const std::string path = c.path.empty() ? sub : c.path + " " + sub;
      out += fmt::format("complete -c torpor -n {} -a {} -d {}\n", Quote(here), Quote(sub),
                         Quote(help[path]));
    }
    if (!c.arguments.empty() && c.arguments[0] == "KIND") {
      out += fmt::format("complete -c torpor -n {} -a {}\n", Quote(here), Quote(Join(kinds)));
    }
    if (c.path == "completion") {
      out += fmt::format("complete -c torpor -n {} -a 'bash zsh fish'\n", Quote(here));
    }
    if (std::string kind = Asked(c); !kind.empty()) {
      out += fmt::format(
          "complete -c torpor -n {} -a '(torpor get {} -o name 2>/dev/null | string replace -r "
          "\"^default/\" \"\")'\n",
          Quote(here), kind);
    }
    for (const Flag& flag : c.flags) {
      std::string line = "complete -c torpor";
      if (!c.path.empty()) line += " -n " + Quote(here);
      for (const std::string& name : flag.names) {
        line += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (flag.takes_value) line += " -r";
      out += line + " -d " + Quote(flag.help) + "\n";
    }
  }
  return out;
}

}  // namespace

std::vector<Command> CommandTable(const CLI::App& app) {
  std::vector<Command> out;
  Collect(app, "", &out);
  for (const auto& [name, help] : kMachineCommands) {
    auto& words = out[0].subcommands;
    if (std::find(words.begin(), words.end(), name) != words.end()) continue;
    words.push_back(name);
    Command command;
    command.path = name;
    command.help = help;
    out.push_back(std::move(command));
  }
  return out;
}

std::string CompletionScript(const std::vector<Command>& commands,
                             const std::vector<std::string>& kinds, const std::string& shell) {
  if (shell == "fish") return FishScript(commands, kinds);
  const std::string bash = BashScript(commands, kinds);
  return shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + bash : bash;
}

}  // namespace torpor::cli
