#include "bench/limits.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/time.h"
#include "base/unique_fd.h"
#include "os/process/process.h"

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBytes = size_t{256} << 20;
constexpr int64_t kFileBytes = int64_t{1} << 30;
constexpr size_t kPiece = size_t{1} << 20;
constexpr int64_t kZstdBytesMax = int64_t{512} << 20;
constexpr int kLarge = 3, kCopies = 10, kSmall = 200;

class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {
    std::error_code error;
    fs::create_directories(path_, error);
  }
  ~Directory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

Limit MakeLimit(const std::string& name, const std::string& what, int64_t bytes,
                const std::string& command) {
  Limit limit;
  limit.name = name;
  limit.what = what;
  limit.bytes = bytes;
  limit.command = command;
  return limit;
}

// Repeats `once`, which returns milliseconds.
Status TakeSamples(int times, const Stopped& stopped, Limit* limit,
                   const std::function<StatusOr<double>()>& once) {
  for (int i = 0; i < times && !stopped(); ++i) {
    ASSIGN_OR_RETURN(double ms, once());
    limit->samples.push_back(ms);
  }
  limit->ms = Summarize(limit->samples);
  return OkStatus();
}

double MsSince(MonotonicTime begin) { return ToMs(Clock::Real()->Now() - begin); }

StatusOr<UniqueFd> Open(const std::string& path, int flags) {
  UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  return fd;
}

// `durable`: up to the end of fdatasync.
StatusOr<double> WriteFile(const std::string& path, const std::string& piece, bool durable) {
  unlink(path.c_str());
  const MonotonicTime begin = Clock::Real()->Now();
  ASSIGN_OR_RETURN(UniqueFd fd, Open(path, O_WRONLY | O_CREAT));
  for (int64_t done = 0; done < kFileBytes; done += static_cast<int64_t>(piece.size())) {
    if (write(fd.get(), piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) {
      return ErrnoStatus(errno, "write " + path);
    }
  }
  if (durable && fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "fdatasync");
  return MsSince(begin);
}

StatusOr<double> ReadFile(const std::string& path, bool cold, std::string* piece) {
  ASSIGN_OR_RETURN(UniqueFd fd, Open(path, O_RDONLY));
  if (cold) {
    if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "fdatasync");
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const MonotonicTime begin = Clock::Real()->Now();
  for (ssize_t n = 1; n > 0;) {
    n = read(fd.get(), piece->data(), piece->size());
    if (n < 0) return ErrnoStatus(errno, "read " + path);
  }
  return MsSince(begin);
}

StatusOr<double> PublishFile(const Directory& dir, const std::string& piece) {
  const MonotonicTime begin = Clock::Real()->Now();
  const std::string temporary = dir.File("new"), name = dir.File("published");
  ASSIGN_OR_RETURN(UniqueFd fd, Open(temporary, O_WRONLY | O_CREAT | O_TRUNC));
  if (write(fd.get(), piece.data(), 4096) != 4096 || fsync(fd.get()) != 0 ||
      rename(temporary.c_str(), name.c_str()) != 0) {
    return ErrnoStatus(errno, "publish " + name);
  }
  ASSIGN_OR_RETURN(UniqueFd parent, Open(dir.path(), O_RDONLY | O_DIRECTORY));
  if (fsync(parent.get()) != 0) return ErrnoStatus(errno, "fsync " + dir.path());
  return MsSince(begin);
}

StatusOr<double> RunTimed(const std::vector<std::string>& command) {
  const MonotonicTime begin = Clock::Real()->Now();
  RETURN_IF_ERROR(
      os::CommandOutput(command, {.deadline = begin + std::chrono::minutes(5)}).status());
  return MsSince(begin);
}

// The first bytes of the largest file below `dir`, as a file of its own.
Status CopyLargest(const std::string& dir, const std::string& to, std::string* content) {
  fs::path largest;
  uintmax_t size = 0;
  std::error_code error;
  fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(dir, error); !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone) && it->file_size(gone) > size) {
      size = it->file_size(gone);
      largest = it->path();
    }
  }
  if (size == 0) return Error(Code::kNotFound, "INTERNAL", "no image below " + dir);
  content->resize(std::min<size_t>(size, kZstdBytesMax));
  std::ifstream in(largest, std::ios::binary);
  in.read(content->data(), static_cast<std::streamsize>(content->size()));
  std::ofstream out(to, std::ios::binary);
  out << *content;
  out.close();
  return in && out ? OkStatus() : ErrnoStatus(errno, "copy " + largest.string());
}

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

