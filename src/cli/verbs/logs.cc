// torpor logs ACTOR [-f] [--since D] [-c CONTAINER] [--tail N]

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/verbs.h"
#include "rpc/status.h"

namespace torpor::cli {
namespace {

struct Flags {
  std::string actor, container, since;
  bool follow = false;
  int tail = 0;
};

void PrintLine(const Session& session, const torpor::v1::LogLine& line) {
  if (session.settings().output == "json") {
    auto text = ToJson(line);
    if (text.ok()) printf("%s\n", text->c_str());
  } else if (line.stream() == "torpor") {
    printf("--- %s %s\n", FormatRfc3339(FromProto(line.time())).c_str(), line.line().c_str());
  } else {
    printf("%s%s\n", line.line().c_str(), line.truncated() ? " [cut]" : "");
  }
  fflush(stdout);
}

Status ReadLogs(Session& session, const Flags& flags) {
  torpor::v1::ReadLogsRequest request;
  *request.mutable_actor() = session.Ref(flags.actor);
  request.set_container(flags.container);
  request.set_follow(flags.follow);
  request.set_tail_lines(flags.tail);
  if (!flags.since.empty()) {
    ASSIGN_OR_RETURN(Duration since, ParseDuration(flags.since));
    *request.mutable_start_time() = ToProto(
        Clock::Real()->WallNow() - std::chrono::duration_cast<std::chrono::microseconds>(since));
  }
  ASSIGN_OR_RETURN(Duration timeout,
                   session.Timeout(flags.follow ? Duration(std::chrono::hours(24 * 30))
                                                : Duration(std::chrono::minutes(1))));
  auto context = session.NewContext(timeout);
  auto reader = session.ops().ReadLogs(context.get(), request);
  torpor::v1::LogLine line;
  while (reader->Read(&line)) PrintLine(session, line);
  return rpc::FromGrpc(reader->Finish());
}

}  // namespace

void AddLogs(CLI::App& app, Invocation& invocation) {
  auto* logs = app.add_subcommand("logs", "what an actor printed");
  auto flags = std::make_shared<Flags>();
  logs->add_option("ACTOR", flags->actor)->required();
  logs->add_flag("-f,--follow", flags->follow, "go on as lines come");
  logs->add_option("--since", flags->since, "only the last 10m, 2h ...");
  logs->add_option("-c,--container", flags->container, "only this container");
  logs->add_option("--tail", flags->tail, "only the last lines")->check(CLI::NonNegativeNumber);
  logs->callback([&invocation, flags] {
    invocation.run = [flags](Session& session) { return Report(ReadLogs(session, *flags)); };
  });
}

}  // namespace torpor::cli
