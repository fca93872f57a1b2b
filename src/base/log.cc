#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <regex>

#include <nlohmann/json.hpp>

#include "base/time.h"
#include "base/trace.h"

namespace torpor {
namespace {

std::atomic<LogLevel> minimum_level{LogLevel::kInfo};
std::string& Role() {
  static std::string role;
  return role;
}

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

}  // namespace

std::string Redact(std::string_view text) {
  // Cheap test first: nearly no line holds anything to hide.
  bool suspicious = text.find("://") != std::string_view::npos;
  for (std::string_view word : {"uthorization", "earer", "X-Amz", "x-amz", "oken"}) {
    suspicious = suspicious || text.find(word) != std::string_view::npos;
  }
  if (!suspicious) return std::string(text);
  static const std::regex kUserInfo(R"(://[^/@\s]*@)");
  static const std::regex kQuery(R"((://[^\s?#"]*)\?[^\s"]*)");
  static const std::regex kBearer(R"(([Bb]earer\s+)\S+)");
  static const std::regex kFields(
      R"(((?:[Aa]uthorization|[Xx]-[Aa]mz-[A-Za-z-]+|[Tt]oken)["']?\s*[:=]\s*["']?)(?!Bearer|bearer)[^\s"',]+)");
  std::string out = std::regex_replace(std::string(text), kUserInfo, "://[redacted]@");
  out = std::regex_replace(out, kQuery, "$1?[redacted]");
  out = std::regex_replace(out, kBearer, "$1[redacted]");
  return std::regex_replace(out, kFields, "$1[redacted]");
}

void InitLog(std::string_view role, LogLevel minimum) {
  Role() = std::string(role);
  minimum_level = minimum;
}

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  nlohmann::ordered_json line;
  line["time"] = FormatRfc3339(Clock::Real()->WallNow());
  line["level"] = Name(level);
  if (!Role().empty()) line["role"] = Role();
  line["message"] = Redact(message);
  if (const std::string& trace = LogTrace::Current(); !trace.empty()) {
    line["trace_id"] = TraceIdOf(trace);
  }
  for (const auto& [key, value] : fields) line[std::string(key)] = Redact(value);
  std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

void CheckFailed(const char* file, int line, const char* expression) {
  fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, expression);
  abort();
}

}  // namespace torpor
