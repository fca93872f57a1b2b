#include "cli/output.h"

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include <google/protobuf/util/json_util.h>

namespace torpor::cli {
namespace {

using Json = nlohmann::ordered_json;

void Emit(const Json& json, YAML::Emitter& out) {
  if (json.is_object()) {
    out << YAML::BeginMap;
    for (const auto& [key, value] : json.items()) {
      out << YAML::Key << key << YAML::Value;
      Emit(value, out);
    }
    out << YAML::EndMap;
  } else if (json.is_array()) {
    out << YAML::BeginSeq;
    for (const auto& value : json) Emit(value, out);
    out << YAML::EndSeq;
  } else if (json.is_string()) {
    const std::string text = json.get<std::string>();
    // A text that YAML would read as another type, such as the API's 64-bit numbers, keeps quotes.
    bool number = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
    bool word = text == "true" || text == "false" || text == "null" || text == "~";
    if (number || word) out << YAML::DoubleQuoted;
    out << text;
  } else if (json.is_boolean()) {
    out << json.get<bool>();
  } else {
    out << json.dump();
  }
}

}  // namespace

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 3, ' ');
    }
    out += line + "\n";
  }
  return out;
}

StatusOr<std::string> ToJsonLine(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return Error(Code::kInternal, "INTERNAL", status.ToString());
  return text;
}

StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  ASSIGN_OR_RETURN(std::string text, ToJsonLine(message));
  return Json::parse(text).dump(2);
}

StatusOr<std::string> ToJson(const std::vector<const google::protobuf::Message*>& messages,
                             bool list) {
  Json items = Json::array();
  for (const auto* message : messages) {
    ASSIGN_OR_RETURN(std::string text, ToJson(*message));
    items.push_back(Json::parse(text));
  }
  if (!list && !items.empty()) return items[0].dump(2);
  Json out;
  out["items"] = std::move(items);
  return out.dump(2);
}

StatusOr<std::string> JsonToYaml(const std::string& json) {
  Json parsed = Json::parse(json, nullptr, false);
  if (parsed.is_discarded()) return Error(Code::kInternal, "INTERNAL", "not JSON");
  YAML::Emitter out;
  Emit(parsed, out);
  return std::string(out.c_str());
}

std::string Age(const google::protobuf::Timestamp& time, WallTime now) {
  if (time.seconds() == 0) return "-";
  Duration age = now - FromProto(time);
  // Whole seconds: a table is no stop watch.
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::max(age, Duration(0)));
  return seconds.count() < 60 ? fmt::format("{}s", seconds.count()) : FormatDuration(seconds);
}

std::string EnumName(std::string name, std::string_view prefix) {
  if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
  return name;
}

void RedactSecrets(google::protobuf::Message* message) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->full_name() == "ateapi.EnvVar.value") {
      reflection->SetString(message, field, "[redacted]");
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      RedactSecrets(reflection->MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      RedactSecrets(reflection->MutableRepeatedMessage(message, field, i));
    }
  }
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace torpor::cli
