#pragma once
// The request a router sends to a door: `CONNECT <uid>.<generation>.actor.torpor:<port> HTTP/1.1`,
// or `GET /torpor/control HTTP/1.1` with `Connection: Upgrade`, `Upgrade: torpor-control/1` and its
// name in `torpor-router`, which a CONNECT may also carry.
//
// A pure, strict parser: whatever is not exactly this form is refused, because a second reading of
// the same bytes by somebody else must not be possible. Never allocates more than its result.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace torpor::worker {

inline constexpr size_t kConnectHeadBytesMax = 4096;
inline constexpr int kConnectHeadFieldsMax = 32;
inline constexpr size_t kRouterNameMax = 64;  // Visible characters of a token.

struct ConnectTarget {
  std::string uid;  // a uuid in lower case
  int64_t generation = 0;
  int port = 0;
};

enum class HeadState { kIncomplete, kComplete, kBad };

struct ConnectHead {
  HeadState state = HeadState::kIncomplete;
  bool control = false;      // when complete: the control connection, without a target
  ConnectTarget target;      // when complete
  std::string router;        // when complete; empty: not said
  std::string_view problem;  // when bad; a constant
};

// `bytes` is everything received so far. Bytes behind the head are bad, too: a router sends none
// before it saw the answer. kBad also for more than kConnectHeadBytesMax bytes without an end.
ConnectHead ParseConnectHead(std::string_view bytes);

}  // namespace torpor::worker
