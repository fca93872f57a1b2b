// Golden texts of a made-up result, the verdict, and the JSON form.
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace torpor::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> Around(double middle, int n) {
  std::vector<double> out;
  const int below = n / 2;
  for (int i = 0; i < n; ++i) out.push_back(middle - below + i);
  return out;
}

Row MakeRow(const std::string& name, double middle, int n) {
  Row row;
  row.name = name;
  row.attempts = n;
  row.ms = Summarize(Around(middle, n));
  row.server_ms = Summarize(Around(middle - 2, n));
  row.per_second = n / 60.0;
  row.p50_min = row.p50_max = row.ms.p50;
  row.histogram = MakeHistogram(Around(middle, n));
  return row;
}

RunResult MakeResult() {
  RunResult r;
  r.scenario = "glutton_1user_500mi_gvisor_pause";
  r.started = "2026-11-30T18:00:00.000Z";
  r.parameters = {{"users", "1"}, {"lifecycle-mode", "pause"}};
  r.overrides = {{"repeat", "2"}};
  r.build = {"0.1.0", "abc123", "ff", "-O2", true};
  r.machine = {"6.18", "Some CPU", 2, int64_t{24} << 30, "ext4", "hybrid"};
  r.runtime = "runsc release-20240729.0 (systrap)";
  for (int i = 0; i < 2; ++i) {
    Repeat repeat;
    repeat.seconds = 60;
    repeat.completed_cycles = 20 + i;
    repeat.cycles_mean = 20;
    repeat.before.load1 = 0.2;
    repeat.after.load1 = 0.4;
    repeat.rows = {MakeRow("ResumeActor", 500 + 20 * i, 20), MakeRow("PauseActor", 320, 20),
                   MakeRow("GluttonPing", 600, 1000)};
    PhaseRow restore{"restore", "worker", 12, Summarize(Around(450, 20))};
    repeat.rows[0].phases = {restore};
    r.repeats.push_back(repeat);
  }
  r.repeats[1].rows[1].attempts = 21;
  r.repeats[1].rows[1].failures = 1;
  r.repeats[1].rows[1].failed_ms = Summarize({2000});
  r.repeats[1].replaced = 1;
  r.repeats[1].events = {"PauseActor: no space (DISK_FULL) after 2,000 ms"};
  r.limits = {{"L1", "bare checkpoint", Summarize(Around(300, 30)), 0.02, Around(300, 30), 0,
               "runsc checkpoint"},
              {"L2", "bare restore to the first 200", Summarize(Around(400, 29)), 0, {}, 0, ""}};
  CombineRepeats(&r);
  CompareWithLimits(&r);
  Judge(&r);
  return r;
}

constexpr char kHead[] =
    R"(glutton_1user_500mi_gvisor_pause  2026-11-30T18:00:00.000Z  verdict: ok
torpor 0.1.0 (abc123, -O2), runsc release-20240729.0 (systrap)
Some CPU, 2 cores, 24Gi, kernel 6.18, ext4, cgroup hybrid
load before-after / steal / cores used by others, per repeat: 0.20-0.40 / 0.0 % / 0.00, 0.20-0.40 / 0.0 % / 0.00
overrides: repeat=2
operations 2081, failures 1 (0.0481 %), unexplained 0, corruptions 0, crashed 0, replaced 1, failures in warm-up 0
  PauseActor: no space (DISK_FULL) after 2,000 ms
)";

constexpr char kFull[] =
    R"(completed cycles 20 per repeat

row (ms)        N   failed     rate     min      p50     avg   p75    p90     p95     p99     max   req/s   server p50   p50 of repeats
ResumeActor    40        0      0 %     490      509     510   514    517~    518~    519~    529    0.33          507         499..519
PauseActor     41        1   2.44 %     310      319     320   324    327~    328~    329~    329    0.33          317         319..319
  failed        1                     2,000    2,000~  2,000                                2,000
GluttonPing  2000        0      0 %     100      599     600   849    999   1,049   1,089   1,099   16.67          597         599..599

ResumeActor: phase (ms)  begins    N   p50   avg   max
  worker restore           12.0   40   449   450   459
)";
constexpr char kMemory[] =
    R"(
metric                                             A
Completed Cycles (in 60s)                         20
PauseActor Failure Rate                       2.44 %
PauseActor P50 / Avg / P95 (N=40)    319 / 320 / 328~
ResumeActor Failure Rate                         0 %
ResumeActor P50 / Avg / P95 (N=40)   509 / 510 / 518~
)";
constexpr char kOperation[] =
    R"(
operation       N   failed   p50   p75    p90     p95     p99   Average   Throughput (req/s)
ResumeActor    40        0   509   514    517~    518~    519~      510                 0.33
PauseActor     41        1   319   324    327~    328~    329~      320                 0.33
GluttonPing  2000        0   599   849    999   1,049   1,089       600                16.67
)";
constexpr char kThroughput[] =
    R"(
