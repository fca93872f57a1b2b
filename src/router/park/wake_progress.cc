#include "router/park/wake_progress.h"

#include <algorithm>
#include <cctype>

#include "torpor/v1/ops.pb.h"

namespace torpor::router {

std::optional<WakeProgress> ProgressOf(const torpor::v1::ExplainActorResponse& response) {
  if (response.reports_size() == 0) return std::nullopt;
  const torpor::v1::OperationReport& report = response.reports(0);
  // A report without a step is one of an operation that has ended.
  if (report.step().empty() || report.verb() != torpor::v1::VERB_RESUME) return std::nullopt;
  WakeProgress progress;
  progress.phase = report.step();
  std::transform(progress.phase.begin(), progress.phase.end(), progress.phase.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  progress.elapsed = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(std::max(0.0, report.total_ms())));
  for (const torpor::v1::Choice& choice : report.choices()) {
    if (choice.question() == "source") progress.source = choice.answer();
  }
  progress.cold = !progress.source.empty() && progress.source != "local";
  return progress;
}

}  // namespace torpor::router
