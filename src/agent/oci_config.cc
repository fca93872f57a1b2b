#include "agent/oci_config.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/reasons.h"

namespace torpor::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Docker's default set without NET_RAW (moby/oci/caps/defaults.go): raw sockets let a guest forge
// what its neighbours on a link see, and nothing ordinary needs them.
constexpr const char* kDefaultCapabilities[] = {
    "CHOWN",   "DAC_OVERRIDE", "FSETID",           "FOWNER",     "MKNOD", "SETGID",     "SETUID",
    "SETFCAP", "SETPCAP",      "NET_BIND_SERVICE", "SYS_CHROOT", "KILL",  "AUDIT_WRITE"};
// include/uapi/linux/capability.h
constexpr const char* kKnownCapabilities[] = {"CHOWN",
                                              "DAC_OVERRIDE",
                                              "DAC_READ_SEARCH",
                                              "FOWNER",
                                              "FSETID",
                                              "KILL",
                                              "SETGID",
                                              "SETUID",
                                              "SETPCAP",
                                              "LINUX_IMMUTABLE",
                                              "NET_BIND_SERVICE",
                                              "NET_BROADCAST",
                                              "NET_ADMIN",
                                              "NET_RAW",
                                              "IPC_LOCK",
                                              "IPC_OWNER",
                                              "SYS_MODULE",
                                              "SYS_RAWIO",
                                              "SYS_CHROOT",
                                              "SYS_PTRACE",
                                              "SYS_PACCT",
                                              "SYS_ADMIN",
                                              "SYS_BOOT",
                                              "SYS_NICE",
                                              "SYS_RESOURCE",
                                              "SYS_TIME",
                                              "SYS_TTY_CONFIG",
                                              "MKNOD",
                                              "LEASE",
                                              "AUDIT_WRITE",
                                              "AUDIT_CONTROL",
                                              "SETFCAP",
                                              "MAC_OVERRIDE",
                                              "MAC_ADMIN",
                                              "SYSLOG",
                                              "WAKE_ALARM",
                                              "BLOCK_SUSPEND",
                                              "AUDIT_READ",
                                              "PERFMON",
                                              "BPF",
                                              "CHECKPOINT_RESTORE"};

Status Bad(const OciInputs& in, std::string_view what) {
  return Fail(reasons::kInvalidContainerConfig,
              fmt::format("container {}: {}", in.container.name(), what),
              {{"container", in.container.name()}});
}

std::vector<std::string> StringList(const Json& object, const char* key) {
  std::vector<std::string> out;
  auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return out;
  for (const Json& item : *it) {
    if (item.is_string()) out.push_back(item.get<std::string>());
  }
  return out;
}

std::string StringOf(const Json& object, const char* key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// command replaces entrypoint and cmd; args alone replaces cmd; nothing is ever expanded.
StatusOr<std::vector<std::string>> BuildArgs(const OciInputs& in, const Json& image) {
  std::vector<std::string> out;
  const auto& c = in.container;
  if (c.command_size() > 0) {
    out.assign(c.command().begin(), c.command().end());
  } else {
    out = StringList(image, "Entrypoint");
  }
  if (c.args_size() > 0) {
    out.insert(out.end(), c.args().begin(), c.args().end());
  } else if (c.command_size() == 0) {
    std::vector<std::string> cmd = StringList(image, "Cmd");
    out.insert(out.end(), cmd.begin(), cmd.end());
  }
  if (out.empty() || out[0].empty()) {
    return Bad(in, "neither the template nor the image says what to run; set command");
  }
  return out;
}

std::vector<std::string> BuildEnv(const OciInputs& in, const Json& image) {
  std::vector<std::pair<std::string, std::string>> entries;
  auto set = [&](const std::string& name, const std::string& value) {
    for (auto& entry : entries) {
      if (entry.first == name) {
        entry.second = value;
        return;
      }
    }
    entries.emplace_back(name, value);
  };
  set("PATH", kDefaultPath);
  for (const std::string& entry : StringList(image, "Env")) {
    size_t eq = entry.find('=');
    if (eq != std::string::npos && eq > 0) set(entry.substr(0, eq), entry.substr(eq + 1));
  }
  for (const auto& entry : in.container.env()) set(entry.name(), entry.value());
  std::vector<std::string> out;
  for (const auto& [name, value] : entries) out.push_back(name + "=" + value);
  return out;
}

bool ParseId(std::string_view text, uint32_t* id) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *id);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

// The line of passwd or group whose field `key` is `value`; empty when there is none.
std::vector<std::string_view> FindLine(std::string_view file, size_t key, std::string_view value) {
  for (std::string_view line : Split(file, '\n')) {
    std::vector<std::string_view> fields = Split(line, ':');
    if (fields.size() >= 3 && fields[key] == value) return fields;
  }
  return {};
}

struct User {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> more_gids;
};

