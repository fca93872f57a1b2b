#include "snapshot/format/manifest_json.h"

#include <google/protobuf/util/time_util.h>

#include <nlohmann/json.hpp>

#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

using nlohmann::json;
using torpor::v1::Fidelity;

constexpr int kDepthMax = 8;

const std::map<std::string, Fidelity> kFidelities = {{"VOLUMES", torpor::v1::FIDELITY_VOLUMES},
                                                     {"ROOTFS", torpor::v1::FIDELITY_ROOTFS},
                                                     {"MEMORY", torpor::v1::FIDELITY_MEMORY}};
const std::map<std::string, ateapi::SandboxClass> kClasses = {
    {"gvisor", ateapi::SANDBOX_CLASS_GVISOR}, {"microvm", ateapi::SANDBOX_CLASS_MICROVM}};

template <typename T>
std::string NameOf(const std::map<std::string, T>& names, T value) {
  for (const auto& [name, v] : names) {
    if (v == value) return name;
  }
  return "";
}

Status Corrupt(std::string_view what) {
  return Fail(reasons::kSnapshotCorrupt, fmt::format("manifest: {}", what));
}

// Takes the fields of one JSON object, keeps the first error, and finds keys that nobody took.
class Fields {
 public:
  Fields(const json& object, std::string where, Status* status)
      : object_(object), where_(std::move(where)), status_(status) {
    if (!object.is_object()) Fail("is not an object");
  }

  void String(const char* key, std::string* out) {
    const json* value = Take(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(key, "is not a text");
    *out = value->get_ref<const std::string&>();
  }
  int64_t Int(const char* key) {
    const json* value = Take(key);
    if (value == nullptr) return 0;
    // An unsigned number above 2^63 - 1 would wrap.
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
      Fail(key, "is not a whole number");
      return 0;
    }
    return value->get<int64_t>();
  }
  template <typename T>
  T Name(const char* key, const std::map<std::string, T>& names) {
    std::string text;
    String(key, &text);
    auto it = names.find(text);
    if (it != names.end()) return it->second;
    Fail(key, "is not a known name");
    return T{};
  }
  // The value, or null after an error. `optional` keys may be missing.
  const json* Take(const char* key, bool optional = false) {
    if (!status_->ok()) return nullptr;
    auto it = object_.find(key);
    if (it == object_.end()) {
      if (!optional) Fail(key, "is missing");
      return nullptr;
    }
    ++taken_;
    return &*it;
  }
  const json* Array(const char* key, size_t count_max) {
    const json* value = Take(key);
    if (value == nullptr) return nullptr;
    if (!value->is_array() || value->size() > count_max) {
      Fail(key, fmt::format("is not a list of at most {}", count_max));
      return nullptr;
    }
    return value;
  }
  // Call last: a key that was not taken is none of this format.
  void Finish() {
    if (status_->ok() && taken_ != object_.size()) Fail("has an unknown key");
  }
  void Fail(std::string_view key, std::string_view what) { Fail(fmt::format(".{} {}", key, what)); }

 private:
  void Fail(std::string_view what) {
    if (status_->ok()) *status_ = Corrupt(fmt::format("{} {}", where_, what));
  }

  const json& object_;
  const std::string where_;
  Status* const status_;
  size_t taken_ = 0;
};

// Null (and an error) unless `text` is JSON that is not nested deeper than any manifest.
json ParseBounded(std::string_view text, Status* status) {
  bool too_deep = false;
  json root = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        too_deep = too_deep || depth > kDepthMax;
        return depth <= kDepthMax;
      },
      /*allow_exceptions=*/false);
  if (root.is_discarded() || too_deep) *status = Corrupt("not JSON, or nested too deep");
  return root;
}

void ReadActor(const json& object, Manifest* out, Status* status) {
  Fields actor(object, "actor", status);
  actor.String("atespace", out->actor.mutable_atespace());
  actor.String("name", out->actor.mutable_name());
  actor.String("uid", out->actor.mutable_uid());
  actor.String("template_atespace", out->actor.mutable_template_atespace());
  actor.String("template_name", out->actor.mutable_template_name());
  actor.String("template_uid", out->actor.mutable_template_uid());
  actor.Finish();
}

void ReadRuntime(const json& object, torpor::v1::SnapshotMeta* meta, Status* status) {
  Fields runtime(object, "runtime", status);
  runtime.String("name", meta->mutable_runtime());
  runtime.String("version", meta->mutable_runtime_version());
  runtime.String("platform", meta->mutable_platform());
  runtime.String("architecture", meta->mutable_architecture());
  if (const json* features = runtime.Array("cpu_features", 4096)) {
    for (const json& feature : *features) {
      if (!feature.is_string()) return runtime.Fail("cpu_features", "has an entry that is no text");
      meta->add_cpu_features(feature.get_ref<const std::string&>());
    }
  }
  runtime.Finish();
}