metric                                                                   A
Completed Cycles                                                        41
cycles_mean ((hibernations + resumes) / 2)                              40
Cycle Throughput                            20.5 cycles/min, 0.34 cycles/s
ResumeActor p50 (N=40)                                                 509
ResumeActor avg                                                        510
ResumeActor p90 / p99                                           517~ / 519~
)";
constexpr char kTail[] =
    R"(
limit (ms)                         N   min    p50   mean    p95    p99   max    drift
L1 bare checkpoint                30   285    299    300    313~   314~  314   +2.0 %
L2 bare restore to the first 200  29   386    400~   400    413~   414~  414   +0.0 %
PauseActor p50: 319 ms = 1.07 x L1 (299 ms); to reach <= 1.1 x L1 + 15 ms = 344 ms: reached
ResumeActor p50: 509 ms = 1.27 x L2 (400 ms); to reach <= 1.15 x L2 + 10 ms = 470 ms: missed (for orientation only)
PauseActor p95: 328 ms = 1.03 x PauseActor p50 (319 ms); to reach <= 1.5 x PauseActor p50 + 0 ms = 478 ms: reached (for orientation only)
ResumeActor p95: 518 ms = 1.02 x ResumeActor p50 (509 ms); to reach <= 1.5 x ResumeActor p50 + 0 ms = 764 ms: reached (for orientation only)

~ too few samples for this percentile; not to be compared
)";

std::string Text(const std::string& layout, bool locust = false) {
  return Report(MakeResult(), {layout, locust});
}

TEST(ReportTest, Full) { EXPECT_EQ(Text("full"), kHead + std::string(kFull) + kTail); }
TEST(ReportTest, Memory) { EXPECT_EQ(Text("memory"), kHead + std::string(kMemory) + kTail); }
TEST(ReportTest, Operation) {
  EXPECT_EQ(Text("operation"), kHead + std::string(kOperation) + kTail);
}
TEST(ReportTest, Throughput) {
  EXPECT_EQ(Text("throughput"), kHead + std::string(kThroughput) + kTail);
}

TEST(ReportTest, LocustRounding) {
  EXPECT_THAT(Text("memory", true), HasSubstr("510 / 510 / 520~"));
}

TEST(ResultTest, RatiosSayWhetherTheyMayBeCompared) {
  RunResult r = MakeResult();
  ASSERT_EQ(r.ratios.size(), 4u);
  EXPECT_EQ(r.ratios[0].metric, "PauseActor p50");
  EXPECT_DOUBLE_EQ(r.ratios[0].bound_ms(), 1.10 * r.limits[0].ms.p50 + 15);
  EXPECT_TRUE(r.ratios[0].met());
  EXPECT_TRUE(r.ratios[0].comparable);
  EXPECT_FALSE(r.ratios[1].comparable);  // 29 samples of the limit
  r.limits[0].drift = -0.11;
  CompareWithLimits(&r);
  EXPECT_FALSE(r.ratios[0].comparable);
}

TEST(ResultTest, ResumeAfterASuspendIsNotComparedWithALocalRestore) {
  RunResult r = MakeResult();
  r.parameters["lifecycle-mode"] = "suspend";
  CompareWithLimits(&r);
  ASSERT_EQ(r.ratios.size(), 1u);
  EXPECT_EQ(r.ratios[0].metric, "PauseActor p50");
}

TEST(ResultTest, RouterIsComparedWithTheDoor) {
  RunResult r;
  r.limits = {{"L9", "", Summarize(Around(600, 1000)), 0, {}, 0, ""},
              {"router", "", Summarize(Around(601, 1000)), 0, {}, 0, ""}};
  CompareWithLimits(&r);
  ASSERT_EQ(r.ratios.size(), 2u);
  EXPECT_FALSE(r.ratios[0].met());  // 1 ms more, 0.3 allowed
  EXPECT_TRUE(r.ratios[1].met());   // at p99 2 ms are
  EXPECT_TRUE(r.ratios[1].comparable);
}

TEST(ResultTest, OneUsersCyclesAreHeldAgainstTheLimits) {
  RunResult r = MakeResult();
  r.parameters["min-wait-time"] = "1s";
  CompareWithLimits(&r);
  ASSERT_EQ(r.figures.size(), 1u);
  const Figure& cycles = r.figures[0];
  // A cycle: 299 + 400 + 1000 ms and 50 pings of 600 ms for each of the 40 resumes.
  EXPECT_NEAR(cycles.value, 20 / (60000 / (299 + 400 + 1000 + 50 * 599.5)), 0.01);
  EXPECT_TRUE(cycles.met());
  r.parameters["users"] = "2";
  CombineRepeats(&r);
  CompareWithLimits(&r);
  EXPECT_TRUE(r.figures.empty());
}

