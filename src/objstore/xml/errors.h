#pragma once
// The one place where answers of a store become errors of ours. Pure.

#include <string>

#include "base/status.h"
#include "objstore/http/retry.h"
#include "objstore/xml/answers.h"

namespace torpor::objstore {

// What was asked of whom, for messages.
struct Asked {
  std::string_view store;      // "s3://bucket"
  std::string_view operation;  // "Put"
  std::string_view key;        // may be empty
  std::string_view endpoint;   // host and port
};

// The error of a request that ended like this, after all tries; what to do stands behind the last
// semicolon. `request_id` is foreign text. NOT_FOUND only for an object that does not exist,
// FAILED_PRECONDITION for a condition of ours.
Status StoreError(const Asked& asked, const HttpOutcome& outcome, const ErrorAnswer& error,
                  std::string_view request_id);

}  // namespace torpor::objstore
