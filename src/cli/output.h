#pragma once
// Printers: aligned tables for people; the API's JSON, and the same as YAML, for programs.

#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "base/status.h"
#include "base/time.h"

namespace torpor::cli {

// Columns are as wide as their widest cell; nothing is cut.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// proto3 JSON with lowerCamelCase names, indented.
StatusOr<std::string> ToJson(const google::protobuf::Message& message);
// The same in one line.
StatusOr<std::string> ToJsonLine(const google::protobuf::Message& message);
// One object, or {"items": [...]} when `list`.
StatusOr<std::string> ToJson(const std::vector<const google::protobuf::Message*>& messages,
                             bool list);
StatusOr<std::string> JsonToYaml(const std::string& json);

// "5s", "3m20s" since `time`; "-" when it is unset.
std::string Age(const google::protobuf::Timestamp& time, WallTime now);
// ACTOR_STATE_RUNNING -> RUNNING
std::string EnumName(std::string name, std::string_view prefix);
std::string OrDash(const std::string& text);
// Replaces what may be secret, the values of environment variables, by "[redacted]".
void RedactSecrets(google::protobuf::Message* message);

}  // namespace torpor::cli
