#pragma once
// Writes one JSON object without intermediate objects. Not thread-safe.

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace torpor::router {

class JsonLine {
 public:
  // Appends to `out`; call Close at the end.
  explicit JsonLine(std::string* out) : out_(out) { out_->push_back('{'); }

  void Text(std::string_view key, std::string_view value) {
    Key(key);
    out_->push_back('"');
    Escape(value);
    out_->push_back('"');
  }
  void Number(std::string_view key, int64_t value) {
    Key(key);
    fmt::format_int digits(value);
    out_->append(digits.data(), digits.size());
  }
  void Millis(std::string_view key, double value) {
    Key(key);
    fmt::format_to(std::back_inserter(*out_), "{:.3f}", value);
  }
  void Bool(std::string_view key, bool value) {
    Key(key);
    out_->append(value ? "true" : "false");
  }
  // A list of objects; `write(JsonLine*, element)` fills each.
  template <typename Elements, typename Write>
  void List(std::string_view key, const Elements& elements, Write write) {
    Key(key);
    out_->push_back('[');
    bool first = true;
    for (const auto& element : elements) {
      if (!first) out_->push_back(',');
      first = false;
      JsonLine one(out_);
      write(&one, element);
      one.Close();
    }
    out_->push_back(']');
  }
  // `write(JsonLine*)` fills it.
  template <typename Write>
  void Object(std::string_view key, Write write) {
    Key(key);
    JsonLine object(out_);
    write(&object);
    object.Close();
  }
  void Close() { out_->push_back('}'); }

 private:
  void Key(std::string_view key) {
    if (!first_) out_->push_back(',');
    first_ = false;
    out_->push_back('"');
    out_->append(key);
    out_->append("\":");
  }
  // Bytes outside ASCII are escaped one by one (as Latin-1), so the result is JSON whatever comes.
  void Escape(std::string_view value) {
    for (unsigned char c : value) {
      if (c == '"' || c == '\\') {
        out_->push_back('\\');
        out_->push_back(static_cast<char>(c));
      } else if (c < 0x20 || c >= 0x7f) {
        fmt::format_to(std::back_inserter(*out_), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out_->push_back(static_cast<char>(c));
      }
    }
  }

  std::string* const out_;
  bool first_ = true;
};

}  // namespace torpor::router
