#pragma once
// manifest.json: what a snapshot consists of. The same schema for a LOCAL generation (written by
// the node agent, without objects) and a DURABLE one (written last by the mover, with objects); its
// presence is the commit. Format version 1, UTF-8 JSON, at most 4 MiB.
//
// Pure functions, thread-safe. Parse bounds everything before it allocates much and takes nothing
// on trust: a violation is DATA_LOSS SNAPSHOT_CORRUPT saying what is wrong. Serialize refuses the
// same things with INVALID_ARGUMENT, so what it wrote can always be read. Equal manifests give
// equal bytes.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "torpor/v1/common.pb.h"

namespace torpor::snapshot {

inline constexpr int kManifestFormat = 1;
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kSumsName[] = "sums.json";  // hashes of a LOCAL generation, made later
inline constexpr size_t kManifestBytesMax = 4 << 20;
inline constexpr size_t kManifestFilesMax = 4096;
inline constexpr int64_t kSnapshotFileBytesMax = int64_t{1} << 42;  // 4 TiB, also for all together

// How a file lies in object storage.
struct ManifestObject {
  std::string name;          // below the snapshot's address: "<file>.tsz"
  int64_t bytes = 0;         // of the object
  std::string index_sha256;  // of its index frame (tsz.h), 64 lower-case hex digits
};

struct ManifestFile {
  torpor::v1::SnapshotFile file;         // name, logical and populated bytes, needed_from
  uint32_t mode = 0440;                  // permission bits
  std::optional<ManifestObject> object;  // DURABLE only
};

// A snapshot that this one needs, named relative to the storage location.
struct ManifestBase {
  std::string path;  // of its directory
  std::string manifest_sha256;
};

struct Manifest {
  torpor::v1::ActorIdentity actor;  // whose state it is
  torpor::v1::SnapshotMeta meta;    // generation, fidelity, class, runtime ..., capture time
  std::map<std::string, std::string> image_digests;  // container -> sha256:...
  std::string boot_id;                               // of the machine at capture
  std::vector<ManifestFile> files;                   // in the order of capture; names are unique
  std::vector<ManifestBase> bases;
};

StatusOr<Manifest> ParseManifest(std::string_view json);
StatusOr<std::string> SerializeManifest(const Manifest& manifest);

// The files that `fidelity` needs. FAILED_PRECONDITION FIDELITY_NOT_CAPTURED when the snapshot does
// not hold that much.
StatusOr<std::vector<ManifestFile>> NarrowFiles(const Manifest& manifest,
                                                torpor::v1::Fidelity fidelity);

// FAILED_PRECONDITION SNAPSHOT_IDENTITY unless the manifest is of this actor (atespace, name, uid
// and, where `actor` states one, template uid).
Status CheckIdentity(const Manifest& manifest, const torpor::v1::ActorIdentity& actor);

}  // namespace torpor::snapshot
