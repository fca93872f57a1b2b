#include "api/http/json.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/reasons.h"
#include "rpc/reason.h"

namespace torpor::api {
namespace {

namespace util = google::protobuf::util;
using google::protobuf::Message;

constexpr int kNestingMax = 64;

struct CodeName {
  Code code;
  const char* name;  // as the Connect protocol writes it
  int http;
};

constexpr CodeName kCodes[] = {
    {Code::kCancelled, "canceled", 499},
    {Code::kUnknown, "unknown", 500},
    {Code::kInvalidArgument, "invalid_argument", 400},
    {Code::kDeadlineExceeded, "deadline_exceeded", 504},
    {Code::kNotFound, "not_found", 404},
    {Code::kAlreadyExists, "already_exists", 409},
    {Code::kPermissionDenied, "permission_denied", 403},
    {Code::kResourceExhausted, "resource_exhausted", 429},
    {Code::kFailedPrecondition, "failed_precondition", 400},
    {Code::kAborted, "aborted", 409},
    {Code::kOutOfRange, "out_of_range", 400},
    {Code::kUnimplemented, "unimplemented", 501},
    {Code::kInternal, "internal", 500},
    {Code::kUnavailable, "unavailable", 503},
    {Code::kDataLoss, "data_loss", 500},
    {Code::kUnauthenticated, "unauthenticated", 401},
};

const CodeName& NameOf(Code code) {
  for (const CodeName& entry : kCodes) {
    if (entry.code == code) return entry;
  }
  return kCodes[1];
}

// Deeper than kNestingMax? Counted before parsing: the parsers recurse.
bool TooDeep(std::string_view text) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || c == '[') {
      if (++depth > kNestingMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string StripPrefix(std::string text, std::string_view prefix) {
  if (text.rfind(prefix, 0) == 0) text.erase(0, prefix.size());
  return text;
}

// The library's messages: "(actor.metadata) nam: Cannot find field.", "foo: Cannot find field.",
// "(actor.metadata.name): invalid value 5 for type TYPE_STRING", and syntax errors whose further
// lines show the place.
Status ParseError(const std::string& message) {
  const std::string text = message.substr(0, message.find('\n'));
  constexpr std::string_view kUnknown = ": Cannot find field.";
  const size_t close = text.rfind('(', 0) == 0 ? text.find(')') : std::string::npos;
  std::string path = close == std::string::npos ? "" : text.substr(1, close - 1);
  if (const size_t at = text.find(kUnknown); at != std::string::npos) {
    const size_t begin = close == std::string::npos ? 0 : close + 2;
    const std::string key = begin < at ? text.substr(begin, at - begin) : "";
    path += (path.empty() || key.empty() ? "" : ".") + key;
    return InvalidFields("UNKNOWN_FIELD", {{path, "is no field of this message"}});
  }
  if (!path.empty()) {
    return InvalidFields("FIELD_INVALID", {{path, StripPrefix(text.substr(close + 1), ": ")}});
  }
  return Fail(reasons::kFieldInvalid, "the body is not valid JSON: " + StripPrefix(text, ": "));
}

std::string Base64(std::string_view bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (unsigned char c : bytes) {
    bits = (bits << 8) | c;
    for (have += 8; have >= 6; have -= 6) out += kAlphabet[(bits >> (have - 6)) & 63];
  }
  if (have > 0) out += kAlphabet[(bits << (6 - have)) & 63];
  return out;  // without padding, as Connect wants it
}

// The detail in JSON, for people and for clients without protobuf.
nlohmann::json Debug(const std::string& type, const std::string& value) {
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) return nlohmann::json::object();
  std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  std::string json;
  if (!message->ParseFromString(value) || !util::MessageToJsonString(*message, &json).ok()) {
    return nlohmann::json::object();
  }
  return nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

int HttpStatus(Code code) { return NameOf(code).http; }

Status ParseJson(std::string_view body, Message* message) {
  if (TooDeep(body)) {
    return Fail(reasons::kFieldInvalid,
                fmt::format("the body is nested deeper than {} levels", kNestingMax));
  }
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) body = "{}";
  util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const util::Status status =
      util::JsonStringToMessage({body.data(), body.size()}, message, options);
  return status.ok() ? OkStatus() : ParseError(std::string(status.message()));
}

StatusOr<std::string> PrintJson(const Message& message) {
  std::string out;
  const util::Status status = util::MessageToJsonString(message, &out);
  if (status.ok()) return out;
  return Fail(reasons::kInternal, "the answer has no JSON form: " + std::string(status.message()));
}

std::string ErrorJson(const Status& status) {
  google::rpc::Status wire;
  wire.ParseFromString(SerializeStatus(rpc::WithReason(status)));
  nlohmann::json out = {{"code", NameOf(status.code()).name}, {"message", wire.message()}};
  nlohmann::json details = nlohmann::json::array();
  // The cause first; Status keeps its payloads in no order.
  std::sort(wire.mutable_details()->begin(), wire.mutable_details()->end(),
            [](const google::protobuf::Any& a, const google::protobuf::Any& b) {
              return std::pair(a.type_url() != kErrorInfoUrl, a.type_url()) <
                     std::pair(b.type_url() != kErrorInfoUrl, b.type_url());
            });
  for (const auto& any : wire.details()) {
    const std::string type = any.type_url().substr(any.type_url().rfind('/') + 1);
    details.push_back(
        {{"type", type}, {"value", Base64(any.value())}, {"debug", Debug(type, any.value())}});
  }
  out["details"] = std::move(details);
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace torpor::api
