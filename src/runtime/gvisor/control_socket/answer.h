#pragma once
// Answers of runsc's control socket: one JSON object {"success", "err", "result"}, without a length
// in front. Pure; nothing read is trusted.

#include <string>
#include <string_view>

namespace torpor::gvisor {

inline constexpr size_t kAnswerBytesMax = 1 << 20;
inline constexpr int kAnswerDepthMax = 64;

struct Answer {
  bool success = false;
  std::string error;   // of a call that did not succeed
  std::string result;  // JSON; "null" when there is none
};

// Finds the end of the object in a stream that comes in pieces.
class AnswerReader {
 public:
  enum class State {
    kMore,      // not complete yet
    kComplete,  // text() is one JSON object as far as braces and strings tell
    kBad,       // no answer can come of this: too long, too deep, not an object
  };
  State Append(std::string_view bytes);
  State state() const { return state_; }
  const std::string& text() const { return text_; }

 private:
  State Scan(char c);

  State state_ = State::kMore;
  std::string text_;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// False when the text is no answer; `*answer` is then unchanged.
bool ParseAnswer(std::string_view text, Answer* answer);

}  // namespace torpor::gvisor
