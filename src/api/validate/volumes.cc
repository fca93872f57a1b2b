#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "api/validate/parts.h"
#include "model/names.h"

namespace torpor::api {
namespace {

constexpr std::string_view kMitmBundle = "egress-mitm.ate.dev";
constexpr std::string_view kSystemBundle = "system-roots.ate.dev";

// Collects the file paths of one volume and refuses those that cannot exist side by side.
class Paths {
 public:
  void Check(const Field& field, const std::string& path) {
    CheckText(field, path, 255, Need::kSet);
    if (path.empty()) return;
    if (!IsCleanRelativePath(path) || std::count(path.begin(), path.end(), '/') > 15) {
      field.Fail("must be a relative, normalised path of 1 to 16 segments");
    }
    for (const std::string& other : seen_) {
      if (path == other) {
        field.Fail("is the path of another file of this volume too");
      } else if (path.rfind(other + "/", 0) == 0 || other.rfind(path + "/", 0) == 0) {
        field.Fail("would be file and directory at once");
      }
    }
    seen_.push_back(path);
  }

 private:
  std::vector<std::string> seen_;
};

void CheckActorMetadata(const Field& field, const ateapi::ActorMetadataDataSource& source,
                        Paths* paths) {
  CheckCount(field.At("items"), source.items_size(), 1, 8);
  std::set<int> fields;
  for (int i = 0; i < source.items_size(); ++i) {
    const Field item = field.At("items").At(i);
    const int which = source.items(i).field();
    if (which == 0) item.At("field").Fail("must be set");
    if (which != 0 && !fields.insert(which).second) item.At("field").Fail("is listed twice");
    paths->Check(item.At("path"), source.items(i).path());
  }
}

void CheckTrustBundle(const Field& field, const ateapi::TrustBundleDataSource& source,
                      Paths* paths) {
  paths->Check(field.At("path"), source.path());
  CheckCount(field.At("names"), source.names_size(), 1, 8);
  std::set<std::string> names;
  for (int i = 0; i < source.names_size(); ++i) {
    const Field name = field.At("names").At(i);
    if (source.names(i) != kMitmBundle && source.names(i) != kSystemBundle) {
      name.Fail(fmt::format("must be {} or {}", kMitmBundle, kSystemBundle));
    }
    if (!names.insert(source.names(i)).second) name.Fail("is listed twice");
  }
}

void CheckSystemInfo(const Field& field, const ateapi::SystemInfoVolumeSource& source) {
  const Field sources = field.At("data_sources");
  CheckCount(sources, source.data_sources_size(), 0, 8);
  Paths paths;
  int actor_metadata = 0;
  for (int i = 0; i < source.data_sources_size(); ++i) {
    const ateapi::SystemInfoDataSource& data = source.data_sources(i);
    if (data.has_actor_metadata() == data.has_trust_bundle()) {
      sources.At(i).Fail("must have exactly one of actor_metadata and trust_bundle");
    }
    if (data.has_actor_metadata()) {
      if (++actor_metadata == 2) sources.At(i).Fail("only one actor_metadata is allowed");
      CheckActorMetadata(sources.At(i).At("actor_metadata"), data.actor_metadata(), &paths);
    }
    if (data.has_trust_bundle()) {
      CheckTrustBundle(sources.At(i).At("trust_bundle"), data.trust_bundle(), &paths);
    }
  }
}

}  // namespace

void CheckVolumes(const Field& field, const ateapi::ActorTemplate& actor_template) {
  CheckCount(field, actor_template.volumes_size(), 0, 32);
  std::set<std::string> names;
  for (int i = 0; i < actor_template.volumes_size(); ++i) {
    const ateapi::Volume& volume = actor_template.volumes(i);
    const Field at = field.At(i);
    CheckLabel(at.At("name"), volume.name(), Need::kSet);
    if (!names.insert(volume.name()).second) {
      at.At("name").Fail("is the name of another volume too");
    }
    if (volume.has_durable_dir() + volume.has_external_volume_template() +
            volume.has_system_info() + volume.has_image() !=
        1) {
      at.Fail(
          "must have exactly one of durable_dir, external_volume_template, system_info and image");
    }
    if (volume.has_external_volume_template()) {
      const Field external = at.At("external_volume_template");
      CheckQuantity(external.At("capacity"), volume.external_volume_template().capacity());
      CheckSubdomain(external.At("storage_class_name"),
                     volume.external_volume_template().storage_class_name(), Need::kSet);
    }
    if (volume.has_system_info()) CheckSystemInfo(at.At("system_info"), volume.system_info());
    if (volume.has_image()) CheckImage(at.At("image").At("reference"), volume.image().reference());
  }
}

std::string NotServedYet(const ateapi::ActorTemplate& actor_template) {
  for (const ateapi::Volume& volume : actor_template.volumes()) {
    if (volume.has_external_volume_template()) return "external_volume_template";
    for (const ateapi::SystemInfoDataSource& data : volume.system_info().data_sources()) {
      for (const std::string& name : data.trust_bundle().names()) {
        if (name == kMitmBundle) return name;
      }
    }
  }
  return "";
}

}  // namespace torpor::api
