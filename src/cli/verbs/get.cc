// torpor get KIND [NAME]

#include <unistd.h>

#include <cstdio>
#include <deque>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/events.h"
#include "cli/verbs/print.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using google::protobuf::Message;
using Control = ateapi::Control::StubInterface::async_interface;
using Ops = torpor::v1::Ops::StubInterface::async_interface;

constexpr Duration kWatchPause = std::chrono::milliseconds(500);

// Fetches all pages. `fill` is called with each response and returns the next page's token.
template <typename Stub, typename Request, typename Response>
Status AllPages(Session& session,
                void (Stub::*method)(grpc::ClientContext*, const Request*, Response*,
                                     std::function<void(grpc::Status)>),
                Request request, std::deque<Response>* pages) {
  do {
    Response& page = pages->emplace_back();
    RETURN_IF_ERROR(session.Call(method, request, &page));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return OkStatus();
}

template <typename Pages, typename Field>
std::vector<const Message*> Flatten(const Pages& pages, Field field) {
  std::vector<const Message*> out;
  for (const auto& page : pages) {
    for (const auto& item : field(page)) out.push_back(&item);
  }
  return out;
}

std::string ScopeOf(const Session& session) {
  return session.settings().all_atespaces ? "" : session.settings().atespace;
}

Status GetActors(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    ateapi::GetActorRequest request;
    *request.mutable_actor() = session.Ref(name);
    ateapi::Actor actor;
    RETURN_IF_ERROR(session.Call(&Control::GetActor, request, &actor));
    return printer.Print({&actor}, false);
  }
  ateapi::ListActorsRequest request;
  request.set_atespace(ScopeOf(session));
  std::deque<ateapi::ListActorsResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Control::ListActors, request, &pages));
  return printer.Print(
      Flatten(pages, [](const auto& page) -> const auto& { return page.actors(); }), true);
}

Status GetTemplates(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    ateapi::GetActorTemplateRequest request;
    *request.mutable_actor_template() = session.Ref(name);
    ateapi::ActorTemplate found;
    RETURN_IF_ERROR(session.Call(&Control::GetActorTemplate, request, &found));
    return printer.Print({&found}, false);
  }
  ateapi::ListActorTemplatesRequest request;
  request.set_atespace(ScopeOf(session));
  std::deque<ateapi::ListActorTemplatesResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Control::ListActorTemplates, request, &pages));
  return printer.Print(
      Flatten(pages, [](const auto& page) -> const auto& { return page.actor_templates(); }), true);
}

Status GetTags(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    ateapi::GetTagRequest request;
    *request.mutable_tag() = session.Ref(name);
    ateapi::Tag tag;
    RETURN_IF_ERROR(session.Call(&Control::GetTag, request, &tag));
    return printer.Print({&tag}, false);
  }
  ateapi::ListTagsRequest request;
  request.set_atespace(ScopeOf(session));
  std::deque<ateapi::ListTagsResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Control::ListTags, request, &pages));
  return printer.Print(Flatten(pages, [](const auto& page) -> const auto& { return page.tags(); }),
                       true);
}

Status GetAtespaces(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    ateapi::GetAtespaceRequest request;
    request.mutable_atespace()->set_name(name);
    ateapi::Atespace atespace;
    RETURN_IF_ERROR(session.Call(&Control::GetAtespace, request, &atespace));
    return printer.Print({&atespace}, false);
  }
  std::deque<ateapi::ListAtespacesResponse> pages;
  RETURN_IF_ERROR(
      AllPages(session, &Control::ListAtespaces, ateapi::ListAtespacesRequest(), &pages));
  return printer.Print(
      Flatten(pages, [](const auto& page) -> const auto& { return page.atespaces(); }), true,
      false);
}

Status GetWorkers(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    ateapi::GetWorkerRequest request;
    request.mutable_worker()->set_name(name);
    ateapi::Worker worker;
    RETURN_IF_ERROR(session.Call(&Control::GetWorker, request, &worker));
    return printer.Print({&worker}, false);
  }
  std::deque<ateapi::ListWorkersResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Control::ListWorkers, ateapi::ListWorkersRequest(), &pages));
  return printer.Print(
      Flatten(pages, [](const auto& page) -> const auto& { return page.workers(); }), true, false);
}

