#include "base/metrics.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/log.h"
#include "base/sync.h"

namespace torpor {

enum MetricType { kCounter, kGauge, kHistogram };

// The series of one name, behind one lock: roles count thousands of times a second, not millions.
class MetricFamily {
 public:
  MetricFamily(std::string help, int type, std::vector<std::string> labels,
               std::vector<double> bounds)
      : help_(std::move(help)),
        type_(type),
        labels_(std::move(labels)),
        bounds_(std::move(bounds)) {
    for (const std::string& label : labels_) {
      CHECK(label.find("actor") == std::string::npos && label.find("atespace") == label.npos);
    }
    CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
  }

  bool Is(int type, const std::vector<std::string>& labels) const {
    return type == type_ && labels == labels_;
  }

  void Add(LabelValues values, double n) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    Find(values).value += n;
  }
  void Set(LabelValues values, double value) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    Find(values).value = value;
  }
  void Observe(LabelValues values, double value) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    Series& series = Find(values);
    series.buckets.resize(bounds_.size() + 1);
    ++series.buckets[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) -
                                         bounds_.begin())];
    series.value += value;
  }

  void Render(const std::string& name, std::string* out) const EXCLUDES(mu_) {
    constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
    auto to = std::back_inserter(*out);
    fmt::format_to(to, "# HELP {} {}\n# TYPE {} {}\n", name, help_, name, kTypes[type_]);
    MutexLock lock(&mu_);
    // A counter that has not moved yet is 0, not missing.
    if (series_.empty() && labels_.empty() && type_ != kHistogram) {
      fmt::format_to(to, "{} 0\n", name);
    }
    for (const auto& [values, series] : series_) {
      if (type_ == kHistogram) {
        RenderHistogram(name, values, series, out);
      } else {
        fmt::format_to(to, "{}{} {}\n", name, Braces(values, ""), series.value);
      }
    }
  }

 private:
  struct Series {
    double value = 0;  // of a histogram: the sum
    std::vector<uint64_t> buckets;
  };

  Series& Find(LabelValues values) REQUIRES(mu_) {
    CHECK(values.size() == labels_.size());
    std::vector<std::string> key(values.begin(), values.end());
    auto found = series_.find(key);
    if (found != series_.end()) return found->second;
    if (series_.size() >= MetricRegistry::kSeriesMax) {
      key.assign(labels_.size(), "other");
    }
    return series_[std::move(key)];
  }

  static std::string Escape(const std::string& value) {
    std::string out;
    for (char c : value) {
      if (c == '\\' || c == '"') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  }

  std::string Braces(const std::vector<std::string>& values, const std::string& le) const {
    std::string out;
    for (size_t i = 0; i < labels_.size(); ++i) {
      out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", labels_[i], Escape(values[i]));
    }
    if (!le.empty()) out += fmt::format("{}le=\"{}\"", out.empty() ? "" : ",", le);
    return out.empty() ? out : "{" + out + "}";
  }

  void RenderHistogram(const std::string& name, const std::vector<std::string>& values,
                       const Series& series, std::string* out) const {
    auto to = std::back_inserter(*out);
    uint64_t total = 0;
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      total += series.buckets[i];
      const std::string le = i < bounds_.size() ? fmt::to_string(bounds_[i]) : "+Inf";
      fmt::format_to(to, "{}_bucket{} {}\n", name, Braces(values, le), total);
    }
    const std::string braces = Braces(values, "");
    fmt::format_to(to, "{}_sum{} {}\n{}_count{} {}\n", name, braces, series.value, name, braces,
                   total);
  }

  const std::string help_;
  const int type_;
  const std::vector<std::string> labels_;
  const std::vector<double> bounds_;
  mutable Mutex mu_;
  std::map<std::vector<std::string>, Series> series_ GUARDED_BY(mu_);
};

void CounterFamily::Add(LabelValues values, double n) const {
  if (family_ != nullptr) family_->Add(values, n);
}

void GaugeFamily::Set(LabelValues values, double value) const {
  if (family_ != nullptr) family_->Set(values, value);
}

void GaugeFamily::Add(LabelValues values, double n) const {
  if (family_ != nullptr) family_->Add(values, n);
}

void HistogramFamily::Observe(LabelValues values, Duration d) const {
  Observe(values, std::chrono::duration<double>(d).count());
}

void HistogramFamily::Observe(LabelValues values, double value) const {
  if (family_ != nullptr) family_->Observe(values, value);
}

const std::vector<double>& SecondsBounds() {
  static const std::vector<double> kBounds = {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025,
                                              0.005,   0.01,   0.025,   0.05,   0.1,   0.25,
                                              0.5,     1,      2.5,     5,      10,    60};
  return kBounds;
}

struct MetricRegistry::Impl {
  mutable Mutex mu;
  std::map<std::string, std::shared_ptr<MetricFamily>> families GUARDED_BY(mu);
  std::vector<std::pair<std::shared_ptr<MetricFamily>, std::function<double()>>> functions
      GUARDED_BY(mu);
};

MetricRegistry::MetricRegistry() : impl_(std::make_unique<Impl>()) {}
MetricRegistry::~MetricRegistry() = default;

std::shared_ptr<MetricFamily> MetricRegistry::Family(std::string_view name, std::string_view help,
                                                     int type, std::vector<std::string> labels,
                                                     std::vector<double> bounds) {
  MutexLock lock(&impl_->mu);
  auto& family = impl_->families[std::string(name)];
  if (family == nullptr) {
    family = std::make_shared<MetricFamily>(std::string(help), type, std::move(labels),
                                            std::move(bounds));
  } else {
    CHECK(family->Is(type, labels));
  }
  return family;
}

CounterFamily MetricRegistry::Counter(std::string_view name, std::string_view help,
                                      std::vector<std::string> labels) {
  CounterFamily out;
  out.family_ = Family(name, help, kCounter, std::move(labels), {});
  return out;
}

GaugeFamily MetricRegistry::Gauge(std::string_view name, std::string_view help,
                                  std::vector<std::string> labels) {
  GaugeFamily out;
  out.family_ = Family(name, help, kGauge, std::move(labels), {});
  return out;
}

HistogramFamily MetricRegistry::Histogram(std::string_view name, std::string_view help,
                                          std::vector<std::string> labels,
                                          std::vector<double> bounds) {
  HistogramFamily out;
  out.family_ = Family(name, help, kHistogram, std::move(labels), std::move(bounds));
  return out;
}

void MetricRegistry::GaugeFunction(std::string_view name, std::string_view help,
                                   std::function<double()> read) {
  Function(name, help, kGauge, std::move(read));
}

void MetricRegistry::CounterFunction(std::string_view name, std::string_view help,
                                     std::function<double()> read) {
  Function(name, help, kCounter, std::move(read));
}

void MetricRegistry::Function(std::string_view name, std::string_view help, int type,
                              std::function<double()> read) {
  auto family = Family(name, help, type, {}, {});
  MutexLock lock(&impl_->mu);
  impl_->functions.emplace_back(std::move(family), std::move(read));
}

std::string MetricRegistry::Render() const {
  std::map<std::string, std::shared_ptr<MetricFamily>> families;
  std::vector<std::pair<std::shared_ptr<MetricFamily>, std::function<double()>>> functions;
  {
    MutexLock lock(&impl_->mu);
    families = impl_->families;
    functions = impl_->functions;
  }
  for (const auto& [family, read] : functions) family->Set({}, read());
  std::string out;
  for (const auto& [name, family] : families) family->Render(name, &out);
  return out;
}

}  // namespace torpor
