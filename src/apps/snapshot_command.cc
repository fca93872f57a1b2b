// torpor snapshot inspect | verify | cat: looks into durable snapshots without any role.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "apps/commands.h"
#include "base/quantity.h"
#include "base/unique_fd.h"
#include "objstore/uri.h"
#include "os/fs/dir_fd.h"
#include "snapshot/format/manifest.h"
#include "snapshot/load/object_walk.h"

namespace torpor {
namespace {

constexpr char kUsage[] =
    "usage: torpor snapshot inspect PATH   what a snapshot or an object holds\n"
    "       torpor snapshot verify PATH    reads and checks every byte\n"
    "       torpor snapshot verify --all DIRECTORY   the same for every snapshot below, a line for "
    "each\n"
    "       torpor snapshot cat FILE.tsz   the file, holes as zeros, to standard output\n"
    "PATH is the directory of a snapshot, its manifest.json, an object FILE.tsz, or the file://\n"
    "address of one of these. Exit code: 0 right, 1 damaged or unreadable, 2 wrong usage\n";

// A path of this machine, also when it is written as an address.
StatusOr<std::string> LocalPath(const std::string& path) {
  if (path.find("://") == std::string::npos) return path;
  ASSIGN_OR_RETURN(objstore::Uri uri, objstore::ParseUri(path));
  if (uri.scheme == "file") return "/" + uri.path;
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               "only paths and file:// addresses are read here");
}

StatusOr<snapshot::OpenObject> OpenFile(const std::string& path, const std::string& index_sha256,
                                        int64_t logical_bytes) {
  auto fd = std::make_shared<UniqueFd>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st;
  if (!fd->valid() || fstat(fd->get(), &st) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(st.st_mode))
    return Error(Code::kInvalidArgument, "FIELD_INVALID", path + " is no file");
  auto read = [fd](int64_t offset, int64_t length, char* out) -> Status {
    while (length > 0) {
      const ssize_t n = pread(fd->get(), out, static_cast<size_t>(length), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read");
      if (n == 0) return snapshot::TszCorrupt(offset, "the object is cut");
      out += n;
      offset += n;
      length -= n;
    }
    return OkStatus();
  };
  auto object = snapshot::OpenTsz(read, st.st_size, index_sha256, logical_bytes);
  return object.ok() ? std::move(object) : Annotate(object.status(), path);
}

// Reads all of it.
Status CheckBlocks(const snapshot::OpenObject& object) {
  return snapshot::WalkBlocks(
      object, [](const snapshot::TszBlock&, std::string_view) { return OkStatus(); });
}

struct Totals {
  int64_t file = 0;
  int64_t populated = 0;
  int64_t object = 0;
};

void Row(std::string_view name, const Totals& t, std::string_view rest) {
  const double ratio =
      t.object > 0 ? static_cast<double>(t.populated) / static_cast<double>(t.object) : 0;
  printf("%s\n", fmt::format("{:<28} {:>9} {:>9} {:>9} {:>5.1f}  {}", name, FormatBytes(t.file),
                             FormatBytes(t.populated), FormatBytes(t.object), ratio, rest)
                     .c_str());
}

void Head() {
  printf("%s\n", fmt::format("{:<28} {:>9} {:>9} {:>9} {:>5}  {}", "FILE", "SIZE", "POPULATED",
                             "OBJECT", "RATIO", "OBJECT HOLDS")
                     .c_str());
}

// One object: a row, after reading all of it when asked.
Status Look(const std::string& name, const std::string& path, const std::string& index_sha256,
            int64_t logical_bytes, bool verify, Totals* sum) {
  ASSIGN_OR_RETURN(snapshot::OpenObject object, OpenFile(path, index_sha256, logical_bytes));
  if (verify) RETURN_IF_ERROR(Annotate(CheckBlocks(object), path));
  const Totals t{object.index.logical_bytes, object.index.populated_bytes, object.object_bytes};
  Row(name, t,
      fmt::format("{} blocks, {} extents, index {} bytes {:.12}{}", object.index.blocks.size(),
                  object.index.extents.size(), object.footer.index_bytes, object.index_sha256,
                  verify ? ", verified" : ""));
  sum->file += t.file;
  sum->populated += t.populated;
  sum->object += t.object;
  return OkStatus();
}

StatusOr<snapshot::Manifest> ReadManifestOf(const std::string& directory) {
  ASSIGN_OR_RETURN(os::DirFd dir, os::DirFd::OpenPath(directory));
  ASSIGN_OR_RETURN(std::string text,
                   dir.ReadFile(snapshot::kManifestName, snapshot::kManifestBytesMax));
  return snapshot::ParseManifest(text);
}

Status LookAtSnapshot(const std::string& directory, bool verify) {
  ASSIGN_OR_RETURN(snapshot::Manifest manifest, ReadManifestOf(directory));
  const auto& meta = manifest.meta;
  printf("actor %s/%s %s, generation %lld, %s, %s %s\n", manifest.actor.atespace().c_str(),
         manifest.actor.name().c_str(), manifest.actor.uid().c_str(),
         static_cast<long long>(meta.generation()),
         torpor::v1::Fidelity_Name(meta.fidelity()).c_str(), meta.runtime().c_str(),
         meta.runtime_version().c_str());
  Head();
  Totals sum;
  Status first;
  for (const snapshot::ManifestFile& file : manifest.files) {
    Status status = Error(Code::kFailedPrecondition, "GENERATION_NOT_DURABLE",
                          "a local generation has no objects");
    if (file.object.has_value()) {
      status = Look(file.file.name(), directory + "/" + file.object->name,
                    file.object->index_sha256, file.file.logical_bytes(), verify, &sum);
    }
    if (!status.ok()) {
      fprintf(stderr, "error: %s: %s\n", file.file.name().c_str(),
              std::string(status.message()).c_str());
      if (first.ok()) first = status;
    }
  }
  Row("all", sum, "");
  return first;
}

// Every byte of one snapshot; `about` says what it is as far as that is known.
Status VerifyOne(const std::string& directory, std::string* about) {
  ASSIGN_OR_RETURN(snapshot::Manifest manifest, ReadManifestOf(directory));
  *about = fmt::format("actor {}/{} generation {}", manifest.actor.atespace(),
                       manifest.actor.name(), manifest.meta.generation());
  int64_t bytes = 0;
  for (const snapshot::ManifestFile& file : manifest.files) {
    if (!file.object.has_value()) {
      return Error(Code::kFailedPrecondition, "GENERATION_NOT_DURABLE",
                   file.file.name() + " has no object");
    }
    ASSIGN_OR_RETURN(snapshot::OpenObject object,
                     OpenFile(directory + "/" + file.object->name, file.object->index_sha256,
                              file.file.logical_bytes()));
    RETURN_IF_ERROR(Annotate(CheckBlocks(object), file.object->name));
    bytes += object.object_bytes;
  }
  *about += fmt::format(", {} files, {}", manifest.files.size(), FormatBytes(bytes));
  return OkStatus();
}

Status VerifyAll(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> directories;
  fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(root, error); !error && it != end; it.increment(error)) {
    if (it->path().filename() == snapshot::kManifestName && it->is_regular_file(error)) {
      directories.push_back(it->path().parent_path());
    }
  }
  if (error) return ErrnoStatus(error.value(), root);
  std::sort(directories.begin(), directories.end());
  size_t bad = 0;
  for (const std::string& directory : directories) {
    std::string about = "no actor is known";
    Status status = VerifyOne(directory, &about);
    if (!status.ok()) {
      ++bad;
      about += ": " + std::string(status.message());
    }
    printf("%-8s %s  %s\n", status.ok() ? "ok" : "DAMAGED", directory.c_str(), about.c_str());
  }
  printf("%zu snapshots, %zu damaged\n", directories.size(), bad);
  if (directories.empty())
    return Error(Code::kNotFound, "NOT_FOUND", "no snapshot is below " + root);
  return bad == 0 ? OkStatus()
                  : Error(Code::kDataLoss, "SNAPSHOT_CORRUPT", "not all of them can be restored");
}

Status LookAt(const std::string& path, bool verify) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, path);
  if (S_ISDIR(st.st_mode)) return LookAtSnapshot(path, verify);
  const size_t slash = path.rfind('/');
  if (path.substr(slash + 1) == snapshot::kManifestName) {
    return LookAtSnapshot(slash == std::string::npos ? "." : path.substr(0, slash + 1), verify);
  }
  Head();
  Totals sum;
  return Look(path.substr(slash + 1), path, "", snapshot::kTszAnySize, verify, &sum);
}

int Exit(const Status& status) {
  if (status.ok()) return 0;
  fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}

Status Cat(const std::string& path) {
  ASSIGN_OR_RETURN(snapshot::OpenObject object, OpenFile(path, "", snapshot::kTszAnySize));
  return snapshot::WriteFileOf(
      object, [](std::string_view piece) { return os::WriteAll(STDOUT_FILENO, piece); });
}

}  // namespace

int SnapshotCommand(const Args& args) {
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    printf("%s", kUsage);
    return 0;
  }
  if (args.size() == 3 && args[0] == "verify" && args[1] == "--all") {
    auto root = LocalPath(args[2]);
    return Exit(root.ok() ? VerifyAll(*root) : root.status());
  }
  if (args.size() != 2 || (args[0] != "inspect" && args[0] != "verify" && args[0] != "cat")) {
    fprintf(stderr, "%s", kUsage);
    return 2;
  }
  auto path = LocalPath(args[1]);
  Status status = path.status();
  if (status.ok()) {
    status = args[0] == "cat" ? Cat(*path) : LookAt(*path, args[0] == "verify");
  }
  return Exit(status);
}

}  // namespace torpor
