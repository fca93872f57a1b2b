#pragma once
// Heads written anew for the other side: hop-by-hop fields and everything only the router may say
// are dropped, and what the router says is added. Pure functions, any thread.

#include <string>
#include <string_view>

#include "router/h1/head.h"

namespace torpor::router {

struct RequestRewrite {
  std::string_view target;  // Origin form.
  std::string_view actor;   // <atespace>/<actor>
  std::string_view client;  // Address of the client.
  std::string_view request_id;
  std::string_view traceparent;
  bool trusted_client = false;  // Keeps its forwarded and x-forwarded-* fields.
};

// The head for the actor. The framing is that of `head`.
void WriteRequestHead(const RequestHead& head, const RequestRewrite& rewrite, std::string* out);

struct ResponseRewrite {
  std::string_view server_timing;  // Empty: none.
  std::string_view request_id;
  Framing framing = Framing::kNone;  // To the client.
  bool client_http11 = true;
  bool close = false;    // The client's connection ends after this answer.
  bool upgrade = false;  // A 101 that the client asked for.
};

// The head for the client. Not used for 100 Continue and the like.
void WriteResponseHead(const ResponseHead& head, const ResponseRewrite& rewrite, std::string* out);
// 1xx heads, except 101.
void WriteInterimHead(const ResponseHead& head, std::string* out);

// An incoming value that may be passed on: 1 to 128 visible characters without quotes and commas.
bool IsUsableRequestId(std::string_view text);

}  // namespace torpor::router
