#pragma once
// Client channels, for internal and public servers alike.
//
// A channel connects at its first call, and again by itself after the server was restarted: the
// pause between attempts grows from 0.1 s (the least that gRPC accepts) to 1 s. A call that should
// outlive a restart of the server sets wait_for_ready (see SetDeadline). Channels are thread-safe.

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>

#include "base/time.h"

namespace torpor::rpc {

inline constexpr int kInternalMessageBytesMax = 16 << 20;
inline constexpr int kPublicMessageBytesMax = 4 << 20;
inline constexpr int kMetadataBytesMax = 32 << 10;

struct ConnectOptions {
  int message_bytes_max = kInternalMessageBytesMax;
  // Sent as `authorization: Bearer <token>` with every call unless empty.
  std::string token;
};

// `target` is `unix:<path>` or `host:port`, without TLS. Never fails: a server that is not there
// shows at the first call (UNAVAILABLE). Socket paths above the 107 bytes of sockaddr_un work as
// long as their directory exists now; otherwise the first call fails.
std::shared_ptr<grpc::Channel> Connect(const std::string& target, ConnectOptions options = {});

// Bounds a call. With `wait_for_ready` it waits for a connection until then instead of failing at
// once with UNAVAILABLE.
void SetDeadline(grpc::ClientContext* context, Duration timeout, bool wait_for_ready = false);

// What is left of the caller's deadline, at least 0; nullopt when it set none.
std::optional<Duration> TimeLeft(const grpc::ServerContextBase& context);

}  // namespace torpor::rpc