Status Execute(sqlite3* db, const std::string& sql) {
  char* message = nullptr;
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message) == SQLITE_OK) return OkStatus();
  Status status(Code::kInternal, fmt::format("sqlite: {}", message == nullptr ? "?" : message));
  sqlite3_free(message);
  return status;
}

}  // namespace

StatusOr<std::vector<Limit>> MeasureMemcpy(const std::string&, const Stopped& stopped) {
  std::vector<Limit> limits;
  std::vector<char> from(kCopyBytes, 1), to(kCopyBytes, 2);
  for (size_t threads : {size_t{1}, size_t{std::max(1U, std::thread::hardware_concurrency())}}) {
    Limit limit = MakeLimit("L4", fmt::format("memcpy of 256 MiB, {} threads", threads), kCopyBytes,
                            "memcpy between buffers that were touched before");
    const size_t share = kCopyBytes / threads;
    RETURN_IF_ERROR(TakeSamples(kCopies, stopped, &limit, [&]() -> StatusOr<double> {
      const MonotonicTime begin = Clock::Real()->Now();
      std::vector<std::thread> workers;
      for (size_t i = 1; i < threads; ++i) {
        workers.emplace_back([&, i] { memcpy(&to[i * share], &from[i * share], share); });
      }
      memcpy(to.data(), from.data(), share);
      for (std::thread& worker : workers) worker.join();
      return MsSince(begin);
    }));
    limits.push_back(std::move(limit));
    if (threads == 1 && std::thread::hardware_concurrency() <= 1) break;
  }
  return limits;
}

StatusOr<std::vector<Limit>> MeasureZstd(const std::string& image_dir, const std::string& dir_path,
                                         const Stopped& stopped) {
  Directory dir(dir_path);
  std::string content;
  const std::string plain = dir.File("image"), packed = dir.File("image.zst");
  RETURN_IF_ERROR(CopyLargest(image_dir, plain, &content));
  const auto bytes = static_cast<int64_t>(content.size());
  std::vector<Limit> limits;
  auto program = [&](const std::string& what, const std::vector<std::string>& command) {
    std::string text;
    for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
    Limit limit = MakeLimit("L5", what, bytes, text);
    Status status = TakeSamples(kLarge, stopped, &limit,
                                [&]() -> StatusOr<double> { return RunTimed(command); });
    if (status.ok()) limits.push_back(std::move(limit));
    return status;
  };
  const std::string all = fmt::to_string(std::max(1U, std::thread::hardware_concurrency()));
  for (const std::string& threads : {std::string("1"), all}) {
    RETURN_IF_ERROR(program("zstd -1 -T" + threads,
                            {"zstd", "-q", "-f", "-1", "-T" + threads, plain, "-o", packed}));
  }
  RETURN_IF_ERROR(program("zstd -d", {"zstd", "-q", "-f", "-d", packed, "-o", dir.File("back")}));
  Limit library = MakeLimit("L5", "libzstd level 1, one thread", bytes, "ZSTD_compress");
  std::vector<char> out(ZSTD_compressBound(content.size()), 0);
  RETURN_IF_ERROR(TakeSamples(kLarge, stopped, &library, [&]() -> StatusOr<double> {
    const MonotonicTime begin = Clock::Real()->Now();
    const size_t n = ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 1);
    if (ZSTD_isError(n) != 0) return Status(Code::kInternal, ZSTD_getErrorName(n));
    return MsSince(begin);
  }));
  limits.push_back(std::move(library));
  return limits;
}

