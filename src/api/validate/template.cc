#include <set>

#include <fmt/format.h>

#include "api/validate/parts.h"
#include "api/validate/validate.h"
#include "base/quantity.h"
#include "model/names.h"

namespace torpor::api {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using torpor::v1::FIDELITY_MEMORY;
using torpor::v1::FIDELITY_ROOTFS;
using torpor::v1::FIDELITY_UNSPECIFIED;
using torpor::v1::FIDELITY_VOLUMES;

constexpr std::string_view kDefaultMemory = "512Mi";
constexpr std::string_view kDefaultCpu = "1";
constexpr int64_t kMicrovmMemoryMin = int64_t{256} << 20;

// A base URI without user info, query and fragment.
void CheckStorageLocation(const Field& field, const std::string& uri) {
  CheckText(field, uri, 1024, Need::kMaybe);  // empty = the server's
  if (uri.empty()) return;
  for (char c : uri) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f || c == '?' || c == '#' || c == '@') {
      field.Fail("must not contain spaces, user info, query or fragment");
      return;
    }
  }
  const size_t scheme = uri.find("://");
  const std::string name = uri.substr(0, scheme == std::string::npos ? 0 : scheme);
  std::string_view rest =
      scheme == std::string::npos ? "" : std::string_view(uri).substr(scheme + 3);
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (name == "file") {
    if (rest.empty() || rest.front() != '/' || !IsCleanRelativePath(rest.substr(1))) {
      field.Fail("must be file:/// and an absolute, normalised path");
    }
  } else if (name == "s3" || name == "gs") {
    if (!IsCleanRelativePath(rest)) field.Fail("must name a bucket and clean path segments");
  } else {
    field.Fail("must begin with file:///, s3:// or gs://");
  }
}

// Whether a container mounts a volume whose content is part of a snapshot without memory.
bool MountsDurableVolume(const ateapi::ActorTemplate& t) {
  std::set<std::string> durable;
  const bool microvm = t.sandbox_config().sandbox_class() == ateapi::SANDBOX_CLASS_MICROVM;
  for (const ateapi::Volume& volume : t.volumes()) {
    if (volume.has_durable_dir() || (microvm && volume.has_external_volume_template())) {
      durable.insert(volume.name());
    }
  }
  for (const ateapi::Container& container : t.containers()) {
    for (const ateapi::VolumeMount& mount : container.volume_mounts()) {
      if (durable.count(mount.name()) != 0) return true;
    }
  }
  return false;
}

void CheckSnapshotConfig(const Field& field, const ateapi::ActorTemplate& t) {
  if (!t.has_snapshot_config()) {
    field.Fail("must be set");
    return;
  }
  const ateapi::SnapshotConfig& config = t.snapshot_config();
  CheckStorageLocation(field.At("storage_location"), config.storage_location());
  if (config.has_keep_generations()) {
    CheckRange(field.At("keep_generations"), config.keep_generations(), 0, 16);
  }
  const torpor::v1::Fidelity fidelity = config.preferred_fidelity();
  if (fidelity == FIDELITY_ROOTFS &&
      t.sandbox_config().sandbox_class() != ateapi::SANDBOX_CLASS_MICROVM) {
    field.At("preferred_fidelity")
        .FailWith("FIDELITY_UNSUPPORTED", "ROOTFS works only with class MICROVM");
  }
  const bool volumes_only =
      fidelity == FIDELITY_VOLUMES || (fidelity == FIDELITY_UNSPECIFIED &&
                                       config.on_commit() == ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
  if (volumes_only && !MountsDurableVolume(t)) {
    field.At(fidelity == FIDELITY_VOLUMES ? "preferred_fidelity" : "on_commit")
        .Fail("saves only durable data, but no container mounts a durable_dir volume");
  }
}

void CheckHttp(const Field& field, const torpor::v1::HttpConfig& http) {
  if (!http.protocol().empty() && http.protocol() != "http1" && http.protocol() != "h2c") {
    field.At("protocol").Fail("must be http1 or h2c");
  }
  auto check = [&](const char* name, bool present, const google::protobuf::Duration& value) {
    if (present) CheckDuration(field.At(name), value, Duration(0), hours(24), /*zero=*/true);
  };
  check("park_budget", http.has_park_budget(), http.park_budget());
  check("first_byte_timeout", http.has_first_byte_timeout(), http.first_byte_timeout());
  check("stream_idle_timeout", http.has_stream_idle_timeout(), http.stream_idle_timeout());
  check("drain_grace", http.has_drain_grace(), http.drain_grace());
  check("drain_max", http.has_drain_max(), http.drain_max());
  if (http.max_body_bytes() < 0) field.At("max_body_bytes").Fail("must not be negative");
}

bool Positive(const google::protobuf::Duration& d) { return d.seconds() > 0 || d.nanos() > 0; }

bool Less(const google::protobuf::Duration& a, const google::protobuf::Duration& b) {
  return std::pair(a.seconds(), a.nanos()) < std::pair(b.seconds(), b.nanos());
}

// A limit's quantity, if the template sets one that can be read.
std::optional<int64_t> MemoryLimit(const ateapi::Resources& resources) {
  for (const ateapi::Limits& limit : resources.limits()) {
    if (limit.name() != "memory") continue;
    if (auto bytes = ParseBytes(limit.quantity()); bytes.ok()) return *bytes;
  }
  return std::nullopt;
}

void SetLimitIfMissing(ateapi::Resources* resources, std::string_view name,
                       std::string_view quantity) {
  for (const ateapi::Limits& limit : resources->limits()) {
    if (limit.name() == name) return;
  }
  ateapi::Limits* limit = resources->add_limits();
  limit->set_name(std::string(name));
  limit->set_quantity(std::string(quantity));
}

}  // namespace

