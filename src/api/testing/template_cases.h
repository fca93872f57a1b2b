#pragma once
// Ways to spoil a template, and the check that exactly the spoiled fields are named.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "api/testing/requests.h"
#include "api/validate/validate.h"

namespace torpor::api::template_cases {

using ateapi::ActorTemplate;
using ateapi::Container;

struct Case {
  const char* name;
  std::function<void(ActorTemplate*)> change;
  std::vector<std::string> bad_fields;  // below actor_template; empty = still valid
};

inline Container* C(ActorTemplate* t) { return t->mutable_containers(0); }

inline std::string Repeat(size_t n, const std::string& text = "a") {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

inline void AddContainers(ActorTemplate* t, int total) {
  for (int i = 1; i < total; ++i) {
    Container* c = t->add_containers();
    *c = t->containers(0);
    c->set_name("c" + std::to_string(i));
  }
}

inline void AddVolumes(ActorTemplate* t, int total) {
  for (int i = 0; i < total; ++i) {
    ateapi::Volume* v = t->add_volumes();
    v->set_name("v" + std::to_string(i));
    v->mutable_durable_dir();
  }
}

inline void AddMounts(ActorTemplate* t, int total) {
  AddVolumes(t, 1);
  for (int i = 0; i < total; ++i) {
    ateapi::VolumeMount* m = C(t)->add_volume_mounts();
    m->set_name("v0");
    m->set_mount_path("/m" + std::to_string(i));
  }
}

inline void Mount(ActorTemplate* t, const std::string& path) {
  AddMounts(t, 1);
  C(t)->mutable_volume_mounts(0)->set_mount_path(path);
}

inline void Limit(ateapi::Resources* r, const std::string& name, const std::string& quantity) {
  ateapi::Limits* limit = r->add_limits();
  limit->set_name(name);
  limit->set_quantity(quantity);
}

inline void Env(ActorTemplate* t, const std::string& name, const std::string& value) {
  ateapi::EnvVar* env = C(t)->add_env();
  env->set_name(name);
  env->set_value(value);
}

inline void Probe(ActorTemplate* t, const std::string& path, int port, int timeout) {
  ateapi::ContainerWakeupProbe* p = C(t)->mutable_wakeup_probe();
  p->mutable_http_get()->set_path(path);
  p->mutable_http_get()->set_port(port);
  p->set_timeout_seconds(timeout);
}

inline ateapi::SystemInfoVolumeSource* SystemInfo(ActorTemplate* t) {
  ateapi::Volume* v = t->add_volumes();
  v->set_name("info");
  return v->mutable_system_info();
}

inline void Items(ActorTemplate* t, const std::vector<std::pair<int, std::string>>& items) {
  auto* source = SystemInfo(t)->add_data_sources()->mutable_actor_metadata();
  for (const auto& [field, path] : items) {
    ateapi::ActorMetadataItem* item = source->add_items();
    item->set_field(static_cast<ateapi::ActorMetadataField>(field));
    item->set_path(path);
  }
}

inline void Microvm(ActorTemplate* t) {
  t->mutable_sandbox_config()->set_sandbox_class(ateapi::SANDBOX_CLASS_MICROVM);
}

inline torpor::v1::IdlePolicy* Idle(ActorTemplate* t) { return t->mutable_idle_policy(); }
inline ateapi::SnapshotConfig* Snapshot(ActorTemplate* t) { return t->mutable_snapshot_config(); }

inline const std::string kDigest = "@sha256:" + Repeat(64, "0");
inline constexpr const char* kItem0 =
    "volumes[0].system_info.data_sources[0].actor_metadata.items[0].path";

inline void RunCases(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ateapi::CreateActorTemplateRequest request;
    *request.mutable_actor_template() = testing_requests::Template();
    c.change(request.mutable_actor_template());
    std::vector<std::string> want;
    for (const std::string& field : c.bad_fields) want.push_back("actor_template." + field);
    EXPECT_EQ(testing_requests::ViolatedFields(Validate(request)), want);
  }
}

}  // namespace torpor::api::template_cases
