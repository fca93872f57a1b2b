#pragma once
// One JSON line per log call on standard error; the supervisor of the roles puts it into a file.
//
//   Log(LogLevel::kInfo, "actor started", {{"actor", uid}, {"ms", fmt::to_string(ms)}});
//
// Thread-safe: a line is one write(2). Values pass the redactor: user info and query strings of
// URLs, Authorization values and tokens never appear. No secret is ever a key.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torpor {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogFields = std::vector<std::pair<std::string_view, std::string>>;

void Log(LogLevel level, std::string_view message, const LogFields& fields = {});
// Called once at start, before threads. `role` appears in every line; lines below `minimum` are
// dropped.
void InitLog(std::string_view role, LogLevel minimum = LogLevel::kInfo);

inline void LogInfo(std::string_view m, const LogFields& f = {}) { Log(LogLevel::kInfo, m, f); }
inline void LogWarning(std::string_view m, const LogFields& f = {}) {
  Log(LogLevel::kWarning, m, f);
}
inline void LogError(std::string_view m, const LogFields& f = {}) { Log(LogLevel::kError, m, f); }

// `text` without user info and query strings of URLs, and without the values of Authorization,
// X-Amz-* and token-like fields.
std::string Redact(std::string_view text);

// Ends the process with a message when a promise of the code itself is broken.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace torpor

#define CHECK(expression) \
  ((expression) ? (void)0 : ::torpor::CheckFailed(__FILE__, __LINE__, #expression))