TEST(ResultTest, WakesAreHeldAgainstTheBareRestore) {
  RunResult r;
  r.parameters = {{"lifecycle-mode", "pause"}, {"warm-pool", "0"}};
  r.rows = {MakeRow("WakeFirstTouch", 150, 200)};
  Limit restore;
  restore.name = "L2";
  restore.ms = Summarize(Around(400, 200));
  r.limits = {restore};
  CompareWithLimits(&r);
  ASSERT_EQ(r.ratios.size(), 1u);
  EXPECT_EQ(r.ratios[0].metric, "WakeFirstTouch p95");
  EXPECT_DOUBLE_EQ(r.ratios[0].bound_ms(), restore.ms.p95 + 20);
  EXPECT_TRUE(r.ratios[0].comparable);
  r.parameters["warm-pool"] = "1";
  CompareWithLimits(&r);
  ASSERT_EQ(r.ratios.size(), 2u);
  EXPECT_DOUBLE_EQ(r.ratios[0].bound_ms(), 0.5 * restore.ms.p50);
  EXPECT_DOUBLE_EQ(r.ratios[1].bound_ms(), 0.55 * restore.ms.p95);
}

TEST(ResultTest, ManyAreHeldAgainstOneAlone) {
  RunResult r;
  r.rows = {MakeRow("solo ResumeActor", 300, 30), MakeRow("ResumeActor", 500, 30)};
  CompareWithLimits(&r);
  ASSERT_EQ(r.ratios.size(), 1u);
  EXPECT_EQ(r.ratios[0].limit, "solo ResumeActor");
  EXPECT_FALSE(r.ratios[0].met());
  EXPECT_TRUE(r.ratios[0].comparable);
}

TEST(ResultTest, OfSeveralRepeatsTheWorstFigureCounts) {
  RunResult r = MakeResult();
  r.repeats[0].figures = {
      {"left", "times", 0, "<=", 0}, {"rate", "/s", 9, ">=", 5}, {"x", "", 1, "", 0}};
  r.repeats[1].figures = {
      {"left", "times", 2, "<=", 0}, {"rate", "/s", 4, ">=", 5}, {"x", "", 3, "", 0}};
  CombineRepeats(&r);
  ASSERT_EQ(r.figures.size(), 3u);
  EXPECT_EQ(r.figures[0].value, 2);
  EXPECT_FALSE(r.figures[0].met());
  EXPECT_EQ(r.figures[1].value, 4);
  EXPECT_FALSE(r.figures[1].met());
  EXPECT_TRUE(r.figures[2].met());
  const std::string text = Report(r, {});
  EXPECT_THAT(text, testing::ContainsRegex("left +2 times +<= 0: missed"));
  EXPECT_EQ(Report(*ParseResult(ToJson(r), "x.json"), {}), text);
}

TEST(ResultTest, VerdictTellsWhatSpoilsTheFigures) {
  RunResult r = MakeResult();
  r.repeats[1].steal_percent = 3;
  Judge(&r);
  EXPECT_EQ(r.verdict, "noisy");
  EXPECT_THAT(r.verdict_reasons, ElementsAre("repeat 2: steal 3.0 % is above 2 %"));
  r.repeats[0].driver_cpu = 0.9;
  Judge(&r);
  EXPECT_EQ(r.verdict, "driver_limited");
  r.repeats[0].driver_cpu = 0;
  r.repeats[0].driver_late = 0.02;
  Judge(&r);
  EXPECT_EQ(r.verdict, "driver_limited");
  r.repeats[1].corruptions = 1;
  Judge(&r);
  EXPECT_EQ(r.verdict, "corrupt");
  for (const auto& spoil : std::vector<std::function<void(RunResult*)>>{
           [](RunResult* x) { x->repeats[0].before.load1 = 0.6; },
           [](RunResult* x) { x->repeats[0].other_cpu = 0.5; },
           [](RunResult* x) { x->limits[0].drift = 0.2; },
           [](RunResult* x) { x->build.release = false; }}) {
    RunResult spoiled = MakeResult();
    EXPECT_EQ(spoiled.verdict, "ok");
    spoil(&spoiled);
    Judge(&spoiled);
    EXPECT_EQ(spoiled.verdict, "noisy");
  }
}

TEST(ResultTest, JsonKeepsEverythingThatIsPrinted) {
  RunResult r = MakeResult();
  auto again = ParseResult(ToJson(r), "x.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Report(*again, {}), Report(r, {}));
  EXPECT_EQ(again->rows[0].histogram, r.rows[0].histogram);
  EXPECT_EQ(again->parameters, r.parameters);
}

TEST(ResultTest, OtherJsonIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"schema":2})", R"({"schema":1,"rows":7})"}) {
    EXPECT_EQ(ParseResult(text, "x.json").status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace torpor::bench
