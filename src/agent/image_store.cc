#include "agent/image_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/outcome.h"
#include "base/log.h"
#include "base/trace.h"
#include "model/names.h"
#include "model/reasons.h"
#include "os/fs/remove.h"
#include "os/fs/usage.h"
#include "os/process/process.h"
#include "snapshot/format/sha256.h"

namespace torpor::agent {
namespace {

using Json = nlohmann::json;

constexpr size_t kBlobBytesMax = 8 << 20;
constexpr char kBlobs[] = "images/blobs";
constexpr char kComplete[] = "complete.json";
constexpr int kMarkerFormat = 2;
constexpr char kRootfs[] = "images/rootfs";
constexpr char kBlobFiles[] = "images/blobs/blobs/sha256";
constexpr Duration kTouchEvery = std::chrono::minutes(1);
constexpr int kRankBlob = 0;
constexpr int kRankTree = 1;

Status Bad(std::string_view what) { return Fail(reasons::kInvalidContainerConfig, what); }

std::string HexOf(const std::string& digest) { return digest.substr(sizeof "sha256:" - 1); }

StatusOr<std::string> ReadBlob(const os::DirFd& root, const std::string& digest) {
  std::string path = fmt::format("{}/blobs/sha256/{}", kBlobs, HexOf(digest));
  ASSIGN_OR_RETURN(std::string bytes, root.ReadFile(path, kBlobBytesMax));
  if ("sha256:" + snapshot::Sha256Hex(bytes) != digest) {
    return Bad(fmt::format("image blob {} does not have the digest that names it", digest));
  }
  return bytes;
}

// The config blob of the image that the layout has under `digest`.
StatusOr<std::string> ReadConfig(const os::DirFd& root, const std::string& digest) {
  ASSIGN_OR_RETURN(std::string index,
                   root.ReadFile(fmt::format("{}/index.json", kBlobs), kBlobBytesMax));
  ASSIGN_OR_RETURN(std::string manifest_digest, FindManifest(index, digest));
  ASSIGN_OR_RETURN(std::string manifest, ReadBlob(root, manifest_digest));
  ASSIGN_OR_RETURN(std::string config_digest, FindConfig(manifest));
  return ReadBlob(root, config_digest);
}

// Whether the blob is there and is what its digest says. Reads it all.
bool IsWhole(const os::DirFd& root, const std::string& digest) {
  auto fd = root.OpenRegular(fmt::format("{}/{}", kBlobFiles, HexOf(digest)), O_RDONLY);
  if (!fd.ok()) return false;
  snapshot::Sha256 sha;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    ssize_t n = read(fd->get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) return "sha256:" + sha.FinishHex() == digest;
    sha.Update(std::string_view(buffer.data(), static_cast<size_t>(n)));
  }
}

WallTime ModifiedAt(const struct stat& st) {
  return WallTime(std::chrono::seconds(st.st_mtim.tv_sec)) +
         std::chrono::duration_cast<WallTime::duration>(
             std::chrono::nanoseconds(st.st_mtim.tv_nsec));
}

const char* Architecture() {
#if defined(__aarch64__)
  return "arm64";
#else
  return "amd64";
#endif
}

}  // namespace

StatusOr<std::string> DigestOfReference(const std::string& reference) {
  size_t at = reference.rfind('@');
  std::string digest = at == std::string::npos ? std::string() : reference.substr(at + 1);
  if (!IsSha256Digest(digest)) {
    return Bad("an image reference needs a digest: NAME@sha256:<64 hex digits>");
  }
  return digest;
}

StatusOr<std::string> FindManifest(const std::string& index_json, const std::string& tag) {
  Json index = Json::parse(index_json, nullptr, /*allow_exceptions=*/false);
  if (index.is_object() && index.contains("manifests") && index["manifests"].is_array()) {
    for (const Json& entry : index["manifests"]) {
      if (!entry.is_object() || !entry.contains("digest") || !entry["digest"].is_string()) continue;
      std::string digest = entry["digest"].get<std::string>();
      std::string name;
      if (entry.contains("annotations") && entry["annotations"].is_object()) {
        const Json& annotations = entry["annotations"];
        auto it = annotations.find("org.opencontainers.image.ref.name");
        if (it != annotations.end() && it->is_string()) name = it->get<std::string>();
      }
      if (name == tag && IsSha256Digest(digest)) return digest;
    }
  }
  return Bad(fmt::format("the image layout has no image {}", tag));
}

