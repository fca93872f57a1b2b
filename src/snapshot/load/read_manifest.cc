#include "snapshot/load/read_manifest.h"

#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::snapshot {

StatusOr<CommittedManifest> ReadManifest(objstore::ObjectStore& store, const std::string& prefix,
                                         const std::string& sha256) {
  CommittedManifest out;
  ASSIGN_OR_RETURN(out.text,
                   objstore::ReadAll(store, prefix + "/" + kManifestName, kManifestBytesMax));
  out.sha256 = Sha256Hex(out.text);
  if (!sha256.empty() && out.sha256 != sha256) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("manifest: its sha256 is {}, the record says {}", out.sha256, sha256));
  }
  ASSIGN_OR_RETURN(out.manifest, ParseManifest(out.text));
  for (const ManifestFile& file : out.manifest.files) {
    if (!file.object.has_value()) {
      return Fail(reasons::kSnapshotCorrupt,
                  fmt::format("manifest: file {} has no object", file.file.name()));
    }
  }
  return out;
}

}  // namespace torpor::snapshot
