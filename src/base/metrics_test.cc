#include "base/metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace torpor {
namespace {

TEST(Metrics, RendersEachTypeAsPrometheusReadsIt) {
  MetricRegistry registry;
  auto requests = registry.Counter("torpor_x_requests_total", "Requests.", {"method", "code"});
  requests.Add({"Get", "ok"});
  requests.Add({"Get", "ok"}, 2);
  requests.Add({"a\"b\\c\nd", "no"});
  registry.Counter("torpor_x_idle_total", "Never moved.");
  registry.Gauge("torpor_x_free", "Free.").Set({}, 2.5);
  int queue = 7;
  registry.GaugeFunction("torpor_x_queue", "Queue.", [&] { return queue; });
  auto seconds = registry.Histogram("torpor_x_seconds", "Time.", {"op"}, {0.001, 0.1});
  seconds.Observe({"start"}, std::chrono::milliseconds(1));
  seconds.Observe({"start"}, std::chrono::milliseconds(50));
  seconds.Observe({"start"}, std::chrono::seconds(4));
  EXPECT_EQ(registry.Render(),
            "# HELP torpor_x_free Free.\n"
            "# TYPE torpor_x_free gauge\n"
            "torpor_x_free 2.5\n"
            "# HELP torpor_x_idle_total Never moved.\n"
            "# TYPE torpor_x_idle_total counter\n"
            "torpor_x_idle_total 0\n"
            "# HELP torpor_x_queue Queue.\n"
            "# TYPE torpor_x_queue gauge\n"
            "torpor_x_queue 7\n"
            "# HELP torpor_x_requests_total Requests.\n"
            "# TYPE torpor_x_requests_total counter\n"
            "torpor_x_requests_total{method=\"Get\",code=\"ok\"} 3\n"
            "torpor_x_requests_total{method=\"a\\\"b\\\\c d\",code=\"no\"} 1\n"
            "# HELP torpor_x_seconds Time.\n"
            "# TYPE torpor_x_seconds histogram\n"
            "torpor_x_seconds_bucket{op=\"start\",le=\"0.001\"} 1\n"
            "torpor_x_seconds_bucket{op=\"start\",le=\"0.1\"} 2\n"
            "torpor_x_seconds_bucket{op=\"start\",le=\"+Inf\"} 3\n"
            "torpor_x_seconds_sum{op=\"start\"} 4.051\n"
            "torpor_x_seconds_count{op=\"start\"} 3\n");
  queue = 8;
  EXPECT_NE(registry.Render().find("torpor_x_queue 8\n"), std::string::npos);
}

TEST(Metrics, OneFamilyPerName) {
  MetricRegistry registry;
  registry.Counter("torpor_x_total", "X.", {"a"}).Add({"1"});
  registry.Counter("torpor_x_total", "X.", {"a"}).Add({"1"});
  EXPECT_NE(registry.Render().find("torpor_x_total{a=\"1\"} 2\n"), std::string::npos);
}

TEST(Metrics, SeriesAreBounded) {
  MetricRegistry registry;
  auto counter = registry.Counter("torpor_x_total", "X.", {"reason"});
  for (size_t i = 0; i < MetricRegistry::kSeriesMax + 10; ++i) {
    counter.Add({fmt::to_string(i)});
  }
  counter.Add({"0"});
  const std::string text = registry.Render();
  EXPECT_NE(text.find("torpor_x_total{reason=\"other\"} 10\n"), std::string::npos);
  EXPECT_NE(text.find("torpor_x_total{reason=\"0\"} 2\n"), std::string::npos);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            MetricRegistry::kSeriesMax + 1 + 2);
}

TEST(MetricsDeathTest, NoLabelNamesAnActor) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.Counter("torpor_x_total", "X.", {"actor_uid"}), "actor");
}

TEST(Metrics, WithoutARegistryNothingIsCounted) {
  CounterFamily().Add({"any", "number"});
  GaugeFamily().Set({}, 1);
  HistogramFamily().Observe({}, 1.0);
}

TEST(Metrics, ThreadsAndHandlesThatOutliveTheRegistry) {
  auto registry = std::make_unique<MetricRegistry>();
  CounterFamily counter = registry->Counter("torpor_x_total", "X.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([counter] {
      for (int i = 0; i < 1000; ++i) counter.Add();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_NE(registry->Render().find("torpor_x_total 4000\n"), std::string::npos);
  registry.reset();
  counter.Add();
}

}  // namespace
}  // namespace torpor
