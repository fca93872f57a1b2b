#pragma once
// Counters, gauges and histograms of a role, in the text form that Prometheus reads.
//
//   MetricRegistry registry;
//   CounterFamily ended = registry.Counter("torpor_mover_operations_total", "Operations ended.",
//                                          {"method", "outcome"});
//   ended.Add({"Upload", "ok"});
//   registry.GaugeFunction("torpor_mover_operations_open", "Operations under way.",
//                          [&] { return table.size(); });
//
// A family has a fixed list of labels; values are given in its order. No label may name an actor or
// an atespace (checked), and a family keeps at most kSeriesMax combinations of values: what comes
// later is counted under "other", so that memory and the reader stay bounded.
//
// A family is a handle: copies count in the same place, keep it alive, and may outlive the
// registry. One that is default-constructed counts nothing, so a module takes families and needs no
// registry in its tests. Thread-safe. Asking the registry for a name again returns the same family;
// another type or other labels under that name are a CHECK failure.

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace torpor {

using LabelValues = std::initializer_list<std::string_view>;

class CounterFamily {
 public:
  void Add(LabelValues values = {}, double n = 1) const;

 private:
  friend class MetricRegistry;
  std::shared_ptr<class MetricFamily> family_;
};

class GaugeFamily {
 public:
  void Set(LabelValues values, double value) const;
  void Add(LabelValues values, double n) const;

 private:
  friend class MetricRegistry;
  std::shared_ptr<class MetricFamily> family_;
};

class HistogramFamily {
 public:
  void Observe(LabelValues values, Duration d) const;  // in seconds
  void Observe(LabelValues values, double value) const;

 private:
  friend class MetricRegistry;
  std::shared_ptr<class MetricFamily> family_;
};

// From 50 us to 60 s, for phases, operations and requests alike.
const std::vector<double>& SecondsBounds();

class MetricRegistry {
 public:
  static constexpr size_t kSeriesMax = 500;  // of one family

  MetricRegistry();
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  CounterFamily Counter(std::string_view name, std::string_view help,
                        std::vector<std::string> labels = {});
  GaugeFamily Gauge(std::string_view name, std::string_view help,
                    std::vector<std::string> labels = {});
  // `bounds` rise; the last bucket is +Inf.
  HistogramFamily Histogram(std::string_view name, std::string_view help,
                            std::vector<std::string> labels = {},
                            std::vector<double> bounds = SecondsBounds());
  // Asked at each Render, on its thread: what `read` uses must live until the last Render.
  void GaugeFunction(std::string_view name, std::string_view help, std::function<double()> read);
  // The same for a total that something else counts.
  void CounterFunction(std::string_view name, std::string_view help, std::function<double()> read);

  // Families in the order of their names.
  std::string Render() const;

 private:
  void Function(std::string_view name, std::string_view help, int type,
                std::function<double()> read);
  std::shared_ptr<MetricFamily> Family(std::string_view name, std::string_view help, int type,
                                       std::vector<std::string> labels, std::vector<double> bounds);

  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace torpor
