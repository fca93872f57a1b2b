#include "runtime/gvisor/control_socket/answer.h"

#include <nlohmann/json.hpp>

namespace torpor::gvisor {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

AnswerReader::State AnswerReader::Append(std::string_view bytes) {
  for (char c : bytes) {
    if (state_ == State::kBad) break;
    if (state_ == State::kComplete) {
      // Go's encoder ends a value with a line end; anything else would be a second answer.
      if (!IsSpace(c)) state_ = State::kBad;
      continue;
    }
    state_ = Scan(c);
  }
  return state_;
}

AnswerReader::State AnswerReader::Scan(char c) {
  if (depth_ == 0 && IsSpace(c)) return State::kMore;
  if (text_.size() == kAnswerBytesMax) return State::kBad;
  if (depth_ == 0 && c != '{') return State::kBad;
  text_.push_back(c);
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return State::kMore;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') {
    if (++depth_ > kAnswerDepthMax) return State::kBad;
  }
  if (c == '}' || c == ']') {
    if (--depth_ == 0) return State::kComplete;
  }
  return State::kMore;
}

bool ParseAnswer(std::string_view text, Answer* answer) {
  using nlohmann::json;
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return false;
  auto success = parsed.find("success");
  if (success == parsed.end() || !success->is_boolean()) return false;
  Answer out;
  out.success = success->get<bool>();
  auto error = parsed.find("err");
  if (error != parsed.end()) {
    if (!error->is_string()) return false;
    out.error = error->get<std::string>();
  }
  auto result = parsed.find("result");
  // Replacing what is no UTF-8, else dump() would throw.
  out.result = result == parsed.end()
                   ? "null"
                   : result->dump(-1, ' ', false, json::error_handler_t::replace);
  *answer = std::move(out);
  return true;
}

}  // namespace torpor::gvisor
