#include "router/answer/metrics.h"

#include <fmt/format.h>

namespace torpor::router {
namespace {

constexpr std::array<std::string_view, 3> kWakes = {"none", "joined", "triggered"};
constexpr std::array<std::string_view, 4> kDrainResults = {"drained", "called_off", "cut", "lost"};
constexpr std::array<std::string_view, 4> kParkResults = {"served", "budget", "client_gone",
                                                          "error"};

void Type(std::string_view name, std::string_view type, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# TYPE {} {}\n", name, type);
}

void Gauge(std::string_view name, std::string_view labels, size_t value, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "{}{} {}\n", name, labels, value);
}

}  // namespace

void Histogram::Observe(Duration d) {
  double seconds = std::chrono::duration<double>(d).count();
  size_t i = 0;
  while (i < kBounds.size() && seconds > kBounds[i]) ++i;
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  sum_us_.fetch_add(static_cast<uint64_t>(std::max(0.0, seconds * 1e6)), std::memory_order_relaxed);
}

void Histogram::Render(std::string_view name, std::string_view labels, std::string* out) const {
  std::string_view comma = labels.empty() ? "" : ",";
  uint64_t total = 0;
  for (size_t i = 0; i <= kBounds.size(); ++i) {
    total += buckets_[i].load(std::memory_order_relaxed);
    std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(std::back_inserter(*out), "{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma,
                   bound, total);
  }
  std::string braces = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  fmt::format_to(std::back_inserter(*out), "{}_sum{} {:.6f}\n{}_count{} {}\n", name, braces,
                 static_cast<double>(sum_us_.load(std::memory_order_relaxed)) / 1e6, name, braces,
                 total);
}

void Metrics::Request(int status, std::string_view reason, WakeRole wake, Duration total) {
  request_[static_cast<int>(wake)].Observe(total);
  int status_class = status / 100;
  if (reason.empty()) {
    answered_[status_class].fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Count("torpor_router_requests_total",
        fmt::format("status_class=\"{}xx\",reason=\"{}\"", status_class, reason));
}

void Metrics::ParkRejected(std::string_view cap) {
  Count("torpor_router_park_rejected_total", fmt::format("cap=\"{}\"", cap));
}

void Metrics::RateLimited(std::string_view of) {
  Count("torpor_router_rate_limited_total", fmt::format("limit=\"{}\"", of));
}

void Metrics::ResumeRetry(Code code) {
  Count("torpor_router_resume_retries_total",
        fmt::format("code=\"{}\"", absl::StatusCodeToString(code)));
}

void Metrics::CutStream(std::string_view reason) {
  Count("torpor_router_cut_streams_total", fmt::format("reason=\"{}\"", reason));
}

void Metrics::BadRequest(Rule rule) {
  Count("torpor_router_bad_requests_total", fmt::format("rule=\"{}\"", RuleName(rule)));
}

void Metrics::Count(std::string_view name, const std::string& labels) {
  MutexLock lock(&mu_);
  ++counters_[std::string(name)][labels];
}

std::string Metrics::Render(const Gauges& gauges) const {
  std::string out;
  Type("torpor_router_requests_total", "counter", &out);
  for (size_t i = 0; i < answered_.size(); ++i) {
    uint64_t n = answered_[i].load(std::memory_order_relaxed);
    if (n == 0) continue;
    fmt::format_to(std::back_inserter(out),
                   "torpor_router_requests_total{{status_class=\"{}xx\",reason=\"\"}} {}\n", i, n);
  }
  {
    MutexLock lock(&mu_);
    for (const auto& [name, values] : counters_) {
      if (name != "torpor_router_requests_total") Type(name, "counter", &out);
      for (const auto& [labels, n] : values) {
        fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", name, labels, n);
      }
    }
  }
  Type("torpor_router_request_seconds", "histogram", &out);
  for (size_t i = 0; i < kWakes.size(); ++i) {
    request_[i].Render("torpor_router_request_seconds", fmt::format("wake=\"{}\"", kWakes[i]),
                       &out);
  }
  Type("torpor_router_added_seconds", "histogram", &out);
  added_.Render("torpor_router_added_seconds", "", &out);
  Type("torpor_router_park_seconds", "histogram", &out);
  for (size_t i = 0; i < kParkResults.size(); ++i) {
    park_[i].Render("torpor_router_park_seconds", fmt::format("outcome=\"{}\"", kParkResults[i]),
                    &out);
  }
  Type("torpor_router_drain_seconds", "histogram", &out);
  for (size_t i = 0; i < kDrainResults.size(); ++i) {
    drain_[i].Render("torpor_router_drain_seconds", fmt::format("outcome=\"{}\"", kDrainResults[i]),
                     &out);
  }
  for (std::string_view name : {"parked", "flights", "upstream", "connections", "routes"}) {
    Type(fmt::format("torpor_router_{}", name), "gauge", &out);
    if (name == "parked") Gauge("torpor_router_parked", "", gauges.parked, &out);
    if (name == "flights") Gauge("torpor_router_flights", "", gauges.flights, &out);
    if (name == "connections") Gauge("torpor_router_connections", "", gauges.connections, &out);
    if (name == "routes") Gauge("torpor_router_routes", "", gauges.routes, &out);
    if (name == "upstream") {
      Gauge("torpor_router_upstream", "{state=\"idle\"}", gauges.upstream_idle, &out);
      Gauge("torpor_router_upstream", "{state=\"busy\"}", gauges.upstream_busy, &out);
    }
  }
  return out;
}

}  // namespace torpor::router