StatusOr<std::string> FindConfig(const std::string& manifest_json) {
  Json manifest = Json::parse(manifest_json, nullptr, /*allow_exceptions=*/false);
  if (manifest.is_object() && manifest.contains("config") && manifest["config"].is_object()) {
    const Json& config = manifest["config"];
    auto it = config.find("digest");
    if (it != config.end() && it->is_string() && IsSha256Digest(it->get<std::string>())) {
      return it->get<std::string>();
    }
  }
  return Bad("the image's manifest names no configuration");
}

std::vector<std::string> FindLayers(const std::string& manifest_json) {
  std::vector<std::string> out;
  Json manifest = Json::parse(manifest_json, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("layers")) return out;
  for (const Json& layer : manifest["layers"]) {
    if (!layer.is_object() || !layer.contains("digest") || !layer["digest"].is_string()) continue;
    std::string digest = layer["digest"].get<std::string>();
    if (IsSha256Digest(digest)) out.push_back(std::move(digest));
  }
  return out;
}

Unpacker UmociUnpacker(int landlock_version) {
  const bool confined = landlock_version >= os::kLandlockMin;
  if (!confined) {
    LogWarning("images are unpacked without confinement: this kernel has no Landlock for it",
               {{"version", fmt::to_string(landlock_version)},
                {"needed", fmt::to_string(os::kLandlockMin)}});
  }
  return [confined](const std::string& layout, const std::string& tag, const std::string& rootfs,
                    MonotonicTime deadline) -> Status {
    os::CommandOptions options;
    options.deadline = deadline;
    if (confined) {
      options.confinement = os::Confinement{
          .read = {layout, "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc"},
          .write = {rootfs.substr(0, rootfs.rfind('/'))}};
    }
    auto out = os::CommandOutput({"umoci", "raw", "unpack", "--image", layout + ":" + tag, rootfs},
                                 options);
    return out.ok() ? OkStatus() : Annotate(out.status(), "unpacking image " + tag);
  };
}

StatusOr<std::shared_ptr<const Image>> ImageStore::Ensure(const std::string& reference,
                                                          const torpor::v1::ActorIdentity& actor,
                                                          MonotonicTime deadline) {
  ASSIGN_OR_RETURN(std::string digest, DigestOfReference(reference));
  {
    MutexLock lock(&mu_);
    for (;;) {
      auto it = images_.find(digest);
      if (it == images_.end()) break;
      if (it->second != nullptr) {
        auto image = it->second;
        const WallTime now = clock_->WallNow();
        if (now - used_[digest] >= kTouchEvery) {
          // The clock of eviction, also for the next agent.
          used_[digest] = now;
          auto dir = dirs_->root().OpenDir(fmt::format("{}/{}", kRootfs, HexOf(digest)));
          if (dir.ok()) (void)futimens(dir->fd(), nullptr);
        }
        return image;
      }
      if (!done_.WaitUntil(&mu_, deadline)) {
        return Fail(reasons::kDeadlineExceeded,
                    fmt::format("image {} is still being fetched", digest));
      }
    }
    images_[digest] = nullptr;
  }
  auto image = Load(digest);
  if (image.status().code() == Code::kNotFound) image = Fetch(reference, digest, actor, deadline);
  MutexLock lock(&mu_);
  if (image.ok()) {
    images_[digest] = *image;
  } else {
    images_.erase(digest);
  }
  done_.SignalAll();
  return image;
}

StatusOr<std::shared_ptr<const Image>> ImageStore::Fetch(const std::string& reference,
                                                         const std::string& digest,
                                                         const torpor::v1::ActorIdentity& actor,
                                                         MonotonicTime deadline) {
  RETURN_IF_ERROR(Pull(reference, actor, deadline));
  Status status = Unpack(digest, deadline);
  // A blob that a power cut tore has the right size, so the mover takes it for complete; one that
  // was evicted is missing. Both come back with a second pull.
  if (!status.ok() && DropDamagedBlobs(digest) > 0) {
    LogWarning("an image is fetched again, its blobs were damaged",
               {{"image", digest}, {"error", std::string(status.message())}});
    RETURN_IF_ERROR(Pull(reference, actor, deadline));
    status = Unpack(digest, deadline);
  }
  RETURN_IF_ERROR(status);
  return Load(digest);
}

