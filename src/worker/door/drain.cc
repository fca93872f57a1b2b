#include "worker/door/drain.h"

#include <algorithm>

namespace torpor::worker {
namespace {

using Router = DrainView::Router;
// Bytes do not wake whoever waits, so what depends on them is looked at so often.
constexpr Duration kLook = std::chrono::milliseconds(20);

struct Sum {
  bool unknown = false;  // Somebody was asked and may still answer.
  bool busy = false;
  bool flowing = false;  // An answer is under way.
  MonotonicTime look_again;

  void LookAt(MonotonicTime when) { look_again = std::min(look_again, when); }
};

const Router* Find(const DrainView& view, const std::string& id) {
  auto it = std::find_if(view.routers.begin(), view.routers.end(),
                         [&id](const Router& router) { return router.id == id; });
  return it == view.routers.end() ? nullptr : &*it;
}

// By bytes alone, for a router that says nothing.
void AddSilent(const DrainView::Flow& flow, MonotonicTime now, Sum* sum) {
  MonotonicTime quiet_at = flow.last_bytes + kSilentRouterBusy;
  if (now >= quiet_at) return;
  sum->busy = true;
  sum->flowing = sum->flowing || !flow.unanswered;
  sum->LookAt(quiet_at);
}

void AddUncontrolled(const DrainView::Flow& flow, const DrainOptions& options, MonotonicTime now,
                     Sum* sum) {
  MonotonicTime quiet_at =
      flow.last_bytes + (options.refuse_if_busy ? kQuietBeforeIdlePause : kQuiet);
  if (!flow.unanswered && now >= quiet_at) return;
  sum->busy = true;
  sum->flowing = sum->flowing || !flow.unanswered;
  sum->LookAt(flow.unanswered ? now + kLook : std::min(quiet_at, now + kLook));
}

Sum Add(const DrainView& view, const DrainOptions& options, MonotonicTime now) {
  Sum sum;
  sum.look_again = MonotonicTime::max();
  for (const DrainView::Flow& flow : view.flows) {
    const Router* router = Find(view, flow.router);
    if (router == nullptr || router->state == Router::State::kUnknown) {
      AddUncontrolled(flow, options, now, &sum);
    } else if (router->state == Router::State::kAnswered) {
      sum.busy = sum.busy || router->inflight + router->streams > 0;
      sum.flowing = sum.flowing || router->streams > 0;
    } else if (router->state == Router::State::kAsked && now < router->asked + kRouterSilence) {
      sum.unknown = true;
      sum.LookAt(router->asked + kRouterSilence);
    } else {
      AddSilent(flow, now, &sum);
    }
  }
  return sum;
}

}  // namespace

DrainDecision DecideDrain(const DrainView& view, const DrainOptions& options, MonotonicTime began,
                          MonotonicTime now) {
  using Kind = DrainDecision::Kind;
  Sum sum = Add(view, options, now);
  if (sum.busy && options.refuse_if_busy) return {Kind::kBusy};
  // Closing before a router knows of the drain would look like a broken connection to it.
  if (sum.unknown) return {Kind::kWait, sum.look_again};
  if (!sum.busy) return {Kind::kDrained};
  MonotonicTime end = began + options.grace;
  if (now >= end && sum.flowing) end = began + std::max(options.grace, options.grace_max);
  if (now >= end) return {Kind::kDrained};
  return {Kind::kWait, std::min(sum.look_again, end)};
}

}  // namespace torpor::worker
