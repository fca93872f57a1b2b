#include "bench/recorder.h"

namespace torpor::bench {
namespace {

constexpr size_t kEventsMax = 200;

// An operation's phases may come more than once; then they are one longer phase.
std::map<std::pair<std::string, std::string>, std::pair<double, double>> Merge(
    const std::vector<torpor::v1::Phase>& phases) {
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> merged;
  for (const auto& phase : phases) {
    auto [it, added] = merged.try_emplace({phase.component(), phase.name()}, phase.start_ms(), 0);
    it->second.first = std::min(it->second.first, phase.start_ms());
    it->second.second += phase.duration_ms();
  }
  return merged;
}

}  // namespace

void Recorder::BeginWindow(Duration duration) {
  MutexLock lock(&mu_);
  for (Series& series : series_) series.seconds = SecondsLocked();
  begin_ = clock_->Now();
  end_ = *begin_ + duration;
  repeat_.completed_cycles = 0;
}

void Recorder::EndWindow() {
  MutexLock lock(&mu_);
  end_ = clock_->Now();
}

void Recorder::SetPrefix(const std::string& prefix) {
  MutexLock lock(&mu_);
  prefix_ = prefix;
}

Duration Recorder::Elapsed() const {
  MutexLock lock(&mu_);
  return begin_ ? Duration(clock_->Now() - *begin_) : Duration::zero();
}

double Recorder::SecondsLocked() const { return begin_ ? ToMs(end_ - *begin_) / 1000 : 0; }

void Recorder::AddFigure(Figure figure) {
  MutexLock lock(&mu_);
  repeat_.figures.push_back(std::move(figure));
}

bool Recorder::InWindowLocked() const { return begin_.has_value() && clock_->Now() < end_; }

bool Recorder::InWindow() const {
  MutexLock lock(&mu_);
  return InWindowLocked();
}

bool Recorder::WindowOver() const {
  MutexLock lock(&mu_);
  return begin_.has_value() && clock_->Now() >= end_;
}

Recorder::Series& Recorder::Find(const std::string& row) {
  for (Series& series : series_) {
    if (series.name == row) return series;
  }
  series_.emplace_back().name = row;
  return series_.back();
}

void Recorder::Add(const std::string& row, const Outcome& outcome, bool always) {
  MutexLock lock(&mu_);
  if (outcome.corrupt) ++repeat_.corruptions;
  if (!outcome.ok()) {
    if (outcome.unexplained) ++repeat_.unexplained;
    std::string reason = ReasonOf(outcome.status);
    if (repeat_.events.size() < kEventsMax) {
      repeat_.events.push_back(
          fmt::format("{}: {}{} after {} ms", row, std::string(outcome.status.message()),
                      reason.empty() ? " (no reason)" : " (" + reason + ")", FormatMs(outcome.ms)));
    }
  }
  // An operation that began in the window counts, even when it ends a little later.
  auto took =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(outcome.ms));
  const bool inside = begin_.has_value() && clock_->Now() - took < end_;
  if (!always && !inside) {
    if (!outcome.ok()) ++repeat_.warmup_failures;
    return;
  }
  Series& series = Find(prefix_ + row);
  ++series.attempts;
  if (!outcome.ok()) {
    ++series.failures;
    series.failed_ms.push_back(outcome.ms);
    return;
  }
  series.ms.push_back(outcome.ms);
  if (outcome.server_ms) series.server_ms.push_back(*outcome.server_ms);
  for (const auto& [key, times] : Merge(outcome.phases)) {
    PhaseSeries& phase = series.phases[key];
    phase.starts.push_back(times.first);
    phase.ms.push_back(times.second);
  }
}

void Recorder::AddAll(const std::string& row, const std::vector<double>& ms, int64_t failures,
                      int64_t unexplained, const std::string& first_failure) {
  MutexLock lock(&mu_);
  Series& series = Find(prefix_ + row);
  series.attempts += static_cast<int64_t>(ms.size()) + failures;
  series.failures += failures;
  series.ms.insert(series.ms.end(), ms.begin(), ms.end());
  repeat_.unexplained += unexplained;
  if (failures > 0) repeat_.events.push_back(row + ": " + first_failure);
}

void Recorder::SetDriverLate(double share) {
  MutexLock lock(&mu_);
  repeat_.driver_late = share;
}

void Recorder::AddCycle(MonotonicTime hibernated) {
  MutexLock lock(&mu_);
  if (InWindowLocked() && hibernated >= *begin_) ++repeat_.completed_cycles;
}

void Recorder::AddReplaced() {
  MutexLock lock(&mu_);
  ++repeat_.replaced;
}

void Recorder::AddCrashed() {
  MutexLock lock(&mu_);
  ++repeat_.crashed;
}

void Recorder::AddEvent(const std::string& text) {
  MutexLock lock(&mu_);
  if (repeat_.events.size() < kEventsMax) repeat_.events.push_back(text);
}

bool Recorder::corrupt() const {
  MutexLock lock(&mu_);
  return repeat_.corruptions > 0;
}

Row Recorder::ToRow(const Series& series, double seconds) {
  Row row;
  row.name = series.name;
  row.attempts = series.attempts;
  row.failures = series.failures;
  row.ms = Summarize(series.ms);
  row.failed_ms = Summarize(series.failed_ms);
  row.server_ms = Summarize(series.server_ms);
  row.histogram = MakeHistogram(series.ms);
  row.p50_min = row.p50_max = row.ms.p50;
  if (seconds > 0) row.per_second = static_cast<double>(series.ms.size()) / seconds;
  for (const auto& [key, phase] : series.phases) {
    row.phases.push_back({key.second, key.first, Summarize(phase.starts).p50, Summarize(phase.ms)});
  }
  std::stable_sort(row.phases.begin(), row.phases.end(),
                   [](const auto& a, const auto& b) { return a.start_ms < b.start_ms; });
  return row;
}

Repeat Recorder::Finish() const {
  MutexLock lock(&mu_);
  Repeat repeat = repeat_;
  repeat.seconds = SecondsLocked();
  int64_t lifecycle = 0;
  for (const Series& series : series_) {
    repeat.rows.push_back(ToRow(series, series.seconds > 0 ? series.seconds : repeat.seconds));
    for (const char* name : {"PauseActor", "SuspendActor", "ResumeActor", "WakeFirstTouch"}) {
      if (series.name == name) lifecycle += static_cast<int64_t>(series.ms.size());
    }
  }
  repeat.cycles_mean = static_cast<double>(lifecycle) / 2;
  return repeat;
}

}  // namespace torpor::bench
