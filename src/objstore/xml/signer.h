#pragma once
// Signatures of requests, version 4 (AWS4-HMAC-SHA256 and Google's GOOG4-HMAC-SHA256). Pure.
//
// Own code because the signer of libcurl 7.88 also signs fields that it then does not send and
// reads the clock itself. Bodies are not part of the signature (UNSIGNED-PAYLOAD): their MD5 field
// is. Source: "Signature Version 4 for API requests" of the AWS documentation; its example is a
// test.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "objstore/credentials/credentials.h"
#include "objstore/http/http_client.h"
#include "objstore/xml/dialect.h"

namespace torpor::objstore {

using Query = std::vector<std::pair<std::string, std::string>>;

// "a=1&b=", percent-encoded and sorted: in the URL as in the signature.
std::string CanonicalQuery(Query query);

struct SignArgs {
  const Dialect* dialect = nullptr;
  std::string_view method;
  std::string_view host;   // with its port, as in the Host field
  std::string_view path;   // percent-encoded
  std::string_view query;  // CanonicalQuery
  std::string_view region;
  std::string_view payload_hash = "UNSIGNED-PAYLOAD";
  WallTime now;
};

// Adds date, payload hash, token and authorization to `headers`, whose names are in lower case and
// which are all signed. With a bearer token there is nothing to sign, and it is added alone.
void Authorize(const SignArgs& args, const Credentials& credentials, Headers* headers);

std::string Md5Base64(std::string_view bytes);

}  // namespace torpor::objstore
