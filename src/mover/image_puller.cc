#include "mover/image_puller.h"

#include <fcntl.h>
#include <signal.h>

#include "base/log.h"
#include "base/uuid.h"
#include "model/reasons.h"
#include "mover/oci_layout.h"
#include "os/fs/remove.h"
#include "os/process/process.h"

namespace torpor::mover {
namespace {

constexpr char kBlobs[] = "images/blobs";
constexpr char kScratchPrefix[] = ".pull-";
constexpr char kErrorsName[] = "stderr";
constexpr auto kPollEvery = std::chrono::milliseconds(100);
constexpr size_t kMessageBytesMax = 600;

std::string MachineArchitecture() {
#if defined(__x86_64__)
  return "amd64";
#elif defined(__aarch64__)
  return "arm64";
#else
#error "name this architecture as OCI images do"
#endif
}

bool Has(const std::string& text, std::initializer_list<const char*> any) {
  return std::any_of(any.begin(), any.end(),
                     [&](const char* piece) { return text.find(piece) != std::string::npos; });
}

// The last line that skopeo wrote, without its log decoration.
std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t newline = text.rfind('\n');
  if (newline != std::string::npos) text = text.substr(newline + 1);
  size_t message = text.find("msg=");
  if (message != std::string::npos) text = text.substr(message + 4);
  return Redact(text.substr(0, kMessageBytesMax));
}

int64_t BytesIn(const os::DirFd& directory) {
  int64_t bytes = 0;
  auto entries = directory.List();
  if (!entries.ok()) return 0;
  for (const os::DirEntry& entry : *entries) {
    auto stat = directory.Stat(entry.name);
    if (entry.is_regular && stat.ok()) bytes += stat->st_size;
  }
  return bytes;
}

}  // namespace

Status SkopeoStatus(const std::string& image, const std::string& message) {
  const ErrorMetadata metadata = {{"image", image}};
  if (Has(message, {"no space left on device", "disk quota exceeded"})) {
    return Fail(reasons::kDiskFull,
                fmt::format("no space for image {}; free space on the node's disk", image),
                metadata);
  }
  if (Has(message, {"manifest unknown", "name unknown", "NAME_UNKNOWN", "repository name not known",
                    "404"})) {
    return Error(Code::kNotFound, reasons::kInvalidContainerConfig.name,
                 fmt::format("the registry has no image {}; check name and digest", image),
                 metadata);
  }
  if (Has(message, {"unauthorized", "authentication required", "denied", "401", "403"})) {
    return Fail(reasons::kNotAllowed,
                fmt::format("the registry refuses image {}: it does not exist or needs a login; "
                            "give the mover --registry-auth-file ({})",
                            image, message),
                metadata);
  }
  if (Has(message, {"no image found in manifest list", "no image found in image index"})) {
    return Fail(reasons::kInvalidContainerConfig,
                fmt::format("image {} has no variant for this machine's architecture", image),
                metadata);
  }
  if (Has(message, {"server gave HTTP response to HTTPS client"})) {
    return Fail(reasons::kImageRegistryUnavailable,
                fmt::format("the registry of {} speaks no TLS; name it in --insecure-registries of "
                            "the mover if that is meant",
                            image),
                metadata);
  }
  return Fail(reasons::kImageRegistryUnavailable,
              fmt::format("pull of {} failed and may be tried again: {}", image, message),
              metadata);
}

Status ImagePuller::Pull(const std::string& reference, const std::string& architecture,
                         snapshot::Transfer* transfer) {
  ASSIGN_OR_RETURN(ImageReference image, ParseImageReference(reference));
  const std::string arch = architecture.empty() ? MachineArchitecture() : architecture;
  ASSIGN_OR_RETURN(os::DirFd blobs, OpenBlobs());
  {
    MutexLock lock(&mu_);
    auto named = FindNamed(blobs, image.digest);
    if (named.ok()) {
      auto parts = ReadImage(blobs, named->digest, arch);
      if (parts.ok() && IsComplete(blobs, *parts)) return OkStatus();
    }
  }
  os::DirFd layout;
  if (!FindInLayouts(image.digest, &layout)) {
    return PullFromRegistry(image, arch, blobs, transfer);
  }
  ASSIGN_OR_RETURN(ImageParts parts, ReadImage(layout, image.digest, arch));
  RETURN_IF_ERROR(CopyImage(layout, parts, blobs, transfer));
  MutexLock lock(&mu_);
  return NameImage(blobs, parts.manifest, image.digest);
}

