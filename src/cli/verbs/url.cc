// torpor url ACTOR

#include "cli/verbs/url.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/verbs/verbs.h"

namespace torpor::cli {

std::string DrawUrl(const ateapi::ObjectRef& actor, const std::string& router,
                    const std::string& domain) {
  const std::string port = router.substr(router.rfind(':'));
  return fmt::format(
      "http://{0}.{1}.{2}{3}/\n"
      "curl -H 'ate-target-actor: {1}/{0}' http://{4}/\n",
      actor.name(), actor.atespace(), domain, port, router);
}

void AddUrl(CLI::App& app, Invocation& invocation) {
  auto* url = app.add_subcommand("url", "the address of an actor in both forms");
  auto actor = std::make_shared<std::string>();
  auto flags = std::make_shared<RouterFlags>();
  url->add_option("ACTOR", *actor)->required();
  url->add_option("--router", flags->router, "address of the router")->envname("TORPOR_ROUTER");
  url->add_option("--actor-domain", flags->domain, "host name suffix of actors");
  url->callback([&invocation, actor, flags] {
    invocation.run = [actor, flags](Session& session) {
      ateapi::GetActorRequest request;
      *request.mutable_actor() = session.Ref(*actor);
      ateapi::Actor found;
      Status status =
          session.Call(&ateapi::Control::StubInterface::async_interface::GetActor, request, &found);
      if (!status.ok()) return Report(status);
      printf("%s", DrawUrl(request.actor(), flags->router, flags->domain).c_str());
      return 0;
    };
  });
}

}  // namespace torpor::cli