// "", "uid", "uid:gid", "name", "name:group" as images say it.
StatusOr<User> ResolveUser(const OciInputs& in, const std::string& text) {
  User user;
  std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() > 2) return Bad(in, "the image's user has more than one ':'");
  std::string_view name = parts[0];
  std::vector<std::string_view> line;
  if (name.empty() || ParseId(name, &user.uid)) {
    line = FindLine(in.passwd, 2, name.empty() ? "0" : name);
  } else {
    line = FindLine(in.passwd, 0, name);
    if (line.empty() || !ParseId(line[2], &user.uid)) {
      return Bad(in, fmt::format("the image has no user '{}' in its /etc/passwd", name));
    }
  }
  if (line.size() > 3) ParseId(line[3], &user.gid);
  if (parts.size() == 2) {
    if (!ParseId(parts[1], &user.gid)) {
      std::vector<std::string_view> group = FindLine(in.group, 0, parts[1]);
      if (group.empty() || !ParseId(group[2], &user.gid)) {
        return Bad(in, fmt::format("the image has no group '{}' in its /etc/group", parts[1]));
      }
    }
    return user;  // an explicit group means exactly that one
  }
  if (line.empty()) return user;
  for (std::string_view entry : Split(in.group, '\n')) {
    std::vector<std::string_view> fields = Split(entry, ':');
    uint32_t gid = 0;
    if (fields.size() < 4 || !ParseId(fields[2], &gid) || gid == user.gid) continue;
    std::vector<std::string_view> members = Split(fields[3], ',');
    if (std::find(members.begin(), members.end(), line[0]) != members.end()) {
      user.more_gids.push_back(gid);
    }
  }
  return user;
}

StatusOr<std::vector<std::string>> BuildCapabilities(const OciInputs& in) {
  std::set<std::string> wanted(std::begin(kDefaultCapabilities), std::end(kDefaultCapabilities));
  auto known = [](const std::string& name) {
    return std::find(std::begin(kKnownCapabilities), std::end(kKnownCapabilities), name) !=
           std::end(kKnownCapabilities);
  };
  for (const std::string& name : in.container.capabilities().drop()) {
    if (name == "ALL") {
      wanted.clear();
    } else if (!known(name)) {
      return Bad(in, fmt::format("there is no capability {}", name));
    } else {
      wanted.erase(name);
    }
  }
  for (const std::string& name : in.container.capabilities().add()) {
    if (!known(name)) return Bad(in, fmt::format("there is no capability {}", name));
    wanted.insert(name);
  }
  std::vector<std::string> out;
  for (const std::string& name : wanted) out.push_back("CAP_" + name);
  return out;
}

Json Mount(const std::string& destination, const std::string& type, const std::string& source,
           std::vector<std::string> options) {
  return Json{{"destination", destination},
              {"type", type},
              {"source", source},
              {"options", std::move(options)}};
}

StatusOr<Json> BuildMounts(const OciInputs& in) {
  Json mounts = Json::array();
  mounts.push_back(Mount("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}));
  mounts.push_back(Mount("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755"}));
  mounts.push_back(
      Mount("/dev/pts", "devpts", "devpts", {"nosuid", "noexec", "newinstance", "ptmxmode=0666"}));
  mounts.push_back(Mount("/dev/shm", "tmpfs", "shm", {"nosuid", "noexec", "nodev", "mode=1777"}));
  mounts.push_back(Mount("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"}));
  for (const auto& mount : in.container.volume_mounts()) {
    auto volume = in.volumes.find(mount.name());
    if (volume == in.volumes.end()) {
      return Bad(in, fmt::format("volume {} cannot be mounted at {}: the template has no volume of "
                                 "that name that this version supports",
                                 mount.name(), mount.mount_path()));
    }
    const OciInputs::HostDirectory& directory = volume->second;
    mounts.push_back(Mount(mount.mount_path(), "bind", directory.path,
                           {"bind", directory.writable ? "rw" : "ro", "nosuid", "nodev"}));
  }
  return mounts;
}

}  // namespace

StatusOr<std::string> BuildOciConfig(const OciInputs& in) {
  Json blob = Json::parse(in.image_config, nullptr, /*allow_exceptions=*/false);
  if (!blob.is_object()) return Bad(in, "the image's configuration is not JSON");
  Json image = Json::object();
  if (auto it = blob.find("config"); it != blob.end() && it->is_object()) image = *it;
  ASSIGN_OR_RETURN(std::vector<std::string> args, BuildArgs(in, image));
  ASSIGN_OR_RETURN(User user, ResolveUser(in, StringOf(image, "User")));
  ASSIGN_OR_RETURN(std::vector<std::string> capabilities, BuildCapabilities(in));
  ASSIGN_OR_RETURN(Json mounts, BuildMounts(in));
  std::string cwd = StringOf(image, "WorkingDir");
  if (cwd.empty() || cwd[0] != '/') cwd = "/";

  Json process_user = {{"uid", user.uid}, {"gid", user.gid}};
  if (!user.more_gids.empty()) process_user["additionalGids"] = user.more_gids;
  Json config;
  config["ociVersion"] = "1.0.2";
  config["process"] = {
      {"terminal", false},
      {"user", process_user},
      {"args", args},
      {"env", BuildEnv(in, image)},
      {"cwd", cwd},
      {"capabilities",
       {{"bounding", capabilities}, {"effective", capabilities}, {"permitted", capabilities}}},
      {"noNewPrivileges", false}};
  config["root"] = {{"path", in.rootfs_path}, {"readonly", false}};
  config["hostname"] = in.actor.name();
  config["mounts"] = mounts;
  // The network namespace has no path: whoever starts the runtime has entered it before.
  Json namespaces = Json::array();
  for (const char* type : {"pid", "ipc", "uts", "mount", "network"}) {
    namespaces.push_back({{"type", type}});
  }
  config["linux"] = {{"namespaces", namespaces}};
  // Text of an image may hold bytes that are not UTF-8.
  return config.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace torpor::agent
