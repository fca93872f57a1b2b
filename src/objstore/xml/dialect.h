#pragma once
// The two forms of the XML API: S3's own and that of Google Cloud Storage.

#include <cstdint>
#include <limits>

namespace torpor::objstore {

struct Dialect {
  const char* scheme;         // of addresses
  const char* header_prefix;  // of fields that are not HTTP's own
  // Of signatures.
  const char* algorithm;
  const char* key_prefix;
  const char* service;
  const char* terminator;
  // The field that makes a PUT fail when there is an object.
  const char* if_absent_name;
  const char* if_absent_value;
  // What one request copies at most; more is copied in parts, which only S3 has.
  int64_t copy_bytes_max;
};

inline constexpr Dialect kS3Dialect = {
    "s3", "x-amz-",        "AWS4-HMAC-SHA256", "AWS4", "s3", "aws4_request", "if-none-match",
    "*",  int64_t{5} << 30};
inline constexpr Dialect kGcsDialect = {"gs",
                                        "x-goog-",
                                        "GOOG4-HMAC-SHA256",
                                        "GOOG4",
                                        "storage",
                                        "goog4_request",
                                        "x-goog-if-generation-match",
                                        "0",
                                        std::numeric_limits<int64_t>::max()};

}  // namespace torpor::objstore
