// torpor why ACTOR [--last N]

#include "cli/verbs/why.h"

#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/quantity.h"
#include "cli/output.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

constexpr int kBarWidth = 40;

std::string Bar(double start_ms, double duration_ms, double total_ms) {
  if (total_ms <= 0) return std::string(kBarWidth, '.');
  auto column = [&](double ms) {
    return std::clamp(static_cast<int>(std::lround(ms / total_ms * kBarWidth)), 0, kBarWidth);
  };
  const int from = std::min(column(start_ms), kBarWidth - 1);
  const int to = std::max(column(start_ms + duration_ms), from + 1);
  return std::string(static_cast<size_t>(from), '.') +
         std::string(static_cast<size_t>(to - from), '#') +
         std::string(static_cast<size_t>(kBarWidth - to), '.');
}

Status Explain(Session& session, const std::string& actor, int last) {
  torpor::v1::ExplainActorRequest request;
  *request.mutable_actor() = session.Ref(actor);
  request.set_count(last);
  for (torpor::v1::Verb verb :
       {torpor::v1::VERB_RESUME, torpor::v1::VERB_PAUSE, torpor::v1::VERB_SUSPEND,
        torpor::v1::VERB_REVERT, torpor::v1::VERB_ROLLBACK, torpor::v1::VERB_DELETE,
        torpor::v1::VERB_GOLDEN}) {
    request.add_verbs(verb);
  }
  torpor::v1::ExplainActorResponse response;
  RETURN_IF_ERROR(session.Call(&torpor::v1::Ops::StubInterface::async_interface::ExplainActor,
                               request, &response));
  const std::string& form = session.settings().output;
  if (form == "json" || form == "yaml") {
    ASSIGN_OR_RETURN(std::string text, ToJson(response));
    if (form == "yaml") {
      ASSIGN_OR_RETURN(text, JsonToYaml(text));
    }
    printf("%s\n", text.c_str());
    return OkStatus();
  }
  if (response.reports_size() == 0) printf("no operation is recorded for this actor yet\n");
  for (const auto& report : response.reports()) printf("%s", DrawReport(report).c_str());
  return OkStatus();
}

}  // namespace

std::string DrawReport(const torpor::v1::OperationReport& report) {
  std::string out = fmt::format(
      "{} by {} at {}: {:.1f} ms{}, generation {}\n",
      EnumName(torpor::v1::Verb_Name(report.verb()), "VERB_"), OrDash(report.trigger()),
      FormatRfc3339(FromProto(report.start_time())), report.total_ms(),
      report.node_name().empty() ? "" : " on " + report.node_name(), report.generation());
  if (!report.step().empty()) out += fmt::format("  under way, in step {}\n", report.step());
  if (!report.trace_id().empty()) {
    out += fmt::format("  op {}, trace {}\n", report.op_id(), report.trace_id());
  }
  size_t width = 0;
  for (const auto& phase : report.phases()) width = std::max(width, phase.name().size());
  for (const auto& phase : report.phases()) {
    out += fmt::format("  {:<{}} {} {:8.1f} ms", phase.name(), width,
                       Bar(phase.start_ms(), phase.duration_ms(), report.total_ms()),
                       phase.duration_ms());
    if (phase.bytes() > 0) out += "  " + FormatBytes(phase.bytes());
    if (!phase.detail().empty()) out += "  " + phase.detail();
    if (!phase.error_reason().empty()) out += "  FAILED " + phase.error_reason();
    out += "\n";
  }
  for (const auto& choice : report.choices()) {
    out += fmt::format("  {}: {}", choice.question(), OrDash(choice.answer()));
    if (!choice.reason().empty()) out += ", because " + choice.reason();
    out += "\n";
    for (const auto& rejected : choice.rejected()) {
      out += fmt::format("    not {}: {}\n", rejected.candidate(), rejected.reason());
    }
  }
  for (int64_t lost : report.lost_generations()) {
    out += fmt::format("  generation {} was given up\n", lost);
  }
  if (report.has_error()) {
    out += fmt::format("  failed: {} ({})\n", report.error().message(), report.error().reason());
  }
  return out;
}

void AddWhy(CLI::App& app, Invocation& invocation) {
  auto* why = app.add_subcommand("why", "what the last operations of an actor did, and why");
  auto actor = std::make_shared<std::string>();
  auto last = std::make_shared<int>(1);
  why->add_option("ACTOR", *actor)->required();
  why->add_option("--last", *last, "how many operations, newest first")->check(CLI::Range(1, 20));
  why->callback([&invocation, actor, last] {
    invocation.run = [actor, last](Session& session) {
      return Report(Explain(session, *actor, *last));
    };
  });
}

}  // namespace torpor::cli