StatusOr<os::DirFd> ImagePuller::OpenBlobs() {
  ASSIGN_OR_RETURN(os::DirFd node, os::DirFd::OpenPath(options_.node_dir));
  ASSIGN_OR_RETURN(os::DirFd blobs, node.OpenDir(kBlobs));
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(InitLayout(blobs));
  if (swept_) return blobs;
  // What a mover that died left; there is only one mover for a node directory.
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, blobs.List());
  for (const os::DirEntry& entry : entries) {
    if (entry.name.rfind(kScratchPrefix, 0) == 0) {
      RETURN_IF_ERROR(os::RemoveTree(blobs, entry.name));
    }
  }
  ASSIGN_OR_RETURN(entries, blobs.List("blobs/sha256"));
  for (const os::DirEntry& entry : entries) {
    if (entry.name.front() == '.') RETURN_IF_ERROR(blobs.Unlink("blobs/sha256/" + entry.name));
  }
  swept_ = true;
  return blobs;
}

bool ImagePuller::FindInLayouts(const std::string& digest, os::DirFd* layout) const {
  if (options_.layout_dir.empty()) return false;
  auto layouts = os::DirFd::OpenPath(options_.layout_dir);
  if (!layouts.ok()) return false;
  auto entries = layouts->List();
  if (!entries.ok()) return false;
  for (const os::DirEntry& entry : *entries) {
    if (!entry.is_directory) continue;
    auto child = layouts->OpenDir(entry.name);
    if (!child.ok() || !HasBlob(*child, digest)) continue;
    *layout = std::move(*child);
    return true;
  }
  return false;
}

Status ImagePuller::PullFromRegistry(const ImageReference& image, const std::string& architecture,
                                     const os::DirFd& blobs, snapshot::Transfer* transfer) {
  RETURN_IF_ERROR(CheckRegistry(image.registry, options_.registries, options_.resolver));
  const std::string name = kScratchPrefix + RandomHex(8);
  RETURN_IF_ERROR(blobs.MkdirExclusive(name, 0700));
  Status status;
  {
    auto scratch = blobs.OpenDir(name);
    status = scratch.status();
    if (status.ok()) {
      const std::string path = fmt::format("{}/{}/{}", options_.node_dir, kBlobs, name);
      status = RunSkopeo(image, architecture, *scratch, path, transfer);
    }
    if (status.ok()) {
      auto manifest = FindNamed(*scratch, "");
      status = manifest.status();
      MutexLock lock(&mu_);
      if (status.ok()) status = NameImage(blobs, *manifest, image.digest);
    }
  }
  Status removed = os::RemoveTree(blobs, name);
  if (!removed.ok()) LogWarning("scratch of a pull stays", {{"error", removed.ToString()}});
  return status;
}

Status ImagePuller::RunSkopeo(const ImageReference& image, const std::string& architecture,
                              const os::DirFd& scratch, const std::string& scratch_path,
                              snapshot::Transfer* transfer) const {
  std::vector<std::string> argv = {options_.skopeo,
                                   "--insecure-policy",  // the digest decides, not a signature
                                   "--override-os",
                                   "linux",
                                   "--override-arch",
                                   architecture,
                                   "--tmpdir",
                                   scratch_path,
                                   "copy",
                                   "--retry-times",
                                   "2",
                                   "--dest-shared-blob-dir",
                                   fmt::format("{}/{}/blobs", options_.node_dir, kBlobs)};
  if (options_.auth_file.empty()) {
    argv.push_back("--src-no-creds");
  } else {
    argv.insert(argv.end(), {"--src-authfile", options_.auth_file});
  }
  if (IsInsecure(image.registry, options_.registries)) argv.push_back("--src-tls-verify=false");
  argv.push_back("docker://" + image.ToString());
  argv.push_back(fmt::format("oci:{}:image", scratch_path));

  ASSIGN_OR_RETURN(UniqueFd errors,
                   scratch.OpenRegular(kErrorsName, O_RDWR | O_CREAT | O_EXCL, 0600));
  os::SpawnOptions spawn;
  spawn.stderr_fd = errors.get();
  spawn.env = {"HOME=" + scratch_path, "TMPDIR=" + scratch_path};
  ASSIGN_OR_RETURN(os::Process process, os::Spawn(argv, spawn));
  int64_t seen = 0;
  for (;;) {
    auto exit = process.Wait(std::chrono::steady_clock::now() + kPollEvery);
    // Files are renamed away when they are complete, so only growth counts.
    const int64_t bytes = BytesIn(scratch);
    if (bytes > seen) transfer->Advance(bytes - seen);
    seen = bytes;
    if (exit.ok() && exit->ok()) return OkStatus();
    if (exit.ok()) break;
    Status go_on =
        exit.status().code() == Code::kDeadlineExceeded ? transfer->Check() : exit.status();
    if (go_on.ok()) continue;
    process.SignalGroup(SIGKILL).IgnoreError();
    process.Wait(std::chrono::steady_clock::now() + std::chrono::seconds(10)).IgnoreError();
    return go_on;
  }
  auto text = scratch.ReadFile(kErrorsName, 1 << 20);
  return SkopeoStatus(image.ToString(), text.ok() ? LastLine(*text) : "no message");
}

}  // namespace torpor::mover
