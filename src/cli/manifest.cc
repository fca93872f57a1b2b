#include "cli/manifest.h"

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include <google/protobuf/util/json_util.h>

namespace torpor::cli {
namespace {

using Json = nlohmann::json;

Status Bad(std::string_view message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

// YAML scalars without quotes become JSON numbers and booleans where they look like one: proto3
// JSON takes a number for a text field only as text, so the target's type is not known here;
// quantities and names that look like numbers must be quoted, as everywhere in YAML.
Json ScalarToJson(const YAML::Node& node) {
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true") return true;
  if (text == "false") return false;
  if (text == "null" || text == "~" || text.empty()) return nullptr;
  Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

Json ToJson(const YAML::Node& node) {
  if (node.IsMap()) {
    Json out = Json::object();
    for (const auto& entry : node) out[entry.first.as<std::string>()] = ToJson(entry.second);
    return out;
  }
  if (node.IsSequence()) {
    Json out = Json::array();
    for (const auto& item : node) out.push_back(ToJson(item));
    return out;
  }
  return node.IsScalar() ? ScalarToJson(node) : Json(nullptr);
}

template <typename Message>
StatusOr<Resource> Parse(const Json& json) {
  Message message;
  auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &message);
  if (!status.ok()) return Bad(std::string(status.message()));
  return Resource(std::move(message));
}

void FillAtespace(Resource& resource, const std::string& atespace) {
  auto fill = [&](ateapi::ObjectRef* ref) {
    if (ref->atespace().empty()) ref->set_atespace(atespace);
  };
  if (auto* t = std::get_if<ateapi::ActorTemplate>(&resource)) {
    if (t->metadata().atespace().empty()) t->mutable_metadata()->set_atespace(atespace);
  } else if (auto* a = std::get_if<ateapi::Actor>(&resource)) {
    if (a->metadata().atespace().empty()) a->mutable_metadata()->set_atespace(atespace);
    if (a->has_actor_template()) fill(a->mutable_actor_template());
    if (a->has_source_tag()) fill(a->mutable_source_tag());
  } else if (auto* g = std::get_if<ateapi::Tag>(&resource)) {
    if (g->metadata().atespace().empty()) g->mutable_metadata()->set_atespace(atespace);
    if (g->has_source_actor()) fill(g->mutable_source_actor());
  }
}

StatusOr<Resource> ParseOne(const YAML::Node& node, const std::string& where) {
  if (!node.IsMap() || !node["kind"] || !node["kind"].IsScalar()) {
    return Bad(
        fmt::format("{}: a document needs kind: Atespace, ActorTemplate, Actor or Tag", where));
  }
  const std::string kind = node["kind"].as<std::string>();
  Json json = ToJson(node);
  json.erase("kind");
  StatusOr<Resource> resource = Bad("");
  if (kind == "Atespace") {
    resource = Parse<ateapi::Atespace>(json);
  } else if (kind == "ActorTemplate") {
    resource = Parse<ateapi::ActorTemplate>(json);
  } else if (kind == "Actor") {
    resource = Parse<ateapi::Actor>(json);
  } else if (kind == "Tag") {
    resource = Parse<ateapi::Tag>(json);
  } else {
    return Bad(fmt::format("{}: unknown kind '{}'; allowed: Atespace, ActorTemplate, Actor, Tag",
                           where, kind));
  }
  if (!resource.ok()) return Annotate(resource.status(), fmt::format("{}: {}", where, kind));
  return resource;
}

}  // namespace

StatusOr<std::vector<Resource>> ParseResources(const std::string& text, const std::string& name,
                                               const std::string& atespace) {
  std::vector<Resource> out;
  // yaml-cpp reports errors by exception; this is the one place that meets them.
  try {
    for (const YAML::Node& node : YAML::LoadAll(text)) {
      if (node.IsNull()) continue;
      ASSIGN_OR_RETURN(Resource resource,
                       ParseOne(node, fmt::format("{}:{}", name, node.Mark().line + 1)));
      FillAtespace(resource, atespace);
      out.push_back(std::move(resource));
    }
  } catch (const YAML::Exception& e) {
    return Bad(fmt::format("{}:{}: {}", name, e.mark.line + 1, e.msg));
  }
  if (out.empty()) return Bad(name + " holds no resource");
  return out;
}

}  // namespace torpor::cli
