#include "mover/oci_layout.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <nlohmann/json.hpp>

#include "base/uuid.h"
#include "model/names.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::mover {
namespace {

using nlohmann::json;

constexpr size_t kLayersMax = 1000;
constexpr size_t kPieceBytes = 1 << 20;
constexpr mode_t kBlobMode = 0644;
constexpr mode_t kDirectoryMode = 0755;
constexpr char kIndexName[] = "index.json";
constexpr char kRefName[] = "org.opencontainers.image.ref.name";
constexpr char kIndexType[] = "application/vnd.oci.image.index.v1+json";
constexpr char kManifestType[] = "application/vnd.oci.image.manifest.v1+json";

Status Corrupt(std::string_view what) { return Fail(reasons::kSnapshotCorrupt, what); }
Status Unusable(std::string_view what) { return Fail(reasons::kInvalidContainerConfig, what); }

std::string Text(const json& object, const char* key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

StatusOr<json> ParseObject(const std::string& text, std::string_view what) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return Corrupt(fmt::format("{} is not a JSON object", what));
  return value;
}

StatusOr<Descriptor> ParseDescriptor(const json& value) {
  Descriptor out;
  if (value.is_object()) {
    out.media_type = Text(value, "mediaType");
    out.digest = Text(value, "digest");
    auto size = value.find("size");
    out.bytes = size != value.end() && size->is_number_integer() ? size->get<int64_t>() : -1;
  }
  if (!IsSha256Digest(out.digest) || out.bytes < 0) {
    return Corrupt("an image has a descriptor without digest or size");
  }
  return out;
}

StatusOr<std::string> ReadVerified(const os::DirFd& layout, const std::string& digest) {
  ASSIGN_OR_RETURN(std::string text, layout.ReadFile(BlobPath(digest), kOciJsonBytesMax));
  if ("sha256:" + snapshot::Sha256Hex(text) != digest) {
    return Corrupt(fmt::format("blob {} has other bytes than its digest says", digest));
  }
  return text;
}

StatusOr<std::string> PickPlatform(const json& index, const std::string& architecture) {
  auto manifests = index.find("manifests");
  if (!manifests->is_array()) return Corrupt("an image index has no list of manifests");
  for (const json& entry : *manifests) {
    auto platform = entry.is_object() ? entry.find("platform") : entry.end();
    if (!entry.is_object() || platform == entry.end() || !platform->is_object()) continue;
    if (Text(*platform, "os") == "linux" && Text(*platform, "architecture") == architecture) {
      ASSIGN_OR_RETURN(Descriptor found, ParseDescriptor(entry));
      return found.digest;
    }
  }
  return Unusable(fmt::format("the image has no variant for linux/{}", architecture));
}

bool HasSize(const os::DirFd& layout, const Descriptor& blob) {
  auto stat = layout.Stat(BlobPath(blob.digest));
  return stat.ok() && S_ISREG(stat->st_mode) && stat->st_size == blob.bytes;
}

Status CopyVerified(int from, int to, const Descriptor& blob, snapshot::Transfer* transfer) {
  snapshot::Sha256 sha;
  std::string buffer(kPieceBytes, '\0');
  int64_t copied = 0;
  for (;;) {
    RETURN_IF_ERROR(transfer->Check());
    ssize_t n = read(from, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read");
    if (n == 0) break;
    std::string_view piece(buffer.data(), static_cast<size_t>(n));
    copied += n;
    if (copied > blob.bytes) break;
    sha.Update(piece);
    RETURN_IF_ERROR(os::WriteAll(to, piece));
    transfer->Advance(n);
  }
  if (copied != blob.bytes || "sha256:" + sha.FinishHex() != blob.digest) {
    return Corrupt(fmt::format("blob {} has other bytes than its digest says", blob.digest));
  }
  return OkStatus();
}

Status CopyBlob(const os::DirFd& from, const Descriptor& blob, const os::DirFd& to,
                snapshot::Transfer* transfer) {
  if (HasSize(to, blob)) {
    transfer->Advance(blob.bytes);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(UniqueFd source, from.OpenRegular(BlobPath(blob.digest), O_RDONLY));
  const std::string temp = fmt::format("blobs/sha256/.tmp-{}", RandomHex(8));
  ASSIGN_OR_RETURN(UniqueFd target, to.OpenRegular(temp, O_WRONLY | O_CREAT | O_EXCL, kBlobMode));
  Status status = CopyVerified(source.get(), target.get(), blob, transfer);
  if (status.ok()) status = os::SetOwnerAndMode(target.get(), {}, kBlobMode);
  if (status.ok()) status = to.Rename(temp, BlobPath(blob.digest));
  if (!status.ok()) to.Unlink(temp).IgnoreError();
  return status;
}

StatusOr<json> ReadIndex(const os::DirFd& layout) {
  ASSIGN_OR_RETURN(std::string text, layout.ReadFile(kIndexName, kOciJsonBytesMax));
  ASSIGN_OR_RETURN(json index, ParseObject(text, kIndexName));
  auto manifests = index.find("manifests");
  if (manifests == index.end() || !manifests->is_array()) {
    return Corrupt("index.json has no list of manifests");
  }
  return index;
}

std::string NameOf(const json& entry) {
  auto annotations = entry.is_object() ? entry.find("annotations") : entry.end();
  if (!entry.is_object() || annotations == entry.end() || !annotations->is_object()) return "";
  return Text(*annotations, kRefName);
}

}  // namespace

std::string BlobPath(const std::string& digest) {
  return "blobs/sha256/" + digest.substr(digest.find(':') + 1);
}

StatusOr<ImageParts> ReadImage(const os::DirFd& layout, const std::string& digest,
                               const std::string& architecture) {
  ASSIGN_OR_RETURN(std::string text, ReadVerified(layout, digest));
  ASSIGN_OR_RETURN(json manifest, ParseObject(text, "an image manifest"));
  std::string manifest_digest = digest;
  if (manifest.contains("manifests")) {
    ASSIGN_OR_RETURN(manifest_digest, PickPlatform(manifest, architecture));
    ASSIGN_OR_RETURN(text, ReadVerified(layout, manifest_digest));
    ASSIGN_OR_RETURN(manifest, ParseObject(text, "an image manifest"));
  }
  auto config = manifest.find("config");
  auto layers = manifest.find("layers");
  if (config == manifest.end() || layers == manifest.end() || !layers->is_array() ||
      layers->size() > kLayersMax) {
    return Unusable("not a container image: its manifest has no config or no usable layers");
  }
  ImageParts out;
  std::string type = Text(manifest, "mediaType");
  out.manifest = {type.empty() ? kManifestType : type, manifest_digest,
                  static_cast<int64_t>(text.size())};
  ASSIGN_OR_RETURN(Descriptor first, ParseDescriptor(*config));
  out.blobs.push_back(std::move(first));
  for (const json& layer : *layers) {
    ASSIGN_OR_RETURN(Descriptor blob, ParseDescriptor(layer));
    out.blobs.push_back(std::move(blob));
  }
  return out;
}

bool HasBlob(const os::DirFd& layout, const std::string& digest) {
  auto stat = layout.Stat(BlobPath(digest));
  return stat.ok() && S_ISREG(stat->st_mode);
}

bool IsComplete(const os::DirFd& layout, const ImageParts& image) {
  return HasSize(layout, image.manifest) &&
         std::all_of(image.blobs.begin(), image.blobs.end(),
                     [&](const Descriptor& blob) { return HasSize(layout, blob); });
}

Status CopyImage(const os::DirFd& from, const ImageParts& image, const os::DirFd& to,
                 snapshot::Transfer* transfer) {
  std::vector<Descriptor> all = image.blobs;
  all.push_back(image.manifest);
  for (const Descriptor& blob : all) transfer->AddTotal(blob.bytes);
  for (const Descriptor& blob : all) {
    RETURN_IF_ERROR(Annotate(CopyBlob(from, blob, to, transfer), "copy of an image"));
  }
  return OkStatus();
}

Status InitLayout(const os::DirFd& layout) {
  RETURN_IF_ERROR(layout.MkdirOrOpen("blobs", kDirectoryMode).status());
  RETURN_IF_ERROR(layout.MkdirOrOpen("blobs/sha256", kDirectoryMode).status());
  if (!layout.Exists("oci-layout")) {
    RETURN_IF_ERROR(layout.WriteFile("oci-layout", R"({"imageLayoutVersion":"1.0.0"})", kBlobMode));
  }
  if (layout.Exists(kIndexName)) return OkStatus();
  const json empty = {
      {"schemaVersion", 2}, {"mediaType", kIndexType}, {"manifests", json::array()}};
  return layout.WriteFile(kIndexName, empty.dump(), kBlobMode);
}

Status NameImage(const os::DirFd& layout, const Descriptor& manifest, const std::string& name) {
  ASSIGN_OR_RETURN(json index, ReadIndex(layout));
  json kept = json::array();
  for (json& entry : index["manifests"]) {
    if (NameOf(entry) != name) kept.push_back(std::move(entry));
  }
  kept.push_back({{"mediaType", manifest.media_type},
                  {"digest", manifest.digest},
                  {"size", manifest.bytes},
                  {"annotations", {{kRefName, name}}}});
  index["manifests"] = std::move(kept);
  const std::string text = index.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kOciJsonBytesMax) {
    return Fail(reasons::kDiskFull, "too many images in images/blobs; remove some");
  }
  return layout.WriteFile(kIndexName, text, kBlobMode);
}

StatusOr<Descriptor> FindNamed(const os::DirFd& layout, const std::string& name) {
  ASSIGN_OR_RETURN(json index, ReadIndex(layout));
  for (const json& entry : index["manifests"]) {
    if (name.empty() || NameOf(entry) == name) return ParseDescriptor(entry);
  }
  return Status(Code::kNotFound, "no image of this name");
}

}  // namespace torpor::mover
