#include "workloads/base/flags.h"

#include <charconv>
#include <utility>

namespace torpor::workloads {

void Flags::Add(std::string name, std::string default_value, std::string help) {
  flags_[std::move(name)] = Flag{std::move(default_value), std::move(help), false};
}

void Flags::AddBool(std::string name, std::string help) {
  flags_[std::move(name)] = Flag{"false", std::move(help), true};
}

std::string Flags::Parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-') {
      return "unexpected argument '" + std::string(argument) + "'";
    }
    argument.remove_prefix(argument[1] == '-' ? 2 : 1);
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    const auto flag = flags_.find(name);
    if (flag == flags_.end()) return "unknown flag --" + name;
    if (equals != std::string_view::npos) {
      flag->second.value = argument.substr(equals + 1);
    } else if (flag->second.is_bool) {
      flag->second.value = "true";
    } else if (i + 1 < argc) {
      flag->second.value = argv[++i];
    } else {
      return "flag --" + name + " needs a value";
    }
  }
  return "";
}

const std::string& Flags::Text(std::string_view name) const {
  static const std::string empty;
  const auto flag = flags_.find(name);
  return flag == flags_.end() ? empty : flag->second.value;
}

bool Flags::Integer(std::string_view name, int64_t min, int64_t max, int64_t* value) const {
  return ParseInteger(Text(name), min, max, value);
}

std::string Flags::Usage() const {
  std::string text;
  for (const auto& [name, flag] : flags_) {
    text += "  --" + name + (flag.is_bool ? "" : "=" + flag.value) + "  " + flag.help + "\n";
  }
  return text;
}

bool ParseInteger(std::string_view text, int64_t min, int64_t max, int64_t* value) {
  int64_t parsed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < min || parsed > max) return false;
  *value = parsed;
  return true;
}

}  // namespace torpor::workloads
