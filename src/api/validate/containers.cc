#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "api/validate/parts.h"

namespace torpor::api {
namespace {

using ateapi::Container;

void CheckArguments(const Field& field,
                    const google::protobuf::RepeatedPtrField<std::string>& list) {
  CheckCount(field, list.size(), 0, 64);
  for (int i = 0; i < list.size(); ++i) CheckText(field.At(i), list[i], 4096, Need::kMaybe);
}

void CheckEnv(const Field& field, const Container& container) {
  CheckCount(field, container.env_size(), 0, 32);
  std::set<std::string> names;
  for (int i = 0; i < container.env_size(); ++i) {
    const ateapi::EnvVar& env = container.env(i);
    const Field name = field.At(i).At("name");
    CheckText(name, env.name(), 256, Need::kSet);
    if (!std::all_of(env.name().begin(), env.name().end(),
                     [](char c) { return c > ' ' && c <= '~' && c != '='; })) {
      name.Fail("must be printable ASCII without '=' and spaces");
    }
    if (!names.insert(env.name()).second) name.Fail("is used twice in this container");
    CheckText(field.At(i).At("value"), env.value(), 32768, Need::kMaybe);
  }
}

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// RFC 3986 path-absolute: pchar and '/', with valid %XX.
bool IsUriPath(std::string_view path) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/";
  if (path.empty() || path.front() != '/') return false;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%') {
      if (i + 2 >= path.size() || !IsHex(path[i + 1]) || !IsHex(path[i + 2])) return false;
      i += 2;
    } else if (kAllowed.find(path[i]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

void CheckProbe(const Field& field, const ateapi::ContainerWakeupProbe& probe) {
  const Field get = field.At("http_get");
  if (!probe.has_http_get()) get.Fail("must be set");
  if (probe.timeout_seconds() != 0) {
    CheckRange(field.At("timeout_seconds"), probe.timeout_seconds(), 1, 3600);
  }
  if (!probe.has_http_get()) return;
  const std::string& path = probe.http_get().path();
  CheckText(get.At("path"), path, 1024, Need::kMaybe);
  if (!path.empty() && !IsUriPath(path)) {
    get.At("path").Fail("must begin with '/' and hold only path characters and %XX");
  }
  CheckRange(get.At("port"), probe.http_get().port(), 1, 65535);
}

// Absolute, normalised, not "/", without ':' and control characters.
bool IsMountPath(std::string_view path) {
  if (path.size() < 2 || path.front() != '/') return false;
  for (char c : path) {
    if (c == ':' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  size_t begin = 1;
  while (true) {
    const size_t end = path.find('/', begin);
    const std::string_view piece = path.substr(begin, end - begin);
    if (piece.empty() || piece == "." || piece == "..") return false;
    if (end == std::string_view::npos) return true;
    begin = end + 1;
  }
}

void CheckMounts(const Field& field, const Container& container,
                 const std::set<std::string>& volumes) {
  CheckCount(field, container.volume_mounts_size(), 0, 32);
  for (int i = 0; i < container.volume_mounts_size(); ++i) {
    const ateapi::VolumeMount& mount = container.volume_mounts(i);
    const Field name = field.At(i).At("name");
    const Field path = field.At(i).At("mount_path");
    CheckLabel(name, mount.name(), Need::kSet);
    if (!mount.name().empty() && volumes.count(mount.name()) == 0) {
      name.Fail("must be the name of a volume of this template");
    }
    CheckText(path, mount.mount_path(), 4096, Need::kSet);
    if (!mount.mount_path().empty() && !IsMountPath(mount.mount_path())) {
      path.Fail("must be an absolute, normalised path other than '/', without ':'");
    }
    for (int j = 0; j < i; ++j) {
      const std::string& other = container.volume_mounts(j).mount_path();
      if (mount.mount_path() == other) {
        path.Fail(fmt::format("is the path of volume_mounts[{}] too", j));
      } else if (mount.mount_path().rfind(other + "/", 0) == 0 ||
                 other.rfind(mount.mount_path() + "/", 0) == 0) {
        path.Fail(fmt::format("lies inside or around that of volume_mounts[{}]", j));
      }
    }
  }
}

void CheckCapabilityNames(const Field& field,
                          const google::protobuf::RepeatedPtrField<std::string>& list,
                          bool all_allowed) {
  CheckCount(field, list.size(), 0, 64);
  std::set<std::string> seen;
  for (int i = 0; i < list.size(); ++i) {
    const std::string& name = list[i];
    const bool well_formed = !name.empty() && name.size() <= 63 && name[0] >= 'A' &&
                             name[0] <= 'Z' && std::all_of(name.begin(), name.end(), [](char c) {
                               return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
                             });
    if (!well_formed || name.rfind("CAP_", 0) == 0) {
      field.At(i).Fail("must be the name of a capability without CAP_, such as NET_BIND_SERVICE");
    } else if (name == "ALL" && !all_allowed) {
      field.At(i).Fail("ALL is allowed in drop only");
    }
    if (!seen.insert(name).second) field.At(i).Fail("is listed twice");
  }
}

void CheckContainer(const Field& field, const Container& container,
                    ateapi::SandboxClass sandbox_class, const std::set<std::string>& volumes) {
  CheckLabel(field.At("name"), container.name(), Need::kSet);
  if (container.name() == "pause") field.At("name").Fail("'pause' is reserved");
  CheckImage(field.At("image"), container.image());
  CheckArguments(field.At("command"), container.command());
  CheckArguments(field.At("args"), container.args());
  CheckEnv(field.At("env"), container);
  if (container.has_wakeup_probe()) CheckProbe(field.At("wakeup_probe"), container.wakeup_probe());
  CheckMounts(field.At("volume_mounts"), container, volumes);
  const Field capabilities = field.At("security_context").At("capabilities");
  const ateapi::Capabilities& caps = container.security_context().capabilities();
  CheckCapabilityNames(capabilities.At("add"), caps.add(), /*all_allowed=*/false);
  CheckCapabilityNames(capabilities.At("drop"), caps.drop(), /*all_allowed=*/true);
  if (!container.has_resources()) return;
  if (sandbox_class != ateapi::SANDBOX_CLASS_MICROVM) {
    field.At("resources").Fail("works only with class MICROVM; set the template's resources");
  }
  CheckResources(field.At("resources"), container.resources());
}

}  // namespace

void CheckContainers(const Field& field, const ateapi::ActorTemplate& actor_template) {
  std::set<std::string> volumes;
  for (const ateapi::Volume& volume : actor_template.volumes()) volumes.insert(volume.name());
  CheckCount(field, actor_template.containers_size(), 1, 10);
  std::set<std::string> names;
  for (int i = 0; i < actor_template.containers_size(); ++i) {
    const Container& container = actor_template.containers(i);
    CheckContainer(field.At(i), container, actor_template.sandbox_config().sandbox_class(),
                   volumes);
    if (!names.insert(container.name()).second) {
      field.At(i).At("name").Fail("is the name of another container too");
    }
  }
}

}  // namespace torpor::api
