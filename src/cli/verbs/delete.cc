// torpor delete KIND NAME... [--any-state]

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/verbs/lifecycle.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Control = ateapi::Control::StubInterface::async_interface;

Status DeleteActor(Session& session, const std::string& name, bool any_state) {
  ateapi::DeleteActorRequest request;
  *request.mutable_actor() = session.Ref(name);
  request.set_any_state(any_state);
  ateapi::Actor gone;
  const ateapi::ObjectRef& ref = request.actor();
  session.BeginOperation(ref.atespace() + "/" + ref.name(),
                         [&session, &ref] { return ProgressOf(session, ref); });
  Status status = session.Call(&Control::DeleteActor, request, &gone);
  session.EndOperation();
  return status;
}

Status DeleteTemplate(Session& session, const std::string& name, bool) {
  ateapi::DeleteActorTemplateRequest request;
  *request.mutable_actor_template() = session.Ref(name);
  ateapi::ActorTemplate gone;
  return session.Call(&Control::DeleteActorTemplate, request, &gone);
}

Status DeleteAtespace(Session& session, const std::string& name, bool) {
  ateapi::DeleteAtespaceRequest request;
  request.mutable_atespace()->set_name(name);
  ateapi::Atespace gone;
  return session.Call(&Control::DeleteAtespace, request, &gone);
}

Status DeleteTag(Session& session, const std::string& name, bool) {
  ateapi::DeleteTagRequest request;
  *request.mutable_tag() = session.Ref(name);
  ateapi::Tag gone;
  return session.Call(&Control::DeleteTag, request, &gone);
}

}  // namespace

void AddDelete(CLI::App& app, Invocation& invocation) {
  struct Entry {
    const char* names;
    Status (*run)(Session&, const std::string&, bool);
  };
  static constexpr Entry kKinds[] = {{"actor", DeleteActor},
                                     {"template", DeleteTemplate},
                                     {"atespace", DeleteAtespace},
                                     {"tag", DeleteTag}};
  auto* verb = app.add_subcommand("delete", "remove resources and what belongs to them");
  verb->require_subcommand(1);
  verb->fallthrough();
  for (const Entry& entry : kKinds) {
    auto* kind =
        verb->add_subcommand(entry.names, std::string("one or more of kind ") + entry.names);
    kind->alias(std::string(entry.names) + "s");
    auto names = std::make_shared<std::vector<std::string>>();
    auto any_state = std::make_shared<bool>(false);
    kind->add_option("NAME", *names)->required();
    if (entry.run == DeleteActor) {
      kind->add_flag("--any-state", *any_state, "also while it runs or is paused");
    }
    kind->callback([&invocation, entry, names, any_state] {
      invocation.run = [entry, names, any_state](Session& session) {
        int code = 0;
        for (const std::string& name : *names) {
          Status status = entry.run(session, name, *any_state);
          if (!status.ok()) {
            code = Report(Annotate(status, name));
            if (Interrupted()) break;  // the others are not begun
          } else if (!session.settings().quiet) {
            printf("%s %s deleted\n", entry.names, name.c_str());
          }
        }
        return code;
      };
    });
  }
}

}  // namespace torpor::cli