int ImageStore::DropDamagedBlobs(const std::string& digest) const {
  const os::DirFd& root = dirs_->root();
  auto index = root.ReadFile(fmt::format("{}/index.json", kBlobs), kBlobBytesMax);
  auto manifest_digest =
      index.ok() ? FindManifest(*index, digest) : StatusOr<std::string>(index.status());
  if (!manifest_digest.ok()) return 0;
  std::vector<std::string> wanted = {*manifest_digest};
  auto manifest =
      root.ReadFile(fmt::format("{}/{}", kBlobFiles, HexOf(*manifest_digest)), kBlobBytesMax);
  if (manifest.ok()) {
    for (std::string& layer : FindLayers(*manifest)) wanted.push_back(std::move(layer));
    if (auto config = FindConfig(*manifest); config.ok()) wanted.push_back(*config);
  }
  int dropped = 0;
  for (const std::string& blob : wanted) {
    if (IsWhole(root, blob)) continue;
    ++dropped;
    (void)root.Unlink(fmt::format("{}/{}", kBlobFiles, HexOf(blob))).ok();  // missing is as good
  }
  return dropped;
}

StatusOr<ImageStore::Marker> ImageStore::ReadMarker(const std::string& hex) const {
  ASSIGN_OR_RETURN(std::string text,
                   dirs_->root().ReadFile(fmt::format("{}/{}/{}", kRootfs, hex, kComplete), 4096));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  // As it was written, or not at all: anything else is debris.
  if (!json.is_object() ||
      json != Json({{"format", kMarkerFormat},
                    {"digest", "sha256:" + hex},
                    {"boot_id", json["boot_id"]},
                    {"synced", json["synced"]},
                    {"bytes", json["bytes"]}}) ||
      !json["boot_id"].is_string() || !json["synced"].is_boolean() ||
      !json["bytes"].is_number_integer()) {
    return Error(Code::kNotFound, "INTERNAL", "the tree of this image is not complete");
  }
  return Marker{json["boot_id"].get<std::string>(), json["synced"].get<bool>(),
                json["bytes"].get<int64_t>()};
}

Status ImageStore::WriteMarker(const std::string& digest, const Marker& marker) const {
  Json json = {{"format", kMarkerFormat},
               {"digest", digest},
               {"boot_id", marker.boot_id},
               {"synced", marker.synced},
               {"bytes", marker.bytes}};
  return dirs_->root().WriteFile(fmt::format("{}/{}/{}", kRootfs, HexOf(digest), kComplete),
                                 json.dump(), 0444);
}

Status ImageStore::Recover() {
  const os::DirFd& root = dirs_->root();
  ASSIGN_OR_RETURN(os::DirFd unpacking, root.OpenDir("images/tmp"));
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> debris, unpacking.List());
  for (const os::DirEntry& entry : debris) {
    if (entry.name.rfind(os::kRetiredPrefix, 0) == 0) continue;
    RETURN_IF_ERROR(os::Retire(unpacking, entry.name, clock_->WallNow()));
  }
  ASSIGN_OR_RETURN(os::DirFd trees, root.OpenDir(kRootfs));
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, trees.List());
  for (const os::DirEntry& entry : entries) {
    if (entry.name.rfind(os::kRetiredPrefix, 0) == 0) continue;
    auto marker = ReadMarker(entry.name);
    if (marker.ok() && marker->synced) continue;
    if (marker.ok() && marker->boot_id == boot_id_) {
      MutexLock lock(&mu_);
      unflushed_.insert("sha256:" + entry.name);
      continue;
    }
    RETURN_IF_ERROR(os::Retire(trees, entry.name, clock_->WallNow()));
  }
  return OkStatus();
}

bool ImageStore::HasUnflushed() const {
  MutexLock lock(&mu_);
  return !unflushed_.empty();
}

