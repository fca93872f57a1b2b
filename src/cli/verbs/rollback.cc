// torpor rollback ACTOR GENERATION

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/lifecycle.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Ops = torpor::v1::Ops::StubInterface::async_interface;

int Rollback(Session& session, const std::string& name, int64_t generation) {
  torpor::v1::RollbackActorRequest request;
  const ateapi::ObjectRef ref = session.Ref(name);
  *request.mutable_actor() = ref;
  request.set_generation(generation);
  session.BeginOperation(ref.atespace() + "/" + ref.name(),
                         [&session, ref] { return ProgressOf(session, ref); });
  torpor::v1::RollbackActorResponse response;
  Status status = session.Call(&Ops::RollbackActor, request, &response);
  session.EndOperation();
  if (!status.ok()) return Report(Annotate(status, ref.atespace() + "/" + ref.name()));
  if (session.settings().output == "json") {
    auto text = ToJson(response);
    if (!text.ok()) return Report(text.status());
    printf("%s\n", text->c_str());
  } else if (!session.settings().quiet) {
    printf("%s\n", DrawState(response.actor()).c_str());
    for (int64_t lost : response.lost_generations()) {
      printf("generation %ld is given up\n", static_cast<long>(lost));
    }
  }
  return 0;
}

}  // namespace

void AddRollback(CLI::App& app, Invocation& invocation) {
  auto* rollback = app.add_subcommand(
      "rollback", "go back to an older generation of torpor get generations; newer ones are lost");
  auto actor = std::make_shared<std::string>();
  auto generation = std::make_shared<int64_t>(0);
  rollback->add_option("ACTOR", *actor)->required();
  rollback->add_option("GENERATION", *generation, "one that is in the object store")->required();
  rollback->callback([&invocation, actor, generation] {
    invocation.run = [actor, generation](Session& session) {
      return Rollback(session, *actor, *generation);
    };
  });
}

}  // namespace torpor::cli
