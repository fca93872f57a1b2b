#pragma once
// What the sources of credentials share: asking an endpoint of this machine, reading its times.

#include <optional>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "objstore/http/http_client.h"

namespace torpor::objstore {

// The body of a 200 answer; asked twice when there is none. UNAVAILABLE names the host and nothing
// else of the request or the answer.
StatusOr<std::string> AskEndpoint(HttpClient* http, HttpRequest request);
// The same of an endpoint of this machine: it answers at once, so it is waited for shortly, and
// never asked through a proxy.
StatusOr<std::string> AskMachine(HttpClient* http, const std::string& method,
                                 const std::string& url, Headers headers);
// A file with one token, without the line end.
StatusOr<std::string> ReadTokenFile(const std::string& path);
// "2026-12-01T10:00:00Z"; nothing when it is not of this form.
std::optional<WallTime> ParseRfc3339Seconds(const std::string& text);

}  // namespace torpor::objstore
