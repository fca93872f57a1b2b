#pragma once
// Why a message was refused. One value per rule, so that a test and a metric can name each of them.

#include <string_view>

namespace torpor::router {

enum class Rule {
  kNone,  // The message is fine.
  kRequestLine,
  kMethod,
  kMethodRefused,  // CONNECT and TRACE.
  kTarget,
  kVersion,
  kStatusLine,
  kLineBreak,  // A CR, LF or NUL that is not part of a line's CRLF.
  kObsFold,
  kSpaceBeforeColon,
  kFieldName,
  kFieldValue,
  kHost,  // None in HTTP/1.1, or several.
  kLengthRepeated,
  kLengthInvalid,
  kLengthAndChunked,
  kTransferEncoding,
  kOldVersionChunked,
  kExpect,
  kHeadTooLarge,
  kFieldTooLarge,
  kTooManyFields,
  kUriTooLong,
  kChunkSize,
  kChunkLineTooLong,
  kChunkEnd,
  kTrailer,
};

// Lower snake case, the value of the label `rule` of torpor_router_bad_requests_total.
std::string_view RuleName(Rule rule);

}  // namespace torpor::router
