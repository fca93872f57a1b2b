// The decision of a drain, row by row.

#include "worker/door/drain.h"

#include <gtest/gtest.h>

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = DrainDecision::Kind;
using State = DrainView::Router::State;

const MonotonicTime kBegan = MonotonicTime(seconds(1000));

DrainOptions Idle() { return {.why = "idle", .refuse_if_busy = true}; }
DrainOptions Api() { return {.why = "api", .grace = seconds(2), .grace_max = seconds(60)}; }

DrainView With(State state, int inflight, int streams, Duration bytes_ago, bool unanswered) {
  DrainView view;
  view.routers.push_back({"r", state, kBegan, inflight, streams});
  view.flows.push_back({"r", kBegan - bytes_ago, unanswered});
  return view;
}

TEST(DrainTest, Rows) {
  struct Row {
    const char* what;
    DrainView view;
    DrainOptions options;
    Duration after;  // the beginning
    Kind want;
    Duration look_again{};  // after the beginning, of kWait
  };
  const Row rows[] = {
      {"nothing open, idle", {}, Idle(), {}, Kind::kDrained},
      {"nothing open, api", {}, Api(), {}, Kind::kDrained},
      {"asked, idle", With(State::kAsked, 0, 0, {}, false), Idle(), milliseconds(5), Kind::kWait,
       seconds(1)},
      {"asked, api without grace",
       With(State::kAsked, 0, 0, {}, false),
       {},
       milliseconds(5),
       Kind::kWait,
       seconds(1)},
      {"drained, idle", With(State::kAnswered, 0, 0, {}, true), Idle(), {}, Kind::kDrained},
      {"drained, api", With(State::kAnswered, 0, 0, {}, true), Api(), {}, Kind::kDrained},
      {"request, idle", With(State::kAnswered, 1, 0, seconds(99), false), Idle(), {}, Kind::kBusy},
      {"stream, idle", With(State::kAnswered, 0, 1, seconds(99), false), Idle(), {}, Kind::kBusy},
      {"request, api", With(State::kAnswered, 1, 0, {}, true), Api(), seconds(1), Kind::kWait,
       seconds(2)},
      {"request after the grace", With(State::kAnswered, 1, 0, {}, true), Api(), seconds(2),
       Kind::kDrained},
      {"stream after the grace", With(State::kAnswered, 0, 1, {}, true), Api(), seconds(2),
       Kind::kWait, seconds(60)},
      {"request beside a stream", With(State::kAnswered, 3, 1, {}, true), Api(), seconds(59),
       Kind::kWait, seconds(60)},
      {"stream at the end", With(State::kAnswered, 0, 1, {}, true), Api(), seconds(60),
       Kind::kDrained},
      {"silent, bytes 5 s ago, idle", With(State::kAsked, 0, 0, seconds(5), false), Idle(),
       seconds(1), Kind::kBusy},
      {"silent, bytes 9 s ago, idle", With(State::kAsked, 0, 0, seconds(9), false), Idle(),
       seconds(1), Kind::kDrained},
      {"silent, api", With(State::kAsked, 0, 0, seconds(5), true), Api(), seconds(1), Kind::kWait,
       seconds(2)},
      {"silent, api, grace over", With(State::kAsked, 0, 0, seconds(5), true), Api(), seconds(2),
       Kind::kDrained},
      {"lost is silent at once, idle",
       With(State::kLost, 0, 0, seconds(5), false),
       Idle(),
       {},
       Kind::kBusy},
      {"lost and quiet, idle",
       With(State::kLost, 0, 0, seconds(11), false),
       Idle(),
       {},
       Kind::kDrained},
      {"no control, owes an answer, idle",
       With(State::kUnknown, 0, 0, seconds(99), true),
       Idle(),
       {},
       Kind::kBusy},
      {"no control, bytes 0.5 s ago, idle",
       With(State::kUnknown, 0, 0, milliseconds(500), false),
       Idle(),
       {},
       Kind::kBusy},
      {"no control, quiet, idle",
       With(State::kUnknown, 0, 0, seconds(1), false),
       Idle(),
       {},
       Kind::kDrained},
      {"no control, owes, api",
       With(State::kUnknown, 0, 0, {}, true),
       Api(),
       {},
       Kind::kWait,
       milliseconds(20)},
      {"no control, owes, grace over", With(State::kUnknown, 0, 0, {}, true), Api(), seconds(2),
       Kind::kDrained},
      {"no control, just answered", With(State::kUnknown, 0, 0, {}, false), Api(), milliseconds(1),
       Kind::kWait, milliseconds(5)},
      {"no control, flows on", With(State::kUnknown, 0, 0, -seconds(2), false), Api(), seconds(2),
       Kind::kWait, seconds(2) + milliseconds(5)},
      {"no control, quiet, api", With(State::kUnknown, 0, 0, {}, false), Api(), milliseconds(5),
       Kind::kDrained},
  };
  for (const Row& row : rows) {
    DrainDecision got = DecideDrain(row.view, row.options, kBegan, kBegan + row.after);
    EXPECT_EQ(got.kind, row.want) << row.what;
    if (row.want == Kind::kWait) {
      EXPECT_EQ(got.look_again, kBegan + row.look_again) << row.what;
    }
  }
}

TEST(DrainTest, OneBusyRouterIsEnoughAndOneUnknownIsWaitedFor) {
  DrainView view = With(State::kAnswered, 0, 0, {}, false);
  view.routers.push_back({"s", State::kAsked, kBegan, 0, 0});
  view.flows.push_back({"s", kBegan, false});
  EXPECT_EQ(DecideDrain(view, Idle(), kBegan, kBegan).kind, Kind::kWait);
  view.routers[0].inflight = 1;
  EXPECT_EQ(DecideDrain(view, Idle(), kBegan, kBegan).kind, Kind::kBusy);
  // Even when the grace is over nobody is cut who may not know of the drain.
  EXPECT_EQ(DecideDrain(view, {}, kBegan, kBegan + milliseconds(500)).kind, Kind::kWait);
  // A router without a connection is not asked for.
  view.flows.pop_back();
  view.routers[0].inflight = 0;
  EXPECT_EQ(DecideDrain(view, Idle(), kBegan, kBegan).kind, Kind::kDrained);
}

}  // namespace
}  // namespace torpor::worker