void CheckResources(const Field& field, const ateapi::Resources& resources) {
  const Field limits = field.At("limits");
  CheckCount(limits, resources.limits_size(), 0, 2);
  std::set<std::string> names;
  for (int i = 0; i < resources.limits_size(); ++i) {
    const ateapi::Limits& limit = resources.limits(i);
    const Field name = limits.At(i).At("name");
    if (limit.name() != "cpu" && limit.name() != "memory") name.Fail("must be cpu or memory");
    if (!names.insert(limit.name()).second) name.Fail("is listed twice");
    CheckQuantity(limits.At(i).At("quantity"), limit.quantity());
    if (limit.name() != "cpu") continue;
    if (auto milli = ParseMilli(limit.quantity()); milli.ok() && *milli >= 1000 * 1000) {
      limits.At(i).At("quantity").Fail("must be below 1000 cores");
    }
  }
}

void CheckPolicies(const Field& field, const torpor::v1::IdlePolicy& idle,
                   const torpor::v1::CrashPolicy& crash) {
  const Field at = field.At("idle_policy");
  constexpr Duration kMax = hours(24 * 30);
  if (idle.has_pause_after()) {
    CheckDuration(at.At("pause_after"), idle.pause_after(), seconds(1), kMax, /*zero=*/true);
  }
  if (idle.has_suspend_after()) {
    CheckDuration(at.At("suspend_after"), idle.suspend_after(), seconds(1), kMax, /*zero=*/true);
  }
  if (idle.has_freeze_after()) {
    CheckDuration(at.At("freeze_after"), idle.freeze_after(), Duration(0), kMax, /*zero=*/true);
  }
  if (idle.has_max_keep_awake()) {
    CheckDuration(at.At("max_keep_awake"), idle.max_keep_awake(), Duration(0), hours(24),
                  /*zero=*/true);
  }
  if (Positive(idle.pause_after()) && Positive(idle.suspend_after()) &&
      Less(idle.suspend_after(), idle.pause_after())) {
    at.At("suspend_after").Fail("must not be shorter than pause_after");
  }
  if (Positive(idle.pause_after()) && Positive(idle.freeze_after()) &&
      Less(idle.pause_after(), idle.freeze_after())) {
    at.At("freeze_after").Fail("must not be longer than pause_after");
  }
  const Field on_crash = field.At("crash_policy");
  if (crash.max_reverts() != 0) CheckRange(on_crash.At("max_reverts"), crash.max_reverts(), 1, 100);
  if (crash.has_window()) {
    CheckDuration(on_crash.At("window"), crash.window(), minutes(1), hours(24), /*zero=*/false);
  }
}

void CheckTemplate(const Field& field, const ateapi::ActorTemplate& t) {
  CheckMetadata(field.At("metadata"), t.has_metadata(), t.metadata(), Scope::kAtespaced,
                /*update=*/false);
  CheckSelector(field.At("worker_selector"), t.has_worker_selector(), t.worker_selector());
  CheckContainers(field.At("containers"), t);
  CheckVolumes(field.At("volumes"), t);
  CheckSnapshotConfig(field.At("snapshot_config"), t);
  const Field sandbox = field.At("sandbox_config");
  if (!t.has_sandbox_config()) {
    sandbox.Fail("must be set");
  } else {
    if (t.sandbox_config().sandbox_class() == ateapi::SANDBOX_CLASS_UNSPECIFIED) {
      sandbox.At("sandbox_class").Fail("must be set");
    }
    CheckSubdomain(sandbox.At("config_name"), t.sandbox_config().config_name(), Need::kSet);
  }
  CheckResources(field.At("resources"), t.resources());
  if (t.sandbox_config().sandbox_class() == ateapi::SANDBOX_CLASS_MICROVM &&
      MemoryLimit(t.resources()).value_or(kMicrovmMemoryMin) < kMicrovmMemoryMin) {
    field.At("resources").Fail("class MICROVM needs at least 256Mi of memory");
  }
  CheckPolicies(field, t.idle_policy(), t.crash_policy());
  if (t.golden_config().has_warmup()) {
    CheckDuration(field.At("golden_config").At("warmup"), t.golden_config().warmup(), Duration(0),
                  minutes(10), /*zero=*/true);
  }
  if (t.http_port() != 0) CheckRange(field.At("http_port"), t.http_port(), 1, 65535);
  CheckHttp(field.At("http"), t.http());
}

void ApplyDefaults(ateapi::ActorTemplate* t) {
  t->clear_status();
  SetLimitIfMissing(t->mutable_resources(), "memory", kDefaultMemory);
  SetLimitIfMissing(t->mutable_resources(), "cpu", kDefaultCpu);
  if (t->http_port() == 0) t->set_http_port(80);
  for (ateapi::Container& container : *t->mutable_containers()) {
    if (!container.has_wakeup_probe()) continue;
    ateapi::ContainerWakeupProbe* probe = container.mutable_wakeup_probe();
    if (probe->timeout_seconds() == 0) probe->set_timeout_seconds(30);
    if (probe->http_get().path().empty()) probe->mutable_http_get()->set_path("/");
  }
  ateapi::SnapshotConfig* snapshot = t->mutable_snapshot_config();
  if (snapshot->preferred_fidelity() != FIDELITY_UNSPECIFIED) {
    snapshot->set_on_commit(snapshot->preferred_fidelity() == FIDELITY_MEMORY
                                ? ateapi::SNAPSHOT_CONTENT_SCOPE_FULL
                                : ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
  } else if (snapshot->on_commit() == ateapi::SNAPSHOT_CONTENT_SCOPE_UNSPECIFIED) {
    snapshot->set_on_commit(ateapi::SNAPSHOT_CONTENT_SCOPE_FULL);
  }
}

}  // namespace torpor::api