void ReadFile(const json& object, size_t index, ManifestFile* out, Status* status) {
  const std::string where = fmt::format("files[{}]", index);
  Fields file(object, where, status);
  file.String("name", out->file.mutable_name());
  out->file.set_logical_bytes(file.Int("logical_bytes"));
  out->file.set_populated_bytes(file.Int("populated_bytes"));
  out->file.set_needed_from(file.Name("needed_from", kFidelities));
  const int64_t mode = file.Int("mode");
  if (mode < 0 || mode > 0777) file.Fail("mode", "has more than permission bits");
  out->mode = static_cast<uint32_t>(mode);
  if (const json* value = file.Take("object", /*optional=*/true)) {
    Fields fields(*value, where + ".object", status);
    out->object.emplace();
    fields.String("name", &out->object->name);
    out->object->bytes = fields.Int("bytes");
    fields.String("index_sha256", &out->object->index_sha256);
    fields.Finish();
  }
  file.Finish();
}

void ReadRoot(const json& root, Manifest* out, Status* status) {
  Fields fields(root, "the root", status);
  const int64_t format = fields.Int("format");
  if (status->ok() && format != kManifestFormat) {
    *status = Corrupt(fmt::format("format {} is not known; this program reads format {}", format,
                                  kManifestFormat));
  }
  if (const json* actor = fields.Take("actor")) ReadActor(*actor, out, status);
  out->meta.set_generation(fields.Int("generation"));
  out->meta.set_fidelity(fields.Name("fidelity", kFidelities));
  out->meta.set_sandbox_class(fields.Name("sandbox_class", kClasses));
  if (const json* runtime = fields.Take("runtime")) ReadRuntime(*runtime, &out->meta, status);
  std::string time;
  fields.String("capture_time", &time);
  if (status->ok() && (time.size() > 40 || !google::protobuf::util::TimeUtil::FromString(
                                               time, out->meta.mutable_capture_time()))) {
    fields.Fail("capture_time", "is not a time");
  }
  fields.String("boot_id", &out->boot_id);
  if (const json* images = fields.Take("images")) {
    if (!images->is_object()) return fields.Fail("images", "is not an object");
    for (const auto& [container, digest] : images->items()) {
      if (!digest.is_string()) return fields.Fail("images", "has a value that is no text");
      out->image_digests[container] = digest.get_ref<const std::string&>();
    }
  }
  if (const json* files = fields.Array("files", kManifestFilesMax)) {
    out->files.resize(files->size());
    for (size_t i = 0; i < files->size(); ++i) ReadFile((*files)[i], i, &out->files[i], status);
  }
  if (const json* bases = fields.Array("bases", 16)) {
    for (const json& value : *bases) {
      Fields base(value, "bases[]", status);
      out->bases.emplace_back();
      base.String("path", &out->bases.back().path);
      base.String("manifest_sha256", &out->bases.back().manifest_sha256);
      base.Finish();
    }
  }
  fields.Finish();
}

json FileToJson(const ManifestFile& entry) {
  json file = {{"name", entry.file.name()},
               {"logical_bytes", entry.file.logical_bytes()},
               {"populated_bytes", entry.file.populated_bytes()},
               {"needed_from", NameOf(kFidelities, entry.file.needed_from())},
               {"mode", entry.mode}};
  if (entry.object.has_value()) {
    file["object"] = {{"name", entry.object->name},
                      {"bytes", entry.object->bytes},
                      {"index_sha256", entry.object->index_sha256}};
  }
  return file;
}

}  // namespace

StatusOr<Manifest> ManifestFromJson(std::string_view text) {
  Status status;
  Manifest manifest;
  const json root = ParseBounded(text, &status);
  if (status.ok()) ReadRoot(root, &manifest, &status);
  RETURN_IF_ERROR(status);
  return manifest;
}

std::string ManifestToJson(const Manifest& manifest) {
  const torpor::v1::ActorIdentity& actor = manifest.actor;
  const torpor::v1::SnapshotMeta& meta = manifest.meta;
  json root = {{"format", kManifestFormat},
               {"actor",
                {{"atespace", actor.atespace()},
                 {"name", actor.name()},
                 {"uid", actor.uid()},
                 {"template_atespace", actor.template_atespace()},
                 {"template_name", actor.template_name()},
                 {"template_uid", actor.template_uid()}}},
               {"generation", meta.generation()},
               {"fidelity", NameOf(kFidelities, meta.fidelity())},
               {"sandbox_class", NameOf(kClasses, meta.sandbox_class())},
               {"runtime",
                {{"name", meta.runtime()},
                 {"version", meta.runtime_version()},
                 {"platform", meta.platform()},
                 {"architecture", meta.architecture()},
                 {"cpu_features", std::vector<std::string>(meta.cpu_features().begin(),
                                                           meta.cpu_features().end())}}},
               {"capture_time", google::protobuf::util::TimeUtil::ToString(meta.capture_time())},
               {"boot_id", manifest.boot_id},
               {"images", json::object()},
               {"files", json::array()},
               {"bases", json::array()}};
  for (const auto& [container, digest] : manifest.image_digests) root["images"][container] = digest;
  for (const ManifestFile& file : manifest.files) root["files"].push_back(FileToJson(file));
  for (const ManifestBase& base : manifest.bases) {
    root["bases"].push_back({{"path", base.path}, {"manifest_sha256", base.manifest_sha256}});
  }
  return root.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace torpor::snapshot