StatusOr<std::vector<Limit>> MeasureDisk(const std::string& dir_path, const Stopped& stopped) {
  Directory dir(dir_path);
  std::string piece(kPiece, 'x');
  const std::string file = dir.File("large");
  std::vector<Limit> limits;
  auto add = [&](Limit limit, int times, const std::function<StatusOr<double>()>& once) {
    Status status = TakeSamples(times, stopped, &limit, once);
    if (status.ok()) limits.push_back(std::move(limit));
    return status;
  };
  RETURN_IF_ERROR(add(MakeLimit("L6", "write 1 GiB", kFileBytes, "write"), kLarge,
                      [&] { return WriteFile(file, piece, false); }));
  RETURN_IF_ERROR(add(MakeLimit("L6", "write 1 GiB + fdatasync", kFileBytes, "write, fdatasync"),
                      kLarge, [&] { return WriteFile(file, piece, true); }));
  RETURN_IF_ERROR(add(MakeLimit("L6", "read 1 GiB, cached", kFileBytes, "read"), kLarge,
                      [&] { return ReadFile(file, false, &piece); }));
  RETURN_IF_ERROR(add(MakeLimit("L6", "read 1 GiB, cold", kFileBytes, "FADV_DONTNEED, read"),
                      kLarge, [&] { return ReadFile(file, true, &piece); }));
  unlink(file.c_str());
  ASSIGN_OR_RETURN(UniqueFd small, Open(dir.File("small"), O_WRONLY | O_CREAT));
  RETURN_IF_ERROR(add(MakeLimit("L6", "4 KiB + fdatasync", 0, "pwrite, fdatasync"), kSmall,
                      [&]() -> StatusOr<double> {
                        const MonotonicTime begin = Clock::Real()->Now();
                        if (pwrite(small.get(), piece.data(), 4096, 0) != 4096 ||
                            fdatasync(small.get()) != 0) {
                          return ErrnoStatus(errno, "small write");
                        }
                        return MsSince(begin);
                      }));
  RETURN_IF_ERROR(
      add(MakeLimit("L6", "durable publication", 0, "write, fsync, rename, fsync of the directory"),
          kSmall, [&] { return PublishFile(dir, piece); }));
  return limits;
}

StatusOr<std::vector<Limit>> MeasureStore(const std::string& dir_path, const Stopped& stopped) {
  Directory dir(dir_path);
  sqlite3* opened = nullptr;
  const int result = sqlite3_open(dir.File("limits.db").c_str(), &opened);
  Database db(opened);
  if (result != SQLITE_OK) return Status(Code::kInternal, "sqlite: cannot open");
  RETURN_IF_ERROR(Execute(db.get(),
                          "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                          "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)"));
  std::vector<Limit> limits;
  int64_t row = 0;
  for (int group : {1, 16}) {
    Limit limit = MakeLimit("L8", fmt::format("SQLite commit of {} rows", group), 0,
                            "BEGIN; INSERT ...; COMMIT with WAL and synchronous=FULL");
    RETURN_IF_ERROR(TakeSamples(kSmall, stopped, &limit, [&]() -> StatusOr<double> {
      const MonotonicTime begin = Clock::Real()->Now();
      std::string sql = "BEGIN;";
      for (int i = 0; i < group; ++i) {
        sql += fmt::format("INSERT INTO t VALUES({}, '{:0>300}');", ++row, row);
      }
      RETURN_IF_ERROR(Execute(db.get(), sql + "COMMIT"));
      return MsSince(begin);
    }));
    limits.push_back(std::move(limit));
  }
  return limits;
}

std::vector<std::pair<std::string, MeasureLimit>> MachineLimits() {
  return {{"L4", MeasureMemcpy}, {"L6", MeasureDisk}, {"L8", MeasureStore}};
}

}  // namespace torpor::bench
