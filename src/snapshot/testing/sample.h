#pragma once
// A manifest for tests, valid in every field.

#include "snapshot/format/manifest.h"

namespace torpor::snapshot {

inline constexpr char kSampleActorUid[] = "11111111-2222-4333-8444-555555555555";
inline constexpr char kSampleGenerationUuid[] = "99999999-2222-4333-8444-555555555555";

inline torpor::v1::ActorIdentity SampleActor() {
  torpor::v1::ActorIdentity actor;
  actor.set_atespace("demo");
  actor.set_name("counter-1");
  actor.set_uid(kSampleActorUid);
  actor.set_template_atespace("demo");
  actor.set_template_name("counter");
  actor.set_template_uid("66666666-2222-4333-8444-555555555555");
  return actor;
}

inline torpor::v1::SnapshotMeta SampleMeta() {
  torpor::v1::SnapshotMeta meta;
  meta.set_generation(7);
  meta.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  meta.set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  meta.set_runtime("runsc");
  meta.set_runtime_version("release-20240826.0");
  meta.set_platform("systrap");
  meta.set_architecture("amd64");
  meta.add_cpu_features("avx2");
  meta.add_cpu_features("sse4_2");
  meta.mutable_capture_time()->set_seconds(1790000000);
  meta.mutable_capture_time()->set_nanos(123456789);
  return meta;
}

inline ManifestFile SampleFile(const std::string& name, int64_t bytes,
                               torpor::v1::Fidelity needed_from = torpor::v1::FIDELITY_MEMORY) {
  ManifestFile file;
  file.file.set_name(name);
  file.file.set_logical_bytes(bytes);
  file.file.set_populated_bytes(bytes);
  file.file.set_needed_from(needed_from);
  return file;
}

inline Manifest SampleManifest() {
  Manifest manifest;
  manifest.actor = SampleActor();
  manifest.meta = SampleMeta();
  manifest.image_digests["main"] = "sha256:" + std::string(64, 'a');
  manifest.boot_id = "77777777-2222-4333-8444-555555555555";
  return manifest;
}

}  // namespace torpor::snapshot
