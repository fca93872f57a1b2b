// torpor events [ACTOR] [--watch]

#include "cli/verbs/events.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using google::protobuf::Message;

constexpr int kEventsMax = 200;
constexpr Duration kWatchPause = std::chrono::milliseconds(500);

std::string Change(const torpor::v1::Event& event) {
  auto name = [](ateapi::ActorState state) {
    return EnumName(ateapi::ActorState_Name(state), "ACTOR_STATE_");
  };
  if (event.to_state() == ateapi::ACTOR_STATE_UNSPECIFIED) return "-";
  if (event.from_state() == ateapi::ACTOR_STATE_UNSPECIFIED) return name(event.to_state());
  return name(event.from_state()) + " > " + name(event.to_state());
}

Status ListEvents(Session& session, const torpor::v1::ListEventsRequest& request,
                  torpor::v1::ListEventsResponse* response) {
  return session.Call(&torpor::v1::Ops::StubInterface::async_interface::ListEvents, request,
                      response);
}

// Oldest first.
Status Print(const Session& session, const std::vector<const Message*>& items, bool watch,
             bool header) {
  const std::string& form = session.settings().output;
  if (form == "json" && watch) {
    for (const Message* item : items) {
      ASSIGN_OR_RETURN(std::string text, ToJsonLine(*item));
      printf("%s\n", text.c_str());
    }
    fflush(stdout);
    return OkStatus();
  }
  if (form == "json" || form == "yaml") {
    ASSIGN_OR_RETURN(std::string text, ToJson(items, true));
    if (form == "yaml") {
      ASSIGN_OR_RETURN(text, JsonToYaml(text));
    }
    printf("%s\n", text.c_str());
    return OkStatus();
  }
  Table table({"TIME", "SEVERITY", "TYPE", "ACTOR", "CHANGE", "GEN", "REASON", "MESSAGE"});
  for (const Message* item : items) {
    const auto& event = static_cast<const torpor::v1::Event&>(*item);
    table.Add({FormatRfc3339(FromProto(event.time())),
               EnumName(torpor::v1::Event_Severity_Name(event.severity()), "SEVERITY_"),
               event.type(),
               event.has_actor() ? event.actor().atespace() + "/" + event.actor().name() : "-",
               Change(event), std::to_string(event.generation()), OrDash(event.reason()),
               event.message()});
  }
  std::string text = table.ToString();
  if (!header) text.erase(0, text.find('\n') + 1);
  printf("%s", text.c_str());
  fflush(stdout);
  return OkStatus();
}

}  // namespace

Status PrintEvents(Session& session, const std::string& actor, bool watch) {
  torpor::v1::ListEventsRequest request;
  if (!actor.empty()) {
    *request.mutable_actor() = session.Ref(actor);
  } else if (!session.settings().all_atespaces) {
    request.set_atespace(session.settings().atespace);
  }
  request.set_page_size(kEventsMax);
  std::set<std::string> seen;  // of the newest time, where the next look begins
  bool header = true;
  do {
    // Newest first; a look reads all pages since the last one.
    std::deque<torpor::v1::ListEventsResponse> pages;
    do {
      Status status = ListEvents(session, request, &pages.emplace_back());
      if (watch && status.code() == Code::kCancelled) return OkStatus();  // Ctrl-C
      RETURN_IF_ERROR(status);
      request.set_page_token(pages.back().next_page_token());
    } while (request.has_start_time() && !request.page_token().empty());
    request.clear_page_token();
    std::vector<const Message*> items;
    for (const auto& page : pages) {
      for (const auto& event : page.events()) {
        if (seen.count(event.event_id()) == 0) items.push_back(&event);
      }
    }
    std::reverse(items.begin(), items.end());
    for (const Message* item : items) {
      const auto& event = static_cast<const torpor::v1::Event&>(*item);
      const auto& newest = request.start_time();
      if (event.time().seconds() != newest.seconds() || event.time().nanos() != newest.nanos()) {
        *request.mutable_start_time() = event.time();
        seen.clear();
      }
      seen.insert(event.event_id());
    }
    if (!watch || !items.empty()) RETURN_IF_ERROR(Print(session, items, watch, header));
    header = header && items.empty();
  } while (watch && SleepUnlessInterrupted(kWatchPause));
  return OkStatus();
}

void AddEvents(CLI::App& app, Invocation& invocation) {
  auto* events = app.add_subcommand("events", "what happened, oldest first");
  auto actor = std::make_shared<std::string>();
  auto watch = std::make_shared<bool>(false);
  events->add_option("ACTOR", *actor, "only this actor's");
  events->add_flag("-w,--watch", *watch, "go on with what comes, until Ctrl-C");
  events->callback([&invocation, actor, watch] {
    invocation.run = [actor, watch](Session& session) {
      return Report(PrintEvents(session, *actor, *watch));
    };
  });
}

}  // namespace torpor::cli