Status ImageStore::Flush() {
  std::set<std::string> complete;
  {
    MutexLock lock(&mu_);
    complete.swap(unflushed_);
  }
  if (complete.empty()) return OkStatus();
  // Never tried again for the same trees: a second call may succeed over pages that were lost.
  if (syncfs(dirs_->root().fd()) != 0) return ErrnoStatus(errno, "syncfs");
  for (const std::string& digest : complete) {
    auto marker = ReadMarker(HexOf(digest));
    if (!marker.ok()) continue;  // evicted meanwhile
    marker->synced = true;
    RETURN_IF_ERROR(WriteMarker(digest, *marker));
  }
  return OkStatus();
}

int64_t ImageStore::bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

// Files are read without the lock: this thread has a low priority, and starts need it.
StatusOr<std::vector<CacheEntry>> ImageStore::Entries(const std::set<std::string>& pinned) const {
  std::vector<CacheEntry> out;
  const os::DirFd& root = dirs_->root();
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> trees, root.List(kRootfs));
  for (const os::DirEntry& entry : trees) {
    auto marker = ReadMarker(entry.name);
    auto stat = root.Stat(fmt::format("{}/{}", kRootfs, entry.name));
    if (!marker.ok() || !stat.ok()) continue;  // being made or removed
    const std::string digest = "sha256:" + entry.name;
    out.push_back({digest, marker->bytes, ModifiedAt(*stat), pinned.count(digest) > 0, kRankTree});
  }
  auto blobs = root.List(kBlobFiles);
  if (blobs.ok()) {
    for (const os::DirEntry& entry : *blobs) {
      const std::string path = fmt::format("{}/{}", kBlobFiles, entry.name);
      auto stat = root.Stat(path);
      if (!stat.ok() || entry.name.front() == '.') continue;
      out.push_back({path, stat->st_blocks * int64_t{512}, ModifiedAt(*stat), false, kRankBlob});
    }
  }
  MutexLock lock(&mu_);
  bool busy = false;
  for (const auto& [digest, image] : images_) busy |= image == nullptr;
  for (CacheEntry& entry : out) {
    if (entry.rank == kRankBlob) {
      entry.pinned = busy;  // whoever pulls just now may count on any of them
      continue;
    }
    auto held = images_.find(entry.key);
    if (held != images_.end()) {
      entry.pinned |= held->second == nullptr || held->second.use_count() > 1;
    }
    if (auto it = used_.find(entry.key); it != used_.end()) {
      entry.last_used = std::max(entry.last_used, it->second);
    }
  }
  return out;
}

StatusOr<int64_t> ImageStore::Evict(const std::set<std::string>& pinned,
                                    const CacheBudget& budget) {
  ASSIGN_OR_RETURN(std::vector<CacheEntry> entries, Entries(pinned));
  std::map<std::string, int64_t> sizes;
  int64_t total = 0;
  for (const CacheEntry& entry : entries) {
    sizes[entry.key] = entry.bytes;
    total += entry.bytes;
  }
  int64_t freed = 0;
  Status first;
  for (const std::string& key : PlanEviction(std::move(entries), clock_->WallNow(), budget)) {
    Status status = IsSha256Digest(key) ? EvictTree(key) : dirs_->root().Unlink(key);
    if (status.ok()) {
      freed += sizes[key];
    } else if (first.ok()) {
      first = std::move(status);
    }
  }
  ASSIGN_OR_RETURN(os::DirFd trees, dirs_->root().OpenDir(kRootfs));
  Status swept = os::SweepRetired(trees);
  {
    MutexLock lock(&mu_);
    bytes_ = total - freed;
  }
  if (first.ok()) first = std::move(swept);
  if (!first.ok()) return first;
  return freed;
}

// The digest's flight is taken, so that nobody gets the image meanwhile.
Status ImageStore::EvictTree(const std::string& digest) {
  {
    MutexLock lock(&mu_);
    auto it = images_.find(digest);
    if (it != images_.end() && (it->second == nullptr || it->second.use_count() > 1)) {
      return Error(Code::kFailedPrecondition, "INTERNAL", "the image is in use");
    }
    images_[digest] = nullptr;
    used_.erase(digest);
    unflushed_.erase(digest);
  }
  auto trees = dirs_->root().OpenDir(kRootfs);
  Status status = trees.status();
  if (status.ok()) status = os::Retire(*trees, HexOf(digest), clock_->WallNow());
  MutexLock lock(&mu_);
  images_.erase(digest);
  done_.SignalAll();
  return status;
}

