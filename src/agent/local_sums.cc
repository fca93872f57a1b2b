#include "agent/local_sums.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "agent/node_dirs.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::LocalSums;

constexpr int kFormat = 1;
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kSumsBytesMax = 4 << 20;

Status Gone(std::string_view what) {
  return Fail(
      reasons::kLocalSnapshotGone,
      fmt::format("the machine was restarted and this snapshot did not reach its disk: {}", what));
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

StatusOr<LocalSums::File> SumOf(const os::DirFd& dir, const std::string& name,
                                const std::function<bool()>& stop) {
  ASSIGN_OR_RETURN(UniqueFd fd, dir.OpenRegular(name, O_RDONLY));
  std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  std::string buffer(kPieceBytes, '\0');
  LocalSums::File out;
  out.set_name(name);
  for (;;) {
    if (stop && stop()) return Fail(reasons::kCancelled, "hashing gives way");
    ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + name);
    if (n == 0) break;
    XXH3_128bits_update(state.get(), buffer.data(), static_cast<size_t>(n));
    out.set_bytes(out.bytes() + n);
  }
  XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  out.set_xxh3_128(fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
  return out;
}

}  // namespace

StatusOr<LocalSums> ComputeSums(const os::DirFd& snapshot, const snapshot::Manifest& manifest,
                                const std::function<bool()>& stop) {
  LocalSums out;
  out.set_format(kFormat);
  ASSIGN_OR_RETURN(*out.add_files(), SumOf(snapshot, snapshot::kManifestName, stop));
  for (const snapshot::ManifestFile& file : manifest.files) {
    ASSIGN_OR_RETURN(*out.add_files(), SumOf(snapshot, file.file.name(), stop));
  }
  return out;
}

StatusOr<LocalSums> ReadSums(const os::DirFd& snapshot) {
  ASSIGN_OR_RETURN(std::string json, snapshot.ReadFile(snapshot::kSumsName, kSumsBytesMax));
  LocalSums out;
  RETURN_IF_ERROR(FromJson(json, &out));
  if (out.format() == kFormat) return out;
  return Gone("its sums are of another format");
}

Status CheckSizes(const os::DirFd& snapshot, const snapshot::Manifest& manifest,
                  const LocalSums& sums) {
  std::map<std::string, int64_t> wanted;
  for (const LocalSums::File& file : sums.files()) wanted[file.name()] = file.bytes();
  if (wanted.size() != manifest.files.size() + 1 || wanted.count(snapshot::kManifestName) == 0) {
    return Gone("its sums are of other files");
  }
  for (const snapshot::ManifestFile& file : manifest.files) {
    auto sum = wanted.find(file.file.name());
    if (sum == wanted.end() || sum->second != file.file.logical_bytes()) {
      return Gone(fmt::format("its sums do not know {}", file.file.name()));
    }
  }
  for (const auto& [name, bytes] : wanted) {
    auto stat = snapshot.Stat(name);
    if (!stat.ok() || !S_ISREG(stat->st_mode) || stat->st_size != bytes) {
      return Gone(fmt::format("{} is missing or cut", name));
    }
  }
  return OkStatus();
}

Status CheckSums(const os::DirFd& snapshot, const snapshot::Manifest& manifest,
                 const LocalSums& sums) {
  RETURN_IF_ERROR(CheckSizes(snapshot, manifest, sums));
  for (const LocalSums::File& file : sums.files()) {
    auto found = SumOf(snapshot, file.name(), nullptr);
    if (!found.ok()) return Gone(fmt::format("{} cannot be read", file.name()));
    if (found->xxh3_128() != file.xxh3_128()) {
      return Gone(fmt::format("{} has other bytes than before", file.name()));
    }
  }
  return OkStatus();
}

}  // namespace torpor::agent
