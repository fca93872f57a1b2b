#include "snapshot/format/manifest.h"

#include <set>

#include "base/uuid.h"
#include "model/names.h"
#include "model/reasons.h"
#include "snapshot/format/manifest_json.h"
#include "snapshot/format/sha256.h"

namespace torpor::snapshot {
namespace {

using torpor::v1::Fidelity;

constexpr int64_t kObjectBytesMax = kSnapshotFileBytesMax + (kSnapshotFileBytesMax >> 6);
constexpr size_t kNameBytesMax = 256;
constexpr int kCpuFeaturesMax = 1024;
constexpr size_t kImagesMax = 64;
constexpr size_t kBasesMax = 16;

Status Corrupt(std::string_view what) {
  return Fail(reasons::kSnapshotCorrupt, fmt::format("manifest: {}", what));
}

// Printable ASCII, so that it can be shown as it is.
bool IsPlainText(std::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// What a name in an error may look like, whatever it was.
std::string Shown(std::string_view name) {
  std::string out;
  for (char c : name.substr(0, 80)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

Status CheckActor(const torpor::v1::ActorIdentity& actor) {
  if (!IsLabel(actor.atespace())) return Corrupt("actor.atespace is not a label");
  if (!IsLabel(actor.name())) return Corrupt("actor.name is not a label");
  if (!IsUuid(actor.uid())) return Corrupt("actor.uid is not a uuid");
  if (!IsLabel(actor.template_atespace()) || !IsLabel(actor.template_name())) {
    return Corrupt("the template's atespace or name is not a label");
  }
  if (!IsUuid(actor.template_uid())) return Corrupt("the template's uid is not a uuid");
  return OkStatus();
}

Status CheckMeta(const torpor::v1::SnapshotMeta& meta) {
  if (meta.generation() < 1) return Corrupt("generation is below 1");
  if (meta.fidelity() < torpor::v1::FIDELITY_VOLUMES ||
      meta.fidelity() > torpor::v1::FIDELITY_MEMORY) {
    return Corrupt("fidelity is missing");
  }
  if (meta.sandbox_class() != ateapi::SANDBOX_CLASS_GVISOR &&
      meta.sandbox_class() != ateapi::SANDBOX_CLASS_MICROVM) {
    return Corrupt("sandbox_class is missing");
  }
  for (const std::string* text :
       {&meta.runtime(), &meta.runtime_version(), &meta.platform(), &meta.architecture()}) {
    if (!IsPlainText(*text, kNameBytesMax)) return Corrupt("a runtime field is not plain text");
  }
  if (meta.runtime().empty()) return Corrupt("runtime.name is missing");
  if (meta.cpu_features_size() > kCpuFeaturesMax) {
    return Corrupt(fmt::format("more than {} CPU features", kCpuFeaturesMax));
  }
  for (const std::string& feature : meta.cpu_features()) {
    if (feature.empty() || !IsPlainText(feature, 64)) return Corrupt("a CPU feature is not a word");
  }
  // The years 1970 to 9999, which every reader of RFC 3339 takes.
  const google::protobuf::Timestamp& time = meta.capture_time();
  if (time.seconds() < 0 || time.seconds() > 253402300799 || time.nanos() < 0 ||
      time.nanos() > 999999999) {
    return Corrupt("capture_time is not a time");
  }
  return OkStatus();
}

Status CheckFile(const ManifestFile& entry, Fidelity captured) {
  const torpor::v1::SnapshotFile& file = entry.file;
  if (!IsSnapshotFileName(file.name())) {
    return Corrupt(fmt::format("'{}' is not a clean file name", Shown(file.name())));
  }
  auto bad = [&](std::string_view what) {
    return Corrupt(fmt::format("file {}: {}", file.name(), what));
  };
  if (file.name() == kManifestName || file.name() == kSumsName) return bad("the name is reserved");
  if (file.logical_bytes() < 0 || file.logical_bytes() > kSnapshotFileBytesMax) {
    return bad("logical_bytes is out of range");
  }
  if (file.populated_bytes() < 0 || file.populated_bytes() > file.logical_bytes()) {
    return bad("populated_bytes is out of range");
  }
  if (file.needed_from() < torpor::v1::FIDELITY_VOLUMES || file.needed_from() > captured) {
    return bad("needed_from is not a fidelity that was captured");
  }
  if (entry.mode > 0777) return bad("mode has more than permission bits");
  if (!entry.object.has_value()) return OkStatus();
  const ManifestObject& object = *entry.object;
  if (!IsSnapshotFileName(object.name) || object.name == kManifestName) {
    return bad("the object's name is not clean");
  }
  if (object.bytes < 0 || object.bytes > kObjectBytesMax) return bad("object bytes out of range");
  if (!IsSha256Hex(object.index_sha256)) return bad("object index_sha256 is not a hash");
  return OkStatus();
}

Status CheckFiles(const Manifest& manifest) {
  if (manifest.files.size() > kManifestFilesMax) {
    return Corrupt(fmt::format("more than {} files", kManifestFilesMax));
  }
  std::set<std::string> names;
  std::set<std::string> directories;
  std::set<std::string> objects;
  int64_t total = 0;
  for (const ManifestFile& entry : manifest.files) {
    RETURN_IF_ERROR(CheckFile(entry, manifest.meta.fidelity()));
    const std::string& name = entry.file.name();
    if (!names.insert(name).second) return Corrupt(fmt::format("file {} is listed twice", name));
    if (size_t slash = name.find('/'); slash != std::string::npos) {
      directories.insert(name.substr(0, slash));
    }
    total += entry.file.logical_bytes();  // each is at most 2^42 and there are at most 2^12
    if (entry.object.has_value() && !objects.insert(entry.object->name).second) {
      return Corrupt(fmt::format("object {} is named twice", entry.object->name));
    }
  }
  for (const std::string& directory : directories) {
    if (names.count(directory) > 0 || directory == kManifestName) {
      return Corrupt(fmt::format("{} is both a file and a directory", directory));
    }
  }
  if (total > kSnapshotFileBytesMax) return Corrupt("the files together are too large");
  return OkStatus();
}

Status Check(const Manifest& manifest) {
  RETURN_IF_ERROR(CheckActor(manifest.actor));
  RETURN_IF_ERROR(CheckMeta(manifest.meta));
  if (manifest.image_digests.size() > kImagesMax) return Corrupt("too many images");
  for (const auto& [container, digest] : manifest.image_digests) {
    if (!IsLabel(container)) return Corrupt("a container's name is not a label");
    if (!IsSha256Digest(digest)) return Corrupt("an image digest is not a digest");
  }
  if (!IsUuid(manifest.boot_id)) return Corrupt("boot_id is not a uuid");
  RETURN_IF_ERROR(CheckFiles(manifest));
  if (manifest.bases.size() > kBasesMax) return Corrupt("too many bases");
  for (const ManifestBase& base : manifest.bases) {
    if (!IsCleanRelativePath(base.path) || !IsPlainText(base.path, 1024)) {
      return Corrupt("the path of a base is not clean");
    }
    if (!IsSha256Hex(base.manifest_sha256)) return Corrupt("the sha256 of a base is not a hash");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Manifest> ParseManifest(std::string_view json) {
  if (json.size() > kManifestBytesMax) {
    return Corrupt(fmt::format("larger than {} bytes", kManifestBytesMax));
  }
  ASSIGN_OR_RETURN(Manifest manifest, ManifestFromJson(json));
  RETURN_IF_ERROR(Check(manifest));
  return manifest;
}

StatusOr<std::string> SerializeManifest(const Manifest& manifest) {
  Status status = Check(manifest);
  std::string json;
  if (status.ok()) json = ManifestToJson(manifest);
  if (json.size() > kManifestBytesMax) {
    status = Corrupt(fmt::format("larger than {} bytes", kManifestBytesMax));
  }
  if (!status.ok()) {
    return Fail(reasons::kFieldInvalid, std::string(status.message()));
  }
  return json;
}

StatusOr<std::vector<ManifestFile>> NarrowFiles(const Manifest& manifest, Fidelity fidelity) {
  if (fidelity == torpor::v1::FIDELITY_UNSPECIFIED || fidelity > manifest.meta.fidelity()) {
    return Error(
        Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED",
        fmt::format("{} is wanted but the snapshot holds {}", torpor::v1::Fidelity_Name(fidelity),
                    torpor::v1::Fidelity_Name(manifest.meta.fidelity())));
  }
  std::vector<ManifestFile> out;
  for (const ManifestFile& file : manifest.files) {
    if (file.file.needed_from() <= fidelity) out.push_back(file);
  }
  return out;
}

Status CheckIdentity(const Manifest& manifest, const torpor::v1::ActorIdentity& actor) {
  const torpor::v1::ActorIdentity& owner = manifest.actor;
  std::string_view differs;
  if (owner.uid() != actor.uid()) differs = "uid";
  if (owner.name() != actor.name()) differs = "name";
  if (owner.atespace() != actor.atespace()) differs = "atespace";
  if (!actor.template_uid().empty() && owner.template_uid() != actor.template_uid()) {
    differs = "template uid";
  }
  if (differs.empty()) return OkStatus();
  return Error(
      Code::kFailedPrecondition, "SNAPSHOT_IDENTITY",
      fmt::format("the snapshot is of {}/{} ({}), not of {}/{} ({}): {} differs", owner.atespace(),
                  owner.name(), owner.uid(), actor.atespace(), actor.name(), actor.uid(), differs));
}

}  // namespace torpor::snapshot
