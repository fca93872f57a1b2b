#include "objstore/file/file_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/uuid.h"
#include "model/reasons.h"
#include "objstore/rules.h"

namespace torpor::objstore {
namespace {

constexpr char kTempName[] = ".tmp";
constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 02770;
constexpr size_t kReadBytes = 1 << 20;
// Another process may remove a directory between its creation and the rename into it.
constexpr int kCommitTriesMax = 16;

// The one place where errors of the disk become errors of a store.
Status StoreStatus(const Status& status, const std::string& key) {
  switch (status.code()) {
    case Code::kOk:
    case Code::kResourceExhausted:
    case Code::kFailedPrecondition:
      return status;
    case Code::kNotFound:
      return NoSuchObject(key);
    case Code::kAlreadyExists:
      return ObjectExists(key);
    case Code::kInvalidArgument:  // a link or a path that leaves the root
    case Code::kPermissionDenied:
      return Fail(reasons::kStoreDenied, fmt::format("{}; check the owner of the store's directory",
                                                     std::string(status.message())));
    default:
      return Fail(reasons::kObjectStorageUnavailable, std::string(status.message()));
  }
}

Status WriteAt(int fd, std::string_view bytes, int64_t offset) {
  while (!bytes.empty()) {
    ssize_t n = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
  return OkStatus();
}

std::string ParentOf(const std::string& key) {
  size_t slash = key.rfind('/');
  return slash == std::string::npos ? "" : key.substr(0, slash);
}

std::string BaseOf(const std::string& key) { return key.substr(key.rfind('/') + 1); }

}  // namespace

// A file in .tmp that disappears unless it was committed.
class FileStore::TempFile {
 public:
  explicit TempFile(const os::DirFd* temp) : temp_(temp), name_(RandomHex(16)) {}
  ~TempFile() { Remove(); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  Status Create() {
    ASSIGN_OR_RETURN(fd_, temp_->OpenRegular(name_, O_RDWR | O_CREAT | O_EXCL, kFileMode));
    return os::SetOwnerAndMode(fd_.get(), {}, kFileMode);
  }
  void Remove() {
    if (fd_.valid()) unlinkat(temp_->fd(), name_.c_str(), 0);
    fd_.Reset();
  }
  // The name in .tmp is gone: somebody renamed it.
  void Committed() { fd_.Reset(); }
  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }

 private:
  const os::DirFd* const temp_;
  const std::string name_;
  UniqueFd fd_;
};

class FileStore::Upload : public MultipartUpload {
 public:
  Upload(const FileStore* store, std::string key, int64_t part_bytes)
      : store_(store), key_(std::move(key)), file_(&store->temp_), ledger_(part_bytes) {}

  Status Create() { return StoreStatus(file_.Create(), key_); }

