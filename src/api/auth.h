#pragma once
// Who may call: on TCP the holder of the token, on the unix socket the users that the kernel names
// (rpc/unix_server.h).

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor::api {

// Thread-safe.
class TokenAuthenticator {
 public:
  // `token_file` is only named in messages.
  TokenAuthenticator(std::string token, std::string token_file)
      : token_(std::move(token)), token_file_(std::move(token_file)) {}

  // `authorization` is the value of that header, if there was one: "Bearer <token>", the scheme in
  // any case. UNAUTHENTICATED with what to do. The comparison takes the same time for every wrong
  // token of one length.
  Status Check(std::optional<std::string_view> authorization) const;

 private:
  const std::string token_;
  const std::string token_file_;
};

// The token in `path`, which is made with a random one (mode 0600) when it is missing.
// FAILED_PRECONDITION when others may read the file or when it holds no usable token (16 to 512
// characters without spaces).
StatusOr<std::string> LoadOrMakeToken(const std::string& path);

}  // namespace torpor::api
