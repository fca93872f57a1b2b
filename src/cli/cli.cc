#include "cli/cli.h"

#include <cstdio>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

constexpr char kFooter[] = R"(Roles and machine:
  up, down, status            all roles of this machine; see torpor up --help
  doctor                      check this machine, its node directory and its records
  config                      check a configuration file, print what is in force
  apiserver, router, node, worker, mover   one role; see torpor ROLE --help
  bench                       benchmarks; see torpor bench --help
  version                     of this program

An actor is NAME (in the atespace of -s, default `default`) or ATESPACE/NAME.
Exit codes: 0 done, 1 failed, 2 wrong usage, 4 not found, 5 conflict or wrong state,
6 unavailable or timed out, 7 denied.)";

void AddGlobalOptions(CLI::App& app, Settings* s) {
  app.add_option("--endpoint", s->endpoint,
                 "unix:PATH or HOST:PORT of the apiserver (default: the socket of --dir, else "
                 "127.0.0.1:7700)")
      ->envname("TORPOR_ENDPOINT");
  app.add_option("--token-file", s->token_file,
                 "file with the token (TORPOR_TOKEN holds one itself)");
  app.add_option("--dir", s->dir, "data directory of the local torpor up")
      ->envname("TORPOR_DIR")
      ->default_val("/var/lib/torpor");
  app.add_option("-s,--atespace", s->atespace, "atespace")->envname("TORPOR_ATESPACE");
  app.add_flag("-A,--all-atespaces", s->all_atespaces, "of all atespaces");
  app.add_option("-o,--output", s->output, "form of the output")
      ->check(CLI::IsMember({"table", "wide", "json", "yaml", "name"}));
  app.add_option("--timeout", s->timeout,
                 "how long to wait for the server, like 30s; what has begun goes on");
  app.add_flag("-q,--quiet", s->quiet, "no progress");
  app.add_flag("--no-color", s->no_color, "no colours");
  app.add_flag("--show-secrets", s->show_secrets, "print values of environment variables");
}

// Wrong usage, in the form that was asked for.
int WrongUsage(const std::vector<std::string>& args, const std::string& message) {
  bool json = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool output = args[i] == "-o" || args[i] == "--output";
    json = json || args[i] == "-ojson" || args[i] == "--output=json" ||
           (output && i + 1 < args.size() && args[i + 1] == "json");
  }
  if (json) ReportAsJson();
  return Report(Error(Code::kInvalidArgument, kWrongUsage, message));
}

}  // namespace

bool IsNodeVerb(const std::vector<std::string>& args) {
  return args.size() > 1 && args[0] == "node" &&
         (args[1] == "status" || args[1] == "drain" || args[1] == "uncordon");
}

int Main(const std::vector<std::string>& args) {
  CLI::App app("Torpor: stateful sandboxes that sleep and wake on request", "torpor");
  Invocation invocation;
  AddGlobalOptions(app, &invocation.settings);
  app.fallthrough();
  app.require_subcommand(1);
  app.footer(kFooter);
  AddGet(app, invocation);
  AddCreate(app, invocation);
  AddRun(app, invocation);
  AddLifecycle(app, invocation);
  AddRollback(app, invocation);
  AddFork(app, invocation);
  AddDelete(app, invocation);
  AddLogs(app, invocation);
  AddEvents(app, invocation);
  AddWhy(app, invocation);
  AddUrl(app, invocation);
  AddNode(app, invocation);
  AddCompletion(app, invocation);
  app.add_subcommand("version", "version of this program")->callback([&] {
    invocation.run = [](Session&) {
      printf("torpor %s\n", TORPOR_VERSION);
      return 0;
    };
  });
  app.add_subcommand("help", "this text")->callback([&] {
    invocation.run = [&app](Session&) {
      printf("%s", app.help().c_str());
      return 0;
    };
  });
  // CLI11 reports wrong usage by exception; this is the one place that meets them.
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    // Without a known verb CLI11 says that one is required, not which word it did not know.
    const bool typed_a_verb = !args.empty() && args[0][0] != '-';
    if (app.get_subcommands().empty() && typed_a_verb) {
      return WrongUsage(args, fmt::format("unknown verb '{}': see torpor help", args[0]));
    }
    return WrongUsage(args, fmt::format("{}: see torpor help", e.what()));
  }
  if (invocation.settings.output == "json") ReportAsJson();
  Session session(invocation.settings);
  return invocation.run(session);
}

}  // namespace torpor::cli