  Status PutPart(int number, std::string_view bytes) override {
    ASSIGN_OR_RETURN(int64_t offset, ledger_.Offset(number, bytes.size()));
    RETURN_IF_ERROR(StoreStatus(WriteAt(file_.fd(), bytes, offset), key_));
    // The disk starts now, so that the flush at the end finds little left to do.
    sync_file_range(file_.fd(), offset, static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
    ledger_.Arrived(number, bytes.size());
    return OkStatus();
  }

  Status Complete() override {
    ASSIGN_OR_RETURN(int64_t total, ledger_.Total());
    if (ftruncate(file_.fd(), total) != 0) return StoreStatus(ErrnoStatus(errno, "truncate"), key_);
    return store_->Commit(&file_, key_, {});
  }

  void Abort() override {
    ledger_.Close();
    file_.Remove();
  }

 private:
  const FileStore* const store_;
  const std::string key_;
  TempFile file_;
  PartLedger ledger_;
};

StatusOr<std::unique_ptr<FileStore>> FileStore::Open(const std::string& root) {
  if (root.empty() || root.front() != '/') {
    return Fail(reasons::kFieldInvalid, "the root of file:// storage must be an absolute path");
  }
  ASSIGN_OR_RETURN(os::DirFd directory, os::DirFd::OpenPath(root));
  Status made = directory.MkdirExclusive(kTempName, kDirectoryMode);
  if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
  ASSIGN_OR_RETURN(os::DirFd temp, directory.OpenDir(kTempName));
  return std::unique_ptr<FileStore>(new FileStore(std::move(directory), std::move(temp)));
}

StatusOr<UniqueFd> FileStore::OpenObject(const std::string& key, int64_t* bytes) const {
  RETURN_IF_ERROR(CheckKey(key));
  auto fd = root_.Open(key, O_RDONLY);
  if (!fd.ok()) return StoreStatus(fd.status(), key);
  struct stat st;
  if (fstat(fd->get(), &st) != 0) return StoreStatus(ErrnoStatus(errno, "stat"), key);
  if (S_ISDIR(st.st_mode)) return NoSuchObject(key);
  if (!S_ISREG(st.st_mode)) {
    return Fail(reasons::kStoreDenied, fmt::format("{} in the store is not a regular file", key));
  }
  *bytes = st.st_size;
  return fd;
}

StatusOr<ObjectInfo> FileStore::Head(const std::string& key) {
  int64_t bytes = 0;
  RETURN_IF_ERROR(OpenObject(key, &bytes).status());
  return ObjectInfo{key, bytes};
}

StatusOr<ObjectInfo> FileStore::Get(const std::string& key, ByteRange range, const Sink& sink) {
  int64_t total = 0;
  ASSIGN_OR_RETURN(UniqueFd fd, OpenObject(key, &total));
  ASSIGN_OR_RETURN(ByteRange cut, CutRange(key, range, total));
  std::string buffer(static_cast<size_t>(std::min<int64_t>(cut.length, kReadBytes)), '\0');
  int64_t offset = cut.offset;
  const int64_t end = cut.offset + cut.length;
  while (offset < end) {
    size_t want = static_cast<size_t>(std::min<int64_t>(end - offset, kReadBytes));
    ssize_t n = pread(fd.get(), buffer.data(), want, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return StoreStatus(ErrnoStatus(errno, fmt::format("read {}", key)), key);
    if (n == 0) {
      return Error(
          Code::kDataLoss, "SNAPSHOT_CORRUPT",
          fmt::format("{} was cut at {} of {} bytes while it was read", key, offset, total));
    }
    RETURN_IF_ERROR(sink(std::string_view(buffer.data(), static_cast<size_t>(n))));
    offset += n;
  }
  return ObjectInfo{key, total};
}

Status FileStore::Put(const std::string& key, std::string_view bytes, const PutOptions& options) {
  RETURN_IF_ERROR(CheckKey(key));
  TempFile file(&temp_);
  RETURN_IF_ERROR(StoreStatus(file.Create(), key));
  RETURN_IF_ERROR(StoreStatus(WriteAt(file.fd(), bytes, 0), key));
  return Commit(&file, key, options);
}

StatusOr<std::unique_ptr<MultipartUpload>> FileStore::Begin(const std::string& key,
                                                            int64_t part_bytes) {
  RETURN_IF_ERROR(CheckKey(key));
  RETURN_IF_ERROR(CheckPartBytes(part_bytes));
  auto upload = std::make_unique<Upload>(this, key, part_bytes);
  RETURN_IF_ERROR(upload->Create());
  return std::unique_ptr<MultipartUpload>(std::move(upload));
}

StatusOr<os::DirFd> FileStore::MakeParent(const std::string& key,
                                          std::vector<os::DirFd>* above) const {
  const std::string parent = ParentOf(key);
  above->clear();
  os::DirFd at;
  ASSIGN_OR_RETURN(at, root_.OpenDir("."));
  for (size_t begin = 0; begin < parent.size();) {
    size_t end = std::min(parent.find('/', begin), parent.size());
    const std::string name = parent.substr(begin, end - begin);
    Status made = at.MkdirExclusive(name, kDirectoryMode);
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    ASSIGN_OR_RETURN(os::DirFd next, at.OpenDir(name));
    above->push_back(std::move(at));
    at = std::move(next);
    begin = end + 1;
  }
  return at;
}

Status FileStore::Commit(TempFile* file, const std::string& key, const PutOptions& options) const {
  if (fsync(file->fd()) != 0) return StoreStatus(ErrnoStatus(errno, "fsync"), key);
  std::vector<os::DirFd> directories;
  for (int tries = 1;; ++tries) {
    MutexLock lock(&tree_mu_);
    auto parent = MakeParent(key, &directories);
    Status status = parent.status();
    if (status.ok()) {
      const unsigned flags = options.if_absent ? RENAME_NOREPLACE : 0;
      const std::string base = BaseOf(key);
      if (renameat2(temp_.fd(), file->name().c_str(), parent->fd(), base.c_str(), flags) == 0) {
        file->Committed();
        directories.push_back(std::move(*parent));
        break;
      }
      status = ErrnoStatus(errno, fmt::format("rename to {}", key));
    }
    if (status.code() != Code::kNotFound || tries == kCommitTriesMax) {
      return StoreStatus(status, key);
    }
  }
  // A directory whose entry is lost in a power cut would take the object with it. That includes
  // directories that were there already: whoever made them may have failed to flush them.
  for (const os::DirFd& directory : directories) {
    if (fsync(directory.fd()) != 0) return StoreStatus(ErrnoStatus(errno, "fsync"), key);
  }
  return OkStatus();
}

StatusOr<ListPage> FileStore::List(const std::string& prefix, const std::string& token) {
  RETURN_IF_ERROR(CheckListArguments(prefix, token));
  ListPage page;
  RETURN_IF_ERROR(StoreStatus(ListDirectory(prefix, token, &page), prefix));
  if (page.objects.size() > kListMax) {
    page.objects.resize(kListMax);
    page.next_token = page.objects.back().key;
  }
  return page;
}

// Walks in the order of keys, until the page has one object more than fits.
Status FileStore::ListDirectory(const std::string& directory, const std::string& token,
                                ListPage* page) const {
  auto entries = root_.List(directory.empty() ? "." : directory);
  // Gone meanwhile, or the prefix is an object: no object has a key below it.
  if (!entries.ok() && (entries.status().code() == Code::kNotFound || root_.Exists(directory))) {
    return entries.status().code() == Code::kPermissionDenied ? entries.status() : OkStatus();
  }
  RETURN_IF_ERROR(entries.status());
  auto in_key_order = [](const os::DirEntry& e) { return e.is_directory ? e.name + "/" : e.name; };
  std::sort(entries->begin(), entries->end(), [&](const os::DirEntry& a, const os::DirEntry& b) {
    return in_key_order(a) < in_key_order(b);
  });
  for (const os::DirEntry& entry : *entries) {
    if (page->objects.size() > kListMax) return OkStatus();
    const std::string key = directory.empty() ? entry.name : directory + "/" + entry.name;
    if (!IsObjectKey(key)) continue;
    if (entry.is_directory) {
      const std::string below = key + "/";
      if (below < token && token.compare(0, below.size(), below) != 0) continue;
      RETURN_IF_ERROR(ListDirectory(key, token, page));
    } else if (entry.is_regular && key > token) {
      auto stat = root_.Stat(key);
      if (stat.ok()) page->objects.push_back({key, stat->st_size});
    }
  }
  return OkStatus();
}

Status FileStore::Delete(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(key));
  auto stat = root_.Stat(key);
  if (stat.ok() && S_ISDIR(stat->st_mode)) return OkStatus();  // no object has this key
  Status status = root_.Unlink(key);
  if (!status.ok() && status.code() != Code::kNotFound) return StoreStatus(status, key);
  // Empty directories go too; one that is in use again stays.
  MutexLock lock(&tree_mu_);
  for (std::string parent = ParentOf(key); !parent.empty(); parent = ParentOf(parent)) {
    if (!root_.Rmdir(parent).ok()) break;
  }
  return OkStatus();
}

Status FileStore::AbortUploads(const std::string&, WallTime before) {
  auto entries = temp_.List();
  if (!entries.ok()) return StoreStatus(entries.status(), kTempName);
  const time_t limit = std::chrono::system_clock::to_time_t(before);
  for (const os::DirEntry& entry : *entries) {
    auto stat = temp_.Stat(entry.name);
    if (stat.ok() && stat->st_mtime < limit) unlinkat(temp_.fd(), entry.name.c_str(), 0);
  }
  return OkStatus();
}

Status FileStore::Copy(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckKey(to));
  int64_t bytes = 0;
  ASSIGN_OR_RETURN(UniqueFd source, OpenObject(from, &bytes));
  TempFile file(&temp_);
  RETURN_IF_ERROR(StoreStatus(file.Create(), to));
  for (int64_t left = bytes; left > 0;) {
    ssize_t n =
        copy_file_range(source.get(), nullptr, file.fd(), nullptr, static_cast<size_t>(left), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return StoreStatus(ErrnoStatus(errno, fmt::format("copy {}", from)), from);
    if (n == 0) {
      return Fail(reasons::kSnapshotCorrupt, fmt::format("{} was cut while it was copied", from));
    }
    left -= n;
  }
  return Commit(&file, to, {});
}

}  // namespace torpor::objstore
