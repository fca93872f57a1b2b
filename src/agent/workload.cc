#include "agent/workload.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/oci_config.h"
#include "model/names.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::VolumeSpec;

constexpr char kSystemRoots[] = "system-roots.ate.dev";
constexpr char kHostRootsDir[] = "/etc/ssl/certs";
constexpr char kHostRootsFile[] = "ca-certificates.crt";
constexpr size_t kRootsBytesMax = 8 << 20;
constexpr char kGenerationFile[] = "generation";
// Whoever the image's user is may write; nobody on the host gets here but root.
constexpr mode_t kDurableMode = 0777;

Status Unsupported(const std::string& volume, std::string_view what) {
  return Fail(reasons::kInvalidContainerConfig, fmt::format("volume {}: {}", volume, what),
              {{"volume", volume}});
}

StatusOr<std::string> MetadataValue(const torpor::v1::ActorIdentity& actor,
                                    ateapi::ActorMetadataField field) {
  switch (field) {
    case ateapi::ACTOR_METADATA_FIELD_NAME:
      return actor.name();
    case ateapi::ACTOR_METADATA_FIELD_ATESPACE:
      return actor.atespace();
    case ateapi::ACTOR_METADATA_FIELD_UID:
      return actor.uid();
    default:
      return Fail(reasons::kInvalidContainerConfig, "an unknown field of actor metadata");
  }
}

// Makes the directories above `path`, which is clean and relative.
Status WriteBelow(const os::DirFd& dir, const std::string& path, const std::string& content) {
  if (!IsCleanRelativePath(path)) {
    return Fail(reasons::kInvalidContainerConfig, "a system-info path is not clean and relative");
  }
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    RETURN_IF_ERROR(dir.MkdirOrOpen(path.substr(0, slash), 0755).status());
  }
  return dir.WriteFile(path, content, 0444);
}

Status WriteSystemInfo(const os::DirFd& dir, const torpor::v1::ActorIdentity& actor,
                       int64_t generation, const ateapi::SystemInfoVolumeSource& source) {
  for (const auto& data : source.data_sources()) {
    for (const auto& item : data.actor_metadata().items()) {
      ASSIGN_OR_RETURN(std::string value, MetadataValue(actor, item.field()));
      RETURN_IF_ERROR(WriteBelow(dir, item.path(), value));
    }
    if (data.has_trust_bundle()) {
      ASSIGN_OR_RETURN(os::DirFd host, os::DirFd::OpenPath(kHostRootsDir));
      ASSIGN_OR_RETURN(std::string roots, host.ReadFile(kHostRootsFile, kRootsBytesMax));
      RETURN_IF_ERROR(WriteBelow(dir, data.trust_bundle().path(), roots));
    }
  }
  // Tells a program that it was woken, or is a clone: it changes with every activation. A file of
  // that name that the template asks for goes before.
  if (dir.Exists(kGenerationFile)) return OkStatus();
  return dir.WriteFile(kGenerationFile, fmt::to_string(generation), 0444);
}

}  // namespace

Status CheckVolumes(const torpor::v1::WorkloadSpec& spec) {
  for (const VolumeSpec& volume : spec.volumes()) {
    switch (volume.source_case()) {
      case VolumeSpec::kSystemInfo:
        for (const auto& data : volume.system_info().data_sources()) {
          for (const std::string& name : data.trust_bundle().names()) {
            if (name != kSystemRoots) return Unsupported(volume.name(), "no trust bundle " + name);
          }
        }
        break;
      case VolumeSpec::kImage:
      case VolumeSpec::kDurableDir:
        break;
      default:
        return Unsupported(volume.name(), "external volumes are not supported by this version");
    }
  }
  return OkStatus();
}

std::vector<std::string> ImagesOf(const torpor::v1::WorkloadSpec& spec) {
  std::vector<std::string> out;
  auto add = [&](const std::string& reference) {
    if (std::find(out.begin(), out.end(), reference) == out.end()) out.push_back(reference);
  };
  for (const auto& container : spec.containers()) add(container.image());
  for (const VolumeSpec& volume : spec.volumes()) {
    if (volume.has_image()) add(volume.image().reference());
  }
  return out;
}

Status WriteBundles(const NodeDirs& dirs, const torpor::v1::StartActorRequest& request,
                    const ImagesByReference& images) {
  const std::string& uid = request.actor().uid();
  ASSIGN_OR_RETURN(os::DirFd actor, dirs.OpenActor(uid));
  std::map<std::string, OciInputs::HostDirectory> volumes;
  for (const VolumeSpec& volume : request.spec().volumes()) {
    if (volume.has_image()) {
      volumes[volume.name()].path = images.at(volume.image().reference())->rootfs_path;
      continue;
    }
    const bool durable = volume.has_durable_dir();
    const std::string path =
        fmt::format("{}/{}", durable ? kDurableDir : kSystemInfo, volume.name());
    ASSIGN_OR_RETURN(os::DirFd dir, actor.MkdirOrOpen(path, durable ? kDurableMode : 0755));
    if (!durable) {
      RETURN_IF_ERROR(
          WriteSystemInfo(dir, request.actor(), request.op().generation(), volume.system_info()));
    }
    volumes[volume.name()] = {
        .path = fmt::format("{}/{}/{}", dirs.path(), NodeDirs::ActorPath(uid), path),
        .writable = durable};
  }
  for (const auto& container : request.spec().containers()) {
    const Image& image = *images.at(container.image());
    OciInputs in;
    in.image_config = image.config;
    in.container = container;
    in.actor = request.actor();
    in.rootfs_path = image.rootfs_path;
    in.volumes = volumes;
    in.passwd = image.passwd;
    in.group = image.group;
    ASSIGN_OR_RETURN(std::string config, BuildOciConfig(in));
    const std::string bundle = fmt::format("{}/{}", kBundles, container.name());
    RETURN_IF_ERROR(actor.MkdirExclusive(bundle, 0700));
    RETURN_IF_ERROR(actor.WriteFile(bundle + "/config.json", config, 0600));
  }
  return OkStatus();
}

}  // namespace torpor::agent
