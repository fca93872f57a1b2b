#pragma once
// Small images in OCI layouts, for tests.

#include <nlohmann/json.hpp>

#include <string>

#include "base/log.h"
#include "mover/oci_layout.h"
#include "snapshot/format/sha256.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::mover {

inline Descriptor PutTestBlob(const std::string& layout, const std::string& media_type,
                              const std::string& bytes) {
  const std::string hex = snapshot::Sha256Hex(bytes);
  snapshot::WriteFileTo(layout + "/blobs/sha256/" + hex, bytes);
  return {media_type, "sha256:" + hex, static_cast<int64_t>(bytes.size())};
}

inline nlohmann::json JsonOf(const Descriptor& blob) {
  return {{"mediaType", blob.media_type}, {"digest", blob.digest}, {"size", blob.bytes}};
}

// An image of `layers` layers, each an empty tar of its own length, the shortest of `bytes`;
// returns the manifest's digest.
inline std::string MakeTestImage(const std::string& layout, const std::string& name, int layers,
                                 size_t bytes = 10240) {
  using nlohmann::json;
  std::filesystem::create_directories(layout);
  auto dir = os::DirFd::OpenPath(layout);
  CHECK(dir.ok() && InitLayout(*dir).ok());
  json list = json::array();
  json diff_ids = json::array();
  for (int i = 0; i < layers; ++i) {
    const Descriptor layer = PutTestBlob(layout, "application/vnd.oci.image.layer.v1.tar",
                                         std::string(bytes + 512 * static_cast<size_t>(i), '\0'));
    list.push_back(JsonOf(layer));
    diff_ids.push_back(layer.digest);
  }
  const json config = {{"architecture", "amd64"},
                       {"os", "linux"},
                       {"config", {{"Labels", {{"name", name}}}}},
                       {"rootfs", {{"type", "layers"}, {"diff_ids", diff_ids}}}};
  const Descriptor config_blob =
      PutTestBlob(layout, "application/vnd.oci.image.config.v1+json", config.dump());
  const json manifest = {{"schemaVersion", 2},
                         {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                         {"config", JsonOf(config_blob)},
                         {"layers", list}};
  const Descriptor blob =
      PutTestBlob(layout, "application/vnd.oci.image.manifest.v1+json", manifest.dump());
  CHECK(NameImage(*dir, blob, name).ok());
  return blob.digest;
}

// An index with one manifest for `architecture`; returns its digest.
inline std::string AddTestIndex(const std::string& layout, const std::string& manifest,
                                const std::string& architecture) {
  using nlohmann::json;
  const auto bytes = std::filesystem::file_size(layout + "/" + BlobPath(manifest));
  json entry =
      JsonOf({"application/vnd.oci.image.manifest.v1+json", manifest, static_cast<int64_t>(bytes)});
  entry["platform"] = {{"os", "linux"}, {"architecture", architecture}};
  const json index = {{"schemaVersion", 2},
                      {"mediaType", "application/vnd.oci.image.index.v1+json"},
                      {"manifests", json::array({entry})}};
  return PutTestBlob(layout, "application/vnd.oci.image.index.v1+json", index.dump()).digest;
}

}  // namespace torpor::mover
