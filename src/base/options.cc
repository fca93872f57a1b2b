#include "base/options.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "base/quantity.h"

namespace torpor {
namespace {

Status Bad(std::string_view message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

std::string EnvName(std::string_view name) {
  std::string out = "TORPOR_";
  for (char c : name) out += c == '-' ? '_' : static_cast<char>(toupper(c));
  return out;
}

std::string Quoted(const std::string& value) {
  std::string out = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

void Options::Add(Option option) { options_.push_back(std::move(option)); }

Options::Option* Options::Find(std::string_view name) {
  for (Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void Options::String(std::string_view name, std::string* target, std::string_view help) {
  Option option{std::string(name), std::string(help), "text"};
  option.set = [target](const std::vector<std::string>& v) {
    *target = v.back();
    return OkStatus();
  };
  option.print = [target] { return Quoted(*target); };
  Add(std::move(option));
}

void Options::Choice(std::string_view name, std::string* target, std::vector<std::string> allowed,
                     std::string_view help) {
  Option option{std::string(name), std::string(help), fmt::format("{}", fmt::join(allowed, "|"))};
  option.set = [target, allowed](const std::vector<std::string>& v) {
    if (std::find(allowed.begin(), allowed.end(), v.back()) == allowed.end()) return Bad("");
    *target = v.back();
    return OkStatus();
  };
  option.print = [target] { return Quoted(*target); };
  Add(std::move(option));
}

void Options::Strings(std::string_view name, std::vector<std::string>* target,
                      std::string_view help) {
  Option option{std::string(name), std::string(help), "a list of texts"};
  option.is_list = true;
  option.set = [target](const std::vector<std::string>& v) {
    *target = v;
    return OkStatus();
  };
  option.print = [target] {
    std::vector<std::string> quoted;
    for (const std::string& v : *target) quoted.push_back(Quoted(v));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  };
  Add(std::move(option));
}

void Options::Bool(std::string_view name, bool* target, std::string_view help) {
  Option option{std::string(name), std::string(help), "true|false"};
  option.is_bool = true;
  option.set = [target](const std::vector<std::string>& v) {
    const std::string& text = v.back();
    if (text != "true" && text != "false" && text != "1" && text != "0") return Bad("");
    *target = text == "true" || text == "1";
    return OkStatus();
  };
  option.print = [target] { return std::string(*target ? "true" : "false"); };
  Add(std::move(option));
}

void Options::Int(std::string_view name, int64_t* target, int64_t min, int64_t max,
                  std::string_view help) {
  Option option{std::string(name), std::string(help),
                fmt::format("an integer from {} to {}", min, max)};
  option.set = [=](const std::vector<std::string>& v) {
    int64_t value = 0;
    const std::string& text = v.back();
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      return Bad("");
    }
    *target = value;
    return OkStatus();
  };
  option.print = [target] { return fmt::to_string(*target); };
  Add(std::move(option));
}

void Options::Bytes(std::string_view name, int64_t* target, int64_t min, std::string_view help) {
  Option option{std::string(name), std::string(help),
                fmt::format("a number of bytes like 512Mi or 2Gi, at least {}", min)};
  option.set = [=](const std::vector<std::string>& v) {
    // A quantity is never zero; a setting may be.
    auto value = v.back() == "0" ? StatusOr<int64_t>(0) : ParseBytes(v.back());
    if (!value.ok() || *value < min) return Bad("");
    *target = *value;
    return OkStatus();
  };
  option.print = [target] { return fmt::to_string(*target); };
  Add(std::move(option));
}

void Options::DurationFlag(std::string_view name, Duration* target, Duration min, Duration max,
                           std::string_view help) {
  Option option{std::string(name), std::string(help),
                fmt::format("a duration like 30s or 2m, from {} to {}", FormatDuration(min),
                            FormatDuration(max))};
  option.set = [=](const std::vector<std::string>& v) {
    auto value = ParseDuration(v.back());
    if (!value.ok() || *value < min || *value > max) return Bad("");
    *target = *value;
    return OkStatus();
  };
  option.print = [target] { return fmt::format("{}ms", target->count() / 1000000); };
  Add(std::move(option));
}

Status Options::Set(Option& option, const std::vector<std::string>& values,
                    const std::string& source) {
  if (values.empty() || !option.set(values).ok()) {
    return Bad(fmt::format("{}: {} is '{}', but must be {}", source, option.name,
                           fmt::join(values, ","), option.allowed));
  }
  option.source = source;
  return OkStatus();
}

Status Options::ReadFile(const std::string& path, bool section_only) {
  if (access(path.c_str(), R_OK) != 0) {
    return Bad(fmt::format("{}: {}; check the path given by --config", path, strerror(errno)));
  }
  auto at = [&](const YAML::Node& node) {
    return fmt::format("{}:{}", path, node.Mark().line + 1);
  };
  std::set<std::string> seen;
  auto take = [&](const YAML::Node& name, const YAML::Node& value) -> Status {
    const std::string key = name.as<std::string>();
    if (!seen.insert(key).second) return Bad(fmt::format("{}: {} is given twice", at(name), key));
    Option* option = Find(key);
    if (option == nullptr) {
      return Bad(fmt::format("{}: unknown key '{}'; allowed: {}", at(name), key,
                             fmt::join(Names(), ", ")));
    }
    std::vector<std::string> values;
    if (value.IsSequence() && option->is_list) {
      for (const auto& item : value) values.push_back(item.as<std::string>());
      if (values.empty()) {  // [], as Print writes it
        option->source = at(name);
        return option->set(values);
      }
    } else if (value.IsScalar()) {
      values.push_back(value.as<std::string>());
    }
    return Set(*option, values, at(name));
  };
  // yaml-cpp reports errors by exception; this is the one place that meets them.
  try {
    YAML::Node root = YAML::LoadFile(path);
    if (root.IsNull()) return OkStatus();
    if (!root.IsMap()) return Bad(fmt::format("{}: must be a map of keys to values", at(root)));
    YAML::Node section;
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      const bool is_section =
          std::find(std::begin(kRoles), std::end(kRoles), key) != std::end(kRoles) &&
          !entry.second.IsScalar();
      if (is_section && key == role_) section.reset(entry.second);
      if (is_section || section_only) continue;
      RETURN_IF_ERROR(take(entry.first, entry.second));
    }
    if (!section.IsDefined() || section.IsNull()) return OkStatus();
    if (!section.IsMap()) {
      return Bad(fmt::format("{}: {} must be a map of keys to values", at(section), role_));
    }
    for (const auto& entry : section) RETURN_IF_ERROR(take(entry.first, entry.second));
    return OkStatus();
  } catch (const YAML::Exception& e) {
    return Bad(fmt::format("{}:{}: {}", path, e.mark.line + 1, e.msg));
  }
}

Status Options::Parse(const std::vector<std::string>& args,
                      const std::vector<std::string>* environment) {
  std::map<std::string, std::vector<std::string>> flags;
  std::string section;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string arg = args[i];
    if (arg == "--help" || arg == "-h") {
      help_asked_ = true;
      return OkStatus();
    }
    if (arg == "--print-config") {
      print_asked_ = true;
      continue;
    }
    if (arg.rfind("--", 0) != 0) {
      if (!allow_positional_) return Bad(fmt::format("unexpected argument '{}'; see --help", arg));
      positional_.push_back(arg);
      continue;
    }
    std::string name = arg.substr(2);
    std::optional<std::string> value;
    if (size_t eq = name.find('='); eq != std::string::npos) {
      value = name.substr(eq + 1);
      name = name.substr(0, eq);
    }
    Option* option = Find(name);
    if (option == nullptr && name.rfind("no-", 0) == 0 && !value) {
      option = Find(name.substr(3));
      if (option != nullptr && option->is_bool) {
        flags[option->name] = {"false"};
        continue;
      }
      option = nullptr;
    }
    if (option == nullptr && name != "config" && name != "config-section") {
      return Bad(fmt::format("unknown flag --{}; see --help", name));
    }
    if (option != nullptr && option->is_bool && !value) value = "true";
    if (!value) {
      if (i + 1 >= args.size()) return Bad(fmt::format("--{} needs a value; see --help", name));
      value = args[++i];
    }
    if (option == nullptr) {
      (name == "config" ? config_ : section) = *value;
    } else if (option->is_list) {
      flags[name].push_back(*value);
    } else {
      flags[name] = {*value};
    }
  }
  auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    if (environment == nullptr) {
      const char* value = getenv(name.c_str());
      return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }
    for (const std::string& entry : *environment) {
      if (entry.rfind(name + "=", 0) == 0) return entry.substr(name.size() + 1);
    }
    return std::nullopt;
  };
  // Only roles have settings in the file: `torpor down` must work whatever TORPOR_CONFIG says.
  const bool is_role = std::find(std::begin(kRoles), std::end(kRoles), role_) != std::end(kRoles);
  if (is_role && config_.empty() && section.empty()) {
    config_ = lookup("TORPOR_CONFIG").value_or("");
  }
  if (!section.empty()) RETURN_IF_ERROR(ReadFile(section, true));
  if (!config_.empty()) RETURN_IF_ERROR(ReadFile(config_, false));
  for (Option& option : options_) {
    auto value = lookup(EnvName(option.name));
    if (!value) continue;
    std::vector<std::string> values{*value};
    if (option.is_list) {
      values.clear();
      size_t from = 0;
      while (from <= value->size()) {
        size_t comma = std::min(value->find(',', from), value->size());
        if (comma > from) values.push_back(value->substr(from, comma - from));
        from = comma + 1;
      }
    }
    RETURN_IF_ERROR(Set(option, values, "environment " + EnvName(option.name)));
  }
  for (auto& [name, values] : flags) RETURN_IF_ERROR(Set(*Find(name), values, "flag --" + name));
  return OkStatus();
}

std::string Options::Answer(std::string_view title) const {
  if (print_asked_) return Print();
  return fmt::format("{}\n\n{}", title, Help());
}

std::string Options::Help() const {
  std::string out;
  for (const Option& option : options_) {
    std::string head = "  --" + option.name;
    if (!option.is_bool) head += " V";
    out += fmt::format("{:<34} {} ({}; default {})\n", head, option.help, option.allowed,
                       option.print());
  }
  out += fmt::format("{:<34} {}\n", "  --config FILE", "YAML file with these names as keys");
  out += fmt::format("{:<34} {}\n", "  --print-config", "print the settings in force and end");
  return out;
}

std::string Options::Print() const {
  std::string out;
  for (const Option& option : options_) {
    out += fmt::format("{}: {}  # {}\n", option.name, option.print(), option.source);
  }
  return out;
}

std::vector<std::string> Options::Names() const {
  std::vector<std::string> out;
  for (const Option& option : options_) out.push_back(option.name);
  return out;
}

}  // namespace torpor
