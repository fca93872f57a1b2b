#include "workloads/glutton/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "workloads/base/fast_random.h"
#include "workloads/base/io.h"

namespace torpor::workloads::glutton {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr uint64_t kMaxDataBytes = 1ULL << 30;  // a protobuf message has less than 2 GiB

enum class Kind { kNone, kFile, kDirectory };

Kind KindOf(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return Kind::kNone;
  return S_ISDIR(info.st_mode) ? Kind::kDirectory : Kind::kFile;
}

Status WriteRandom(const std::string& path, uint64_t size, bool keep_tail, FastRandom* random,
                   std::string* piece) {
  UniqueFd fd = OpenFile(path, O_WRONLY | O_CREAT | (keep_tail ? 0 : O_TRUNC));
  if (!fd.ok()) return Internal(ErrnoText(path));
  for (uint64_t done = 0; done < size;) {
    const size_t take = std::min<uint64_t>(kPiece, size - done);
    piece->resize(take);
    random->Fill(FillKind::kRandom, piece->data(), take);
    if (!WriteFull(fd.get(), piece->data(), take)) return Internal(ErrnoText(path));
    done += take;
  }
  return Status();
}

Status ReadFile(const std::string& path, Sha256* hash, uint64_t* size, std::string* data) {
  UniqueFd fd = OpenFile(path, O_RDONLY);
  if (!fd.ok()) return Internal(ErrnoText(path));
  std::string piece(kPiece, '\0');
  while (true) {
    const ssize_t n = ReadFull(fd.get(), piece.data(), piece.size());
    if (n < 0) return Internal(ErrnoText(path));
    if (n == 0) return Status();
    hash->Update(piece.data(), static_cast<size_t>(n));
    *size += static_cast<uint64_t>(n);
    if (data == nullptr) continue;
    if (*size > kMaxDataBytes) return Internal("too large to return; ask for the digest only");
    data->append(piece, 0, static_cast<size_t>(n));
  }
}

Status ListSorted(const std::string& path, std::vector<std::string>* names) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return Internal(ErrnoText(path));
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  ::closedir(directory);
  std::sort(names->begin(), names->end());
  return Status();
}

Status Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? Internal(path + ": " + error.message()) : Status();
}

Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return Status();
  return Internal(ErrnoText(path));
}

}  // namespace

bool IsDiskKey(const std::string& key) {
  return !key.empty() && key.size() <= 255 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

Status Disk::Open() {
  if (Status status = MakeDirectory(data_dir_); !status.ok()) return status;
  if (KindOf(data_dir_ + "/.") != Kind::kDirectory) return Internal(data_dir_ + ": no directory");
  return ::access(data_dir_.c_str(), W_OK) == 0 ? Status() : Internal(ErrnoText(data_dir_));
}

Status Disk::Write(const std::string& key, uint64_t size, uint32_t file_count, bool keep_tail,
                   DiskResult* result) {
  const std::lock_guard lock(mu_);
  const std::string path = data_dir_ + "/" + key;
  const Kind wanted = file_count > 1 ? Kind::kDirectory : Kind::kFile;
  const Kind found = KindOf(path);
  if (keep_tail && found != Kind::kNone && found != wanted) {
    return Invalid("'" + key + "' is " + (found == Kind::kFile ? "a file" : "a directory"));
  }
  // Files that an earlier, larger count left behind must not linger.
  if (!keep_tail && (found == Kind::kDirectory || (found == Kind::kFile && file_count > 1))) {
    if (Status status = Remove(path); !status.ok()) return status;
  }
  FastRandom random;
  std::string piece;
  if (file_count <= 1) {
    if (Status status = WriteRandom(path, size, keep_tail, &random, &piece); !status.ok()) {
      return status;
    }
    return ReadAll(path, result, nullptr);
  }
  if (Status status = MakeDirectory(path); !status.ok()) return status;
  for (uint32_t i = 0; i < file_count; ++i) {
    char name[16];
    std::snprintf(name, sizeof(name), "/%08u", i);
    const uint64_t share = size / file_count + (i < size % file_count ? 1 : 0);
    const Status status = WriteRandom(path + name, share, keep_tail, &random, &piece);
    if (!status.ok()) return status;
  }
  return ReadAll(path, result, nullptr);
}

Status Disk::Read(const std::string& key, DiskResult* result, std::string* data) {
  const std::lock_guard lock(mu_);
  return ReadAll(data_dir_ + "/" + key, result, data);
}

Status Disk::ReadAll(const std::string& path, DiskResult* result, std::string* data) {
  Sha256 hash;
  result->size = 0;
  const Kind kind = KindOf(path);
  if (kind == Kind::kNone) return NotFound("no file " + path);
  if (kind == Kind::kFile) {
    if (Status status = ReadFile(path, &hash, &result->size, data); !status.ok()) return status;
  } else {
    std::vector<std::string> names;
    if (Status status = ListSorted(path, &names); !status.ok()) return status;
    for (const std::string& name : names) {
      const Status status = ReadFile(path + "/" + name, &hash, &result->size, data);
      if (!status.ok()) return status;
    }
  }
  result->sha256 = hash.Finish();
  return Status();
}

Status Disk::Ingest(const std::string& key, const std::string& payload, bool append,
                    uint64_t* size) {
  const std::lock_guard lock(mu_);
  const std::string path = data_dir_ + "/" + key;
  if (KindOf(path) == Kind::kDirectory) return Invalid("'" + key + "' is a directory");
  UniqueFd fd = OpenFile(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC));
  struct stat info{};
  if (!fd.ok() || !WriteFull(fd.get(), payload.data(), payload.size()) ||
      ::fstat(fd.get(), &info) != 0) {
    return Internal(ErrnoText(path));
  }
  *size = static_cast<uint64_t>(info.st_size);
  return Status();
}

}  // namespace torpor::workloads::glutton
