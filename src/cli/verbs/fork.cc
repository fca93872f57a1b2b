// torpor fork ACTOR|tag/NAME [--count N]

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/lifecycle.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Ops = torpor::v1::Ops::StubInterface::async_interface;

struct Flags {
  std::string source, prefix;
  std::vector<std::string> names;
  int count = 1;
  bool resume = false;
};

int Fork(Session& session, const Flags& flags) {
  constexpr std::string_view kTag = "tag/";
  torpor::v1::ForkActorRequest request;
  const bool tag = flags.source.rfind(kTag, 0) == 0;
  if (tag) {
    *request.mutable_tag() = session.Ref(flags.source.substr(kTag.size()));
    request.set_atespace(session.settings().atespace);  // the tag may be one of another
  } else {
    *request.mutable_actor() = session.Ref(flags.source);
  }
  request.set_count(flags.names.empty() ? flags.count : static_cast<int>(flags.names.size()));
  request.set_name_prefix(flags.prefix);
  for (const std::string& name : flags.names) request.add_names(name);
  request.set_resume(flags.resume);
  if (!tag) {
    const ateapi::ObjectRef source = request.actor();
    session.BeginOperation(source.atespace() + "/" + source.name(),
                           [&session, source] { return ProgressOf(session, source); });
  }
  torpor::v1::ForkActorResponse made;
  Status status = session.Call(&Ops::ForkActor, request, &made);
  session.EndOperation();
  if (!status.ok()) return Report(status);
  if (session.settings().output == "json") {
    auto text = ToJson(made);
    if (!text.ok()) return Report(text.status());
    printf("%s\n", text->c_str());
  } else if (!session.settings().quiet) {
    for (const ateapi::Actor& actor : made.actors()) printf("%s\n", DrawState(actor).c_str());
  }
  return 0;
}

}  // namespace

void AddFork(CLI::App& app, Invocation& invocation) {
  auto* fork = app.add_subcommand(
      "fork", "new actors with the state of an actor, or of a tag; all of them or none");
  auto flags = std::make_shared<Flags>();
  fork->add_option("ACTOR", flags->source, "the source; tag/NAME for a tag")->required();
  fork->add_option("--count", flags->count, "how many")->check(CLI::Range(1, 100));
  auto* names = fork->add_option("--name", flags->names, "a name for each, instead of --count")
                    ->allow_extra_args(false);
  fork->add_option("--prefix", flags->prefix, "names begin with this; unset: the source's name")
      ->excludes(names);
  fork->add_flag("--resume", flags->resume, "wake them, too");
  fork->callback([&invocation, flags] {
    invocation.run = [flags](Session& session) { return Fork(session, *flags); };
  });
}

}  // namespace torpor::cli
