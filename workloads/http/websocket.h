#pragma once

// A WebSocket echo (RFC 6455): text and binary messages come back frame by frame, ping is answered
// with pong, close with close. No extensions, no UTF-8 check. Only for the server's thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "workloads/http/server.h"

namespace torpor::workloads::http {

inline constexpr uint64_t kMaxFrameBytes = 4 << 20;

// Value of Sec-WebSocket-Accept for a client's Sec-WebSocket-Key.
std::string WebSocketAccept(std::string_view key);

// Answers a handshake and turns the connection into an echo; 426 or 400 if it is none.
void ServeWebSocketEcho(const Request& request, const Reply& reply);

}  // namespace torpor::workloads::http
