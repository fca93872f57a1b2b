#include "router/h1/rules.h"

namespace torpor::router {

std::string_view RuleName(Rule rule) {
  switch (rule) {
    case Rule::kNone:
      return "none";
    case Rule::kRequestLine:
      return "request_line";
    case Rule::kMethod:
      return "method";
    case Rule::kMethodRefused:
      return "method_refused";
    case Rule::kTarget:
      return "target";
    case Rule::kVersion:
      return "version";
    case Rule::kStatusLine:
      return "status_line";
    case Rule::kLineBreak:
      return "line_break";
    case Rule::kObsFold:
      return "obs_fold";
    case Rule::kSpaceBeforeColon:
      return "space_before_colon";
    case Rule::kFieldName:
      return "field_name";
    case Rule::kFieldValue:
      return "field_value";
    case Rule::kHost:
      return "host";
    case Rule::kLengthRepeated:
      return "length_repeated";
    case Rule::kLengthInvalid:
      return "length_invalid";
    case Rule::kLengthAndChunked:
      return "length_and_chunked";
    case Rule::kTransferEncoding:
      return "transfer_encoding";
    case Rule::kOldVersionChunked:
      return "old_version_chunked";
    case Rule::kExpect:
      return "expect";
    case Rule::kHeadTooLarge:
      return "head_too_large";
    case Rule::kFieldTooLarge:
      return "field_too_large";
    case Rule::kTooManyFields:
      return "too_many_fields";
    case Rule::kUriTooLong:
      return "uri_too_long";
    case Rule::kChunkSize:
      return "chunk_size";
    case Rule::kChunkLineTooLong:
      return "chunk_line_too_long";
    case Rule::kChunkEnd:
      return "chunk_end";
    case Rule::kTrailer:
      return "trailer";
  }
  return "unknown";
}

}  // namespace torpor::router