StatusOr<std::shared_ptr<const Image>> ImageStore::Load(const std::string& digest) const {
  std::string path = fmt::format("{}/{}", kRootfs, HexOf(digest));
  ASSIGN_OR_RETURN(os::DirFd dir, dirs_->root().OpenDir(path));
  ASSIGN_OR_RETURN(Marker marker, ReadMarker(HexOf(digest)));
  if (!marker.synced && marker.boot_id != boot_id_) {
    return Error(Code::kNotFound, "INTERNAL", "the tree was not flushed before the last reboot");
  }
  auto image = std::make_shared<Image>();
  image->digest = digest;
  image->rootfs_path = fmt::format("{}/{}/rootfs", dirs_->path(), path);
  ASSIGN_OR_RETURN(image->config, dir.ReadFile("config.json", kBlobBytesMax));
  ASSIGN_OR_RETURN(os::DirFd rootfs, dir.OpenDir("rootfs"));
  // Only needed where the image names a user; a huge or strange file then means: unknown user.
  image->passwd = rootfs.ReadFileInRoot("etc/passwd", kBlobBytesMax).value_or("");
  image->group = rootfs.ReadFileInRoot("etc/group", kBlobBytesMax).value_or("");
  return std::shared_ptr<const Image>(std::move(image));
}

Status ImageStore::Pull(const std::string& reference, const torpor::v1::ActorIdentity& actor,
                        MonotonicTime deadline) const {
  torpor::v1::PullImageRequest request;
  Duration left = std::max(Duration(0), deadline - clock_->Now());
  request.mutable_op()->set_op_id(ids_->NewUuid());
  request.mutable_op()->set_actor_uid(actor.uid());
  request.mutable_op()->set_traceparent(LogTrace::Current());
  *request.mutable_op()->mutable_timeout() = ToProto(left);
  *request.mutable_actor() = actor;
  request.set_reference(reference);
  request.set_architecture(Architecture());
  ASSIGN_OR_RETURN(torpor::v1::Operation operation,
                   CallUntilKnown(
                       request.op(), deadline, clock_,
                       [&](Duration timeout) { return mover_->PullImage(request, timeout); },
                       [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
                         return mover_->GetOperation(get, timeout);
                       },
                       unreachable_max_));
  return OutcomeStatus(operation);
}

Status ImageStore::Unpack(const std::string& digest, MonotonicTime deadline) {
  const os::DirFd& root = dirs_->root();
  ASSIGN_OR_RETURN(std::string config, ReadConfig(root, digest));
  const std::string work = "images/tmp/" + ids_->NewUuid();
  RETURN_IF_ERROR(root.MkdirExclusive(work, 0755));
  auto build = [&]() -> Status {
    RETURN_IF_ERROR(unpacker_(fmt::format("{}/{}", dirs_->path(), kBlobs), digest,
                              fmt::format("{}/{}/rootfs", dirs_->path(), work), deadline));
    RETURN_IF_ERROR(root.WriteFile(work + "/config.json", config, 0444));
    ASSIGN_OR_RETURN(os::TreeUsage usage, os::MeasureTree(root, work));
    ASSIGN_OR_RETURN(os::DirFd all, root.OpenDir(kRootfs));
    RETURN_IF_ERROR(os::Retire(all, HexOf(digest), clock_->WallNow()));  // debris of a crash
    RETURN_IF_ERROR(root.RenameNoReplace(work, fmt::format("{}/{}", kRootfs, HexOf(digest))));
    return WriteMarker(digest, {boot_id_, false, usage.bytes});
  };
  Status status = build();
  if (!status.ok()) {
    ASSIGN_OR_RETURN(os::DirFd tmp, root.OpenDir("images/tmp"));
    (void)os::Retire(tmp, work.substr(sizeof "images/tmp/" - 1), clock_->WallNow()).ok();
    return status;
  }
  MutexLock lock(&mu_);
  unflushed_.insert(digest);
  return status;
}

}  // namespace torpor::agent
