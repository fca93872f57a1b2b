#pragma once
// Tokens of Google for the key of a service account: a claim that the key signs is exchanged for an
// access token (RFC 7523).

#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"
#include "objstore/credentials/credentials.h"

namespace torpor::objstore {

// `json` is the file of the key, `path` its name for messages. Nothing of the key gets into those.
StatusOr<Credentials> ServiceAccountToken(HttpClient* http, std::string_view json,
                                          const std::string& path, WallTime now);

// {"access_token": "...", "expires_in": 3599}, as the metadata server answers, too. `asked` is when
// the request was sent. INVALID_ARGUMENT without a token.
StatusOr<Credentials> ParseTokenAnswer(std::string_view json, WallTime asked);

}  // namespace torpor::objstore
