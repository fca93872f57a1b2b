// torpor create -f FILE | create atespace|template|actor|tag NAME

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include <CLI/CLI.hpp>

#include "cli/manifest.h"
#include "cli/verbs/template_flags.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Control = ateapi::Control::StubInterface::async_interface;

void Created(const Session& session, const char* kind, const ateapi::ResourceMetadata& m) {
  const std::string name = m.atespace().empty() ? m.name() : m.atespace() + "/" + m.name();
  if (!session.settings().quiet) printf("%s %s created\n", kind, name.c_str());
}

Status Create(Session& session, const ateapi::Atespace& atespace) {
  ateapi::CreateAtespaceRequest request;
  *request.mutable_atespace() = atespace;
  ateapi::Atespace made;
  RETURN_IF_ERROR(session.Call(&Control::CreateAtespace, request, &made));
  Created(session, "atespace", made.metadata());
  return OkStatus();
}

Status Create(Session& session, const ateapi::ActorTemplate& t) {
  ateapi::CreateActorTemplateRequest request;
  *request.mutable_actor_template() = t;
  ateapi::ActorTemplate made;
  RETURN_IF_ERROR(session.Call(&Control::CreateActorTemplate, request, &made));
  Created(session, "template", made.metadata());
  return OkStatus();
}

Status Create(Session& session, const ateapi::Actor& actor) {
  ateapi::CreateActorRequest request;
  *request.mutable_actor() = actor;
  ateapi::Actor made;
  RETURN_IF_ERROR(session.Call(&Control::CreateActor, request, &made));
  Created(session, "actor", made.metadata());
  return OkStatus();
}

Status Create(Session& session, const ateapi::Tag& tag) {
  ateapi::CreateTagRequest request;
  *request.mutable_tag() = tag;
  ateapi::Tag made;
  RETURN_IF_ERROR(session.Call(&Control::CreateTag, request, &made));
  Created(session, "tag", made.metadata());
  return OkStatus();
}

Status CreateFromFiles(Session& session, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::string text;
    if (file == "-") {
      text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
    } else {
      std::ifstream in(file);
      if (!in) return Error(Code::kInvalidArgument, "FIELD_INVALID", "cannot read " + file);
      text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    ASSIGN_OR_RETURN(auto resources, ParseResources(text, file == "-" ? "standard input" : file,
                                                    session.settings().atespace));
    for (const Resource& resource : resources) {
      RETURN_IF_ERROR(std::visit([&](const auto& r) { return Create(session, r); }, resource));
    }
  }
  return OkStatus();
}

void AddCreateActor(CLI::App* create, Invocation& invocation) {
  struct Flags {
    std::string name, actor_template, tag;
  };
  auto flags = std::make_shared<Flags>();
  auto* actor = create->add_subcommand("actor", "an actor of a template");
  actor->add_option("NAME", flags->name)->required();
  actor->add_option("--template", flags->actor_template, "its template")->required();
  actor->add_option("--tag", flags->tag, "start from the snapshot of this tag");
  actor->callback([&invocation, flags] {
    invocation.run = [flags](Session& session) {
      ateapi::Actor made;
      ateapi::ObjectRef ref = session.Ref(flags->name);
      made.mutable_metadata()->set_atespace(ref.atespace());
      made.mutable_metadata()->set_name(ref.name());
      *made.mutable_actor_template() = session.Ref(flags->actor_template);
      if (!flags->tag.empty()) *made.mutable_source_tag() = session.Ref(flags->tag);
      return Report(Create(session, made));
    };
  });
}

void AddCreateTag(CLI::App* create, Invocation& invocation) {
  struct Flags {
    std::string name, actor, scope = "atespace";
  };
  auto flags = std::make_shared<Flags>();
  auto* tag = create->add_subcommand("tag", "a named copy of an actor's snapshot");
  tag->add_option("NAME", flags->name)->required();
  tag->add_option("--actor", flags->actor, "the source, SUSPENDED")->required();
  tag->add_option("--scope", flags->scope, "who may start from it")
      ->check(CLI::IsMember({"atespace", "published"}));
  tag->callback([&invocation, flags] {
    invocation.run = [flags](Session& session) {
      ateapi::Tag made;
      ateapi::ObjectRef ref = session.Ref(flags->name);
      made.mutable_metadata()->set_atespace(ref.atespace());
      made.mutable_metadata()->set_name(ref.name());
      *made.mutable_source_actor() = session.Ref(flags->actor);
      made.set_scope(flags->scope == "published" ? ateapi::TAG_SCOPE_PUBLISHED
                                                 : ateapi::TAG_SCOPE_ATESPACE);
      return Report(Create(session, made));
    };
  });
}

}  // namespace

void AddCreate(CLI::App& app, Invocation& invocation) {
  auto* create = app.add_subcommand("create", "make resources, from files or by flags");
  create->fallthrough();
  auto files = std::make_shared<std::vector<std::string>>();
  create->add_option("-f,--file", *files, "YAML file with resources, - for standard input")
      ->allow_extra_args(false);
  create->require_subcommand(0, 1);

  auto* atespace = create->add_subcommand("atespace", "a tenant boundary");
  auto name = std::make_shared<std::string>();
  atespace->add_option("NAME", *name)->required();
  atespace->callback([&invocation, name] {
    invocation.run = [name](Session& session) {
      ateapi::Atespace made;
      made.mutable_metadata()->set_name(*name);
      return Report(Create(session, made));
    };
  });

  auto* tpl = create->add_subcommand("template", "a class of actors");
  auto template_name = std::make_shared<std::string>();
  auto flags = std::make_shared<TemplateFlags>();
  tpl->add_option("NAME", *template_name)->required();
  AddTemplateFlags(*tpl, flags.get());
  tpl->callback([&invocation, template_name, flags] {
    invocation.run = [template_name, flags](Session& session) {
      auto made = MakeTemplate(*flags, session.Ref(*template_name));
      return Report(made.ok() ? Create(session, *made) : made.status());
    };
  });
  AddCreateActor(create, invocation);
  AddCreateTag(create, invocation);

  create->callback([&invocation, create, files] {
    if (!create->get_subcommands().empty()) return;
    if (files->empty()) {
      invocation.run = [](Session&) {
        fprintf(stderr,
                "error: create needs -f FILE, or atespace, template, actor or tag NAME: see "
                "torpor create --help\n");
        return 2;
      };
      return;
    }
    invocation.run = [files](Session& session) { return Report(CreateFromFiles(session, *files)); };
  });
}

}  // namespace torpor::cli
