#include "base/trace.h"

#include <algorithm>

namespace torpor {
namespace {

thread_local std::string current_trace;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  if (text.size() != 55 || text.substr(0, 3) != "00-" || text[35] != '-' || text[52] != '-') {
    return false;
  }
  const std::string_view trace = text.substr(3, 32);
  const std::string_view parent = text.substr(36, 16);
  return IsHex(trace) && IsHex(parent) && IsHex(text.substr(53)) &&
         trace.find_first_not_of('0') != std::string_view::npos &&
         parent.find_first_not_of('0') != std::string_view::npos;
}

std::string TraceIdOf(std::string_view traceparent) {
  return IsTraceparent(traceparent) ? std::string(traceparent.substr(3, 32)) : "";
}

std::string TraceparentOfUuid(std::string_view uuid) {
  std::string digits(uuid);
  digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
  if (digits.size() != 32) return "";
  return "00-" + digits + "-" + digits.substr(16) + "-01";
}

LogTrace::LogTrace(std::string_view traceparent) : previous_(current_trace) {
  if (IsTraceparent(traceparent)) current_trace = traceparent;
}

LogTrace::~LogTrace() { current_trace = std::move(previous_); }

const std::string& LogTrace::Current() { return current_trace; }

}  // namespace torpor
