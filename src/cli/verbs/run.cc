// torpor run NAME --image REF [-- CMD...]: template, actor and first wake in one.

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/verbs/lifecycle.h"
#include "cli/verbs/template_flags.h"
#include "cli/verbs/url.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Control = ateapi::Control::StubInterface::async_interface;

Status Run(Session& session, const std::string& name, TemplateFlags flags,
           const RouterFlags& router) {
  const ateapi::ObjectRef ref = session.Ref(name);
  // One actor of a template of its own: a golden snapshot would be built for nobody.
  flags.no_golden = true;
  ASSIGN_OR_RETURN(ateapi::ActorTemplate made, MakeTemplate(flags, ref));
  ateapi::CreateActorTemplateRequest create_template;
  *create_template.mutable_actor_template() = std::move(made);
  ateapi::ActorTemplate template_answer;
  RETURN_IF_ERROR(session.Call(&Control::CreateActorTemplate, create_template, &template_answer));
  ateapi::CreateActorRequest create;
  create.mutable_actor()->mutable_metadata()->set_atespace(ref.atespace());
  create.mutable_actor()->mutable_metadata()->set_name(ref.name());
  *create.mutable_actor()->mutable_actor_template() = ref;
  ateapi::Actor actor;
  Status status = session.Call(&Control::CreateActor, create, &actor);
  if (status.ok()) status = ResumeActor(session, ref).status();
  if (!status.ok()) {
    return Annotate(status, "the template and the actor are kept; look with torpor why " + name +
                                " and remove them with torpor delete");
  }
  if (!session.settings().quiet) {
    printf("%s/%s runs\n", ref.atespace().c_str(), ref.name().c_str());
  }
  printf("%s", DrawUrl(ref, router.router, router.domain).c_str());
  return OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, Invocation& invocation) {
  auto* run = app.add_subcommand("run", "template, actor and first wake in one; prints the URL");
  auto name = std::make_shared<std::string>();
  auto flags = std::make_shared<TemplateFlags>();
  auto router = std::make_shared<RouterFlags>();
  run->add_option("NAME", *name)->required();
  run->add_option("--router", router->router, "address of the router")->envname("TORPOR_ROUTER");
  run->add_option("--actor-domain", router->domain, "host name suffix of actors");
  AddTemplateFlags(*run, flags.get());
  run->callback([&invocation, name, flags, router] {
    invocation.run = [name, flags, router](Session& session) {
      return Report(Run(session, *name, *flags, *router));
    };
  });
}

}  // namespace torpor::cli
