// torpor resume|pause|suspend|revert ACTOR...

#include "cli/verbs/lifecycle.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/verbs.h"
#include "rpc/channel.h"

namespace torpor::cli {
namespace {

using Control = ateapi::Control::StubInterface::async_interface;

constexpr Duration kDetailsTime = std::chrono::seconds(5);

template <typename Request, typename Response>
StatusOr<ateapi::Actor> CallVerb(Session& session,
                                 void (Control::*method)(grpc::ClientContext*, const Request*,
                                                         Response*,
                                                         std::function<void(grpc::Status)>),
                                 const ateapi::ObjectRef& actor) {
  Request request;
  *request.mutable_actor() = actor;
  Response response;
  session.BeginOperation(actor.atespace() + "/" + actor.name(),
                         [&session, actor] { return ProgressOf(session, actor); });
  Status status = session.Call(method, request, &response);
  session.EndOperation();
  RETURN_IF_ERROR(status);
  return response.actor();
}

StatusOr<ateapi::Actor> Pause(Session& session, const ateapi::ObjectRef& actor) {
  return CallVerb(session, &Control::PauseActor, actor);
}
StatusOr<ateapi::Actor> Suspend(Session& session, const ateapi::ObjectRef& actor) {
  return CallVerb(session, &Control::SuspendActor, actor);
}
StatusOr<ateapi::Actor> Revert(Session& session, const ateapi::ObjectRef& actor) {
  return CallVerb(session, &Control::RevertActor, actor);
}

// Which step failed, and the last line of a guest that did: what one would ask next.
void AddFailureDetails(Session& session, const ateapi::ObjectRef& actor, Status& status) {
  if (status.code() != Code::kInternal && ReasonOf(status) != "ACTOR_CRASHED") return;
  torpor::v1::ExplainActorRequest explain;
  *explain.mutable_actor() = actor;
  for (torpor::v1::Verb verb : {torpor::v1::VERB_RESUME, torpor::v1::VERB_PAUSE,
                                torpor::v1::VERB_SUSPEND, torpor::v1::VERB_REVERT}) {
    explain.add_verbs(verb);
  }
  torpor::v1::ExplainActorResponse explained;
  auto context = session.NewContext(kDetailsTime);
  if (session.ops().ExplainActor(context.get(), explain, &explained).ok() &&
      explained.reports_size() > 0) {
    for (const auto& phase : explained.reports(0).phases()) {
      if (!phase.error_reason().empty()) AddMetadata(status, "step", phase.name());
    }
  }
  torpor::v1::ReadLogsRequest read;
  *read.mutable_actor() = actor;
  read.set_tail_lines(1);
  context = session.NewContext(kDetailsTime);
  auto lines = session.ops().ReadLogs(context.get(), read);
  torpor::v1::LogLine line;
  while (lines->Read(&line)) {
    if (line.stream() != "torpor") AddMetadata(status, "last_line", line.line());
  }
  (void)lines->Finish();  // without it there is no last line, which is no failure of its own
}

using Verb = StatusOr<ateapi::Actor> (*)(Session&, const ateapi::ObjectRef&);

// With --wait=false the call is given just long enough to reach the server: a caller that leaves
// cancels nothing.
StatusOr<ateapi::Actor> StartOnly(Session& session, Verb verb, const ateapi::ObjectRef& actor) {
  Settings settings = session.settings();
  settings.timeout = "200ms";
  Session brief(settings);
  auto result = verb(brief, actor);
  if (result.status().code() != Code::kDeadlineExceeded) return result;
  ateapi::GetActorRequest request;
  *request.mutable_actor() = actor;
  ateapi::Actor now;
  RETURN_IF_ERROR(session.Call(&Control::GetActor, request, &now));
  return now;
}

int RunVerb(Session& session, Verb verb, const std::vector<std::string>& names, bool wait) {
  int code = 0;
  for (const std::string& name : names) {
    const ateapi::ObjectRef ref = session.Ref(name);
    auto actor = wait ? verb(session, ref) : StartOnly(session, verb, ref);
    if (!actor.ok()) {
      Status status = Annotate(actor.status(), ref.atespace() + "/" + ref.name());
      AddFailureDetails(session, ref, status);
      code = Report(status);
      if (Interrupted()) break;  // the others are not begun
      continue;
    }
    if (session.settings().output == "json") {
      auto text = ToJson(*actor);
      if (!text.ok()) return Report(text.status());
      printf("%s\n", text->c_str());
    } else if (!session.settings().quiet) {
      printf("%s\n", DrawState(*actor).c_str());
    }
  }
  return code;
}

}  // namespace

std::string DrawState(const ateapi::Actor& actor) {
  const ateapi::ActorStatus& status = actor.status();
  std::string out = fmt::format(
      "{}/{} is {}, generation {}", actor.metadata().atespace(), actor.metadata().name(),
      EnumName(ateapi::ActorState_Name(status.state()), "ACTOR_STATE_"), status.generation());
  switch (status.state()) {
    case ateapi::ACTOR_STATE_RUNNING:
      return out + fmt::format(" on node {}", OrDash(status.assigned_node()));
    case ateapi::ACTOR_STATE_PAUSED:
      out += fmt::format(", on the disk of node {}", OrDash(status.assigned_node()));
      return out + (status.has_external_snapshot()
                        ? "; an older state is in the object store"
                        : "; it does not survive the loss of that disk until it is suspended");
    case ateapi::ACTOR_STATE_SUSPENDED:
      return out + (status.has_external_snapshot()
                        ? ", in the object store; it survives the loss of this machine"
                        : ", without a snapshot: the next wake is a cold boot");
    default:
      return out;
  }
}

StatusOr<ateapi::Actor> ResumeActor(Session& session, const ateapi::ObjectRef& actor) {
  return CallVerb(session, &Control::ResumeActor, actor);
}

std::string ProgressOf(Session& session, const ateapi::ObjectRef& actor) {
  ateapi::GetActorRequest request;
  *request.mutable_actor() = actor;
  ateapi::Actor now;
  grpc::ClientContext context;
  rpc::SetDeadline(&context, std::chrono::seconds(1));
  if (!session.control().GetActor(&context, request, &now).ok()) return "";
  std::string text = EnumName(ateapi::ActorState_Name(now.status().state()), "ACTOR_STATE_");
  if (now.status().has_operation()) text += ", step " + now.status().operation().step();
  if (!now.status().assigned_node().empty()) text += " on " + now.status().assigned_node();
  return text;
}

void AddLifecycle(CLI::App& app, Invocation& invocation) {
  struct Entry {
    const char* name;
    const char* help;
    Verb verb;
  };
  static constexpr Entry kVerbs[] = {
      {"resume", "bring actors back; cold boot when they have no snapshot", ResumeActor},
      {"pause", "checkpoint on the node and free the memory", Pause},
      {"suspend", "checkpoint into the object store", Suspend},
      {"revert", "drop the running state, go back to the last durable snapshot", Revert}};
  for (const Entry& entry : kVerbs) {
    auto* verb = app.add_subcommand(entry.name, entry.help);
    auto names = std::make_shared<std::vector<std::string>>();
    auto wait = std::make_shared<bool>(true);
    verb->add_option("ACTOR", *names)->required();
    verb->add_option("--wait", *wait, "false: return when the operation has begun");
    Verb run = entry.verb;
    verb->callback([&invocation, run, names, wait] {
      invocation.run = [run, names, wait](Session& session) {
        return RunVerb(session, run, *names, *wait);
      };
    });
  }
}

}  // namespace torpor::cli
