#pragma once
// HTTP/1.1 message heads: where one ends, whether it is allowed, what it says.
//
// The parser is the validator: what is not exactly right is refused, so no second program can read
// a message differently from us (request smuggling). Parsed heads are views into the bytes they
// were parsed from and live as long as those. Pure functions, any thread.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "router/h1/rules.h"

namespace torpor::router {

struct HeadLimits {
  size_t head_bytes = 64 << 10;
  size_t field_bytes = 32 << 10;  // One field, name and value.
  size_t fields = 100;
  size_t uri_bytes = 16 << 10;
};
inline constexpr HeadLimits kResponseLimits = {256 << 10, 64 << 10, 500, 0};

// Fields that the router treats specially; all others pass.
enum class FieldId : uint8_t {
  kOther,
  kHost,
  kContentLength,
  kTransferEncoding,
  kConnection,
  kUpgrade,
  kExpect,
  kTrailer,
  kHopByHop,      // keep-alive, proxy-connection, proxy-authenticate, proxy-authorization, te
  kForwardedFor,  // x-forwarded-for
  kForwarded,     // forwarded and every other x-forwarded-*
  kTargetActor,   // ate-target-actor
  kTargetPort,    // torpor-target-port
  kParkTimeout,   // torpor-park-timeout
  kHibernate,     // torpor-hibernate
  kKeepAwake,     // torpor-keep-awake
  kReserved,      // every other ate-* and torpor-*
  kRequestId,     // x-request-id
  kTraceparent,
  kSecFetchSite,
};

struct Field {
  std::string_view name;
  std::string_view value;  // Without surrounding spaces and tabs.
  FieldId id;
};

enum class Framing : uint8_t { kNone, kLength, kChunked, kUntilClose };

struct RequestHead {
  std::string_view method;
  std::string_view target;
  bool http11 = true;
  bool keep_alive = true;
  bool expect_continue = false;
  bool wants_upgrade = false;  // Connection names upgrade, and Upgrade names a protocol.
  Framing framing = Framing::kNone;
  uint64_t length = 0;
  std::vector<Field> fields;
  std::vector<std::string_view> connection_names;  // Fields that Connection calls hop-by-hop.

  const Field* Find(FieldId id) const;
};

struct ResponseHead {
  int status = 0;
  std::string_view reason;
  bool http11 = true;
  bool keep_alive = true;
  Framing framing = Framing::kNone;
  uint64_t length = 0;
  bool has_length = false;  // Also for HEAD and 304, where no body follows.
  std::vector<Field> fields;
  std::vector<std::string_view> connection_names;

  const Field* Find(FieldId id) const;
};

// Finds the end of a head in a buffer that grows. Reset for every message.
class HeadScanner {
 public:
  enum class State { kMore, kComplete, kBad };
  // `bytes` is everything since the start of the message. A bare LF or a NUL is kBad at once.
  State Scan(std::string_view bytes);
  size_t size() const { return size_; }  // With the empty line; valid after kComplete.
  void Reset() { *this = HeadScanner(); }

 private:
  size_t scanned_ = 0;
  size_t line_start_ = 0;
  size_t size_ = 0;
};

// `head` ends with its empty line. Old contents of `out` are replaced, its memory is reused.
Rule ParseRequestHead(std::string_view head, const HeadLimits& limits, RequestHead* out);
// `to_head_request`: the answer to a HEAD request has no body whatever it says.
Rule ParseResponseHead(std::string_view head, const HeadLimits& limits, bool to_head_request,
                       ResponseHead* out);
// One `name: value` line without its CRLF, with the rules of heads; for trailers.
Rule ParseFieldLine(std::string_view line, const HeadLimits& limits, Field* out);

bool IsToken(std::string_view text);
bool EqualsIgnoreCase(std::string_view a, std::string_view b);
// Calls `visit` for each non-empty element of a comma-separated list, trimmed.
template <typename F>
void ForEachListItem(std::string_view list, F visit) {
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (!item.empty()) visit(item);
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace torpor::router
