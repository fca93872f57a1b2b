#include "worker/logs/log_lines.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace torpor::worker {

void LineSplitter::Emit(const Sink& sink) {
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  sink(line_, truncated_);
  line_.clear();
  truncated_ = false;
}

void LineSplitter::Feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    size_t end = bytes.find('\n');
    std::string_view part = bytes.substr(0, end);
    size_t room = line_bytes_max_ - line_.size();
    line_.append(part.substr(0, room));
    if (part.size() > room) truncated_ = true;
    if (end == std::string_view::npos) return;
    Emit(sink);
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::End(const Sink& sink) {
  if (!line_.empty()) Emit(sink);
}

bool RateBudget::Take(int64_t bytes, MonotonicTime now) {
  // Capped before the multiplication, so that an idle year cannot overflow.
  Duration elapsed = std::min<Duration>(now - updated_, std::chrono::seconds(1));
  left_ = std::min(bytes_per_second_, left_ + elapsed.count() * (bytes_per_second_ >> 10) /
                                                  (Duration::period::den >> 10));
  updated_ = now;
  if (bytes > left_) return false;
  left_ -= bytes;
  return true;
}

std::string FormatLogLine(const LogLine& line) {
  nlohmann::ordered_json json;
  json["time"] = FormatRfc3339(line.time);
  json["container"] = line.container;
  json["stream"] = line.stream;
  json["line"] = line.line;
  json["truncated"] = line.truncated;
  json["generation"] = line.generation;
  if (line.dropped > 0) json["dropped"] = line.dropped;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace torpor::worker