Status GetNodes(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (!name.empty()) {
    torpor::v1::GetNodeRequest request;
    request.set_name(name);
    torpor::v1::Node node;
    RETURN_IF_ERROR(session.Call(&Ops::GetNode, request, &node));
    return printer.Print({&node}, false);
  }
  std::deque<torpor::v1::ListNodesResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Ops::ListNodes, torpor::v1::ListNodesRequest(), &pages));
  return printer.Print(Flatten(pages, [](const auto& page) -> const auto& { return page.nodes(); }),
                       true, false);
}

Status GetGenerations(Session& session, const std::string& name, ResourcePrinter& printer) {
  if (name.empty()) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 "generations belong to an actor; write torpor get generations ACTOR");
  }
  torpor::v1::ListGenerationsRequest request;
  *request.mutable_actor() = session.Ref(name);
  std::deque<torpor::v1::ListGenerationsResponse> pages;
  RETURN_IF_ERROR(AllPages(session, &Ops::ListGenerations, request, &pages));
  return printer.Print(
      Flatten(pages, [](const auto& page) -> const auto& { return page.generations(); }), true,
      false);
}

Status GetEvents(Session& session, const std::string& name, ResourcePrinter&) {
  return PrintEvents(session, name, /*watch=*/false);
}

struct Kind {
  std::vector<std::string> names;
  Status (*get)(Session& session, const std::string& name, ResourcePrinter& printer);
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds{
      {{"actors", "actor", "a"}, GetActors},
      {{"templates", "template", "tpl"}, GetTemplates},
      {{"atespaces", "atespace", "as"}, GetAtespaces},
      {{"tags", "tag", "t"}, GetTags},
      {{"workers", "worker", "w"}, GetWorkers},
      {{"nodes", "node", "n"}, GetNodes},
      {{"generations", "generation", "gen"}, GetGenerations},
      {{"events", "event", "ev"}, GetEvents},
  };
  return kinds;
}

// Asks again and again, since not every kind has a stream of changes.
Status Get(Session& session, const Kind& kind, const std::string& name, bool watch) {
  if (watch && kind.get == GetEvents) return PrintEvents(session, name, true);
  ResourcePrinter printer(session, watch);
  do {
    Status status = kind.get(session, name, printer);
    if (watch && status.code() == Code::kCancelled) break;  // Ctrl-C ends it, as it should
    RETURN_IF_ERROR(status);
  } while (watch && SleepUnlessInterrupted(kWatchPause));
  return OkStatus();
}

}  // namespace

const std::vector<std::string>& KindWords() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> out;
    for (const Kind& kind : Kinds()) out.push_back(kind.names[0]);
    return out;
  }();
  return words;
}

void AddGet(CLI::App& app, Invocation& invocation) {
  auto* get = app.add_subcommand("get", "show resources");
  auto kind = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  auto watch = std::make_shared<bool>(false);
  std::vector<std::string> allowed;
  for (const Kind& k : Kinds()) allowed.insert(allowed.end(), k.names.begin(), k.names.end());
  get->add_option("KIND", *kind,
                  "actors (a), templates (tpl), atespaces (as), tags (t), workers (w), nodes (n), "
                  "generations (gen), events (ev)")
      ->required()
      ->check(CLI::IsMember(allowed));
  get->add_option("NAME", *name, "one resource");
  get->add_flag("-w,--watch", *watch, "go on showing what changes, until Ctrl-C");
  get->callback([&invocation, kind, name, watch] {
    invocation.run = [kind, name, watch](Session& session) {
      for (const Kind& k : Kinds()) {
        if (std::find(k.names.begin(), k.names.end(), *kind) == k.names.end()) continue;
        return Report(Get(session, k, *name, *watch));
      }
      return 2;
    };
  });
}

}  // namespace torpor::cli
