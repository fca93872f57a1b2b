// When the store waits for the disk, and what a power cut leaves of it. A file system between
// SQLite and the real one keeps, per file, what was flushed last.

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/sync.h"
#include "base/testing/matchers.h"
#include "control/store/sqlite/sqlite_store.h"

namespace torpor::control {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Thread-safe. One per process, because SQLite keeps what was registered.
class Disk {
 public:
  static Disk* Get() {
    static Disk* disk = new Disk();
    return disk;
  }
  static constexpr char kName[] = "torpor-flush-test";

  // What a power cut at this moment leaves of the files in `from`.
  void PowerCut(const std::string& from, const std::string& to) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    for (const auto& [path, content] : flushed_) {
      if (fs::path(path).parent_path() != from) continue;
      std::ofstream(fs::path(to) / fs::path(path).filename(), std::ios::binary) << content;
    }
  }
  int flushes(const std::thread::id& thread) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return by_thread_[thread];
  }
  int flushes() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return total_;
  }
  void WaitForFlushes(int count) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (total_ < count && changed_.WaitUntil(&mu_, deadline)) {
    }
    EXPECT_GE(total_, count);
  }
  // Until so much of that file was flushed.
  void WaitForSize(const std::string& path, size_t bytes) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (flushed_[path].size() < bytes && changed_.WaitUntil(&mu_, deadline)) {
    }
    EXPECT_GE(flushed_[path].size(), bytes);
  }
  void FailFlushes(int times) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    fail_ = times;
  }

 private:
  struct File {
    sqlite3_file base;
    const char* path;
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

  Disk() {
    real_ = sqlite3_vfs_find(nullptr);
    vfs_ = *real_;
    vfs_.zName = kName;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.xOpen = &Open;
    vfs_.xDelete = &Delete;
    methods_.iVersion = 1;
    methods_.xClose = [](sqlite3_file* f) {
      return Of(f)->real()->pMethods->xClose(Of(f)->real());
    };
    methods_.xRead = [](sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
      return Of(f)->real()->pMethods->xRead(Of(f)->real(), to, n, at);
    };
    methods_.xWrite = [](sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
      return Of(f)->real()->pMethods->xWrite(Of(f)->real(), from, n, at);
    };
    methods_.xTruncate = [](sqlite3_file* f, sqlite3_int64 size) {
      return Of(f)->real()->pMethods->xTruncate(Of(f)->real(), size);
    };
    methods_.xSync = &Sync;
    methods_.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) {
      return Of(f)->real()->pMethods->xFileSize(Of(f)->real(), size);
    };
    methods_.xLock = [](sqlite3_file* f, int level) {
      return Of(f)->real()->pMethods->xLock(Of(f)->real(), level);
    };
    methods_.xUnlock = [](sqlite3_file* f, int level) {
      return Of(f)->real()->pMethods->xUnlock(Of(f)->real(), level);
    };
    methods_.xCheckReservedLock = [](sqlite3_file* f, int* out) {
      return Of(f)->real()->pMethods->xCheckReservedLock(Of(f)->real(), out);
    };
    methods_.xFileControl = [](sqlite3_file* f, int op, void* arg) {
      return Of(f)->real()->pMethods->xFileControl(Of(f)->real(), op, arg);
    };
    methods_.xSectorSize = [](sqlite3_file* f) {
      return Of(f)->real()->pMethods->xSectorSize(Of(f)->real());
    };
    methods_.xDeviceCharacteristics = [](sqlite3_file* f) {
      return Of(f)->real()->pMethods->xDeviceCharacteristics(Of(f)->real());
    };
    EXPECT_EQ(sqlite3_vfs_register(&vfs_, 0), SQLITE_OK);
  }

  static int Open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out) {
    Disk* disk = Get();
    std::memset(file, 0, sizeof(File));
    int code = disk->real_->xOpen(disk->real_, path, Of(file)->real(), flags, out);
    if (code != SQLITE_OK) return code;
    Of(file)->path = path;  // SQLite keeps it until the file is closed
    file->pMethods = &disk->methods_;
    return SQLITE_OK;
  }

  // A name that was removed comes back with the power, unless its directory was flushed.
  static int Delete(sqlite3_vfs*, const char* path, int flush_directory) {
    Disk* disk = Get();
    int code = disk->real_->xDelete(disk->real_, path, flush_directory);
    MutexLock lock(&disk->mu_);
    if (code == SQLITE_OK && flush_directory != 0) disk->flushed_.erase(path);
    return code;
  }

  static int Sync(sqlite3_file* file, int flags) {
    Disk* disk = Get();
    const std::string path = Of(file)->path;
    int code = Of(file)->real()->pMethods->xSync(Of(file)->real(), flags);
    const std::string content = ReadAll(path);
    MutexLock lock(&disk->mu_);
    if (disk->fail_ > 0) {
      --disk->fail_;
      return SQLITE_IOERR_FSYNC;
    }
    disk->flushed_[path] = content;
    ++disk->total_;
    ++disk->by_thread_[std::this_thread::get_id()];
    disk->changed_.SignalAll();
    return code;
  }

  sqlite3_vfs* real_ = nullptr;
  sqlite3_vfs vfs_{};
  sqlite3_io_methods methods_{};
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> flushed_ GUARDED_BY(mu_);
  std::map<std::thread::id, int> by_thread_ GUARDED_BY(mu_);
  int total_ GUARDED_BY(mu_) = 0;
  int fail_ GUARDED_BY(mu_) = 0;
};

class Flush : public ::testing::Test {
 protected:
  void TearDown() override {
    Disk::Get()->FailFlushes(0);
    store_.reset();
    fs::remove_all(dir_);
  }
  void Open(Duration flush_after, int checkpoint_pages = 1000) {
    SqliteStore::Options options;
    options.vfs = Disk::kName;
    options.flush_after = flush_after;
    options.checkpoint_pages = checkpoint_pages;
    Disk::Get();
    auto store = SqliteStore::Open(dir_ + "/torpor.db", options);
    ASSERT_THAT(store, IsOk());
    store_ = std::move(*store);
  }
  Status Put(const std::string& key, bool durable) {
    Batch batch;
    batch.durable = durable;
    batch.writes.push_back({Kind::kActor, key, std::string(500, 'x'), 0});
    return store_->Commit(batch);
  }
  // The keys that a power cut at this moment leaves.
  std::string Left() {
    const std::string cut = dir_ + "-cut";
    fs::remove_all(cut);
    fs::create_directory(cut);
    Disk::Get()->PowerCut(dir_, cut);
    std::string keys;
    {
      auto store = SqliteStore::Open(cut + "/torpor.db");
      EXPECT_THAT(store, IsOk());
      auto rows = (*store)->Scan(Kind::kActor, "", "", 100000);
      EXPECT_THAT(rows, IsOk());
      for (const Row& row : *rows) keys += row.key + " ";
    }
    fs::remove_all(cut);
    return keys;
  }
  static std::string MakeDir() {
    std::string dir = ::testing::TempDir() + "/torpor-flush-XXXXXX";
    // As SQLite names it, without doubled slashes.
    return fs::canonical(mkdtemp(dir.data()));
  }
  int MyFlushes() { return Disk::Get()->flushes(std::this_thread::get_id()); }

  const std::string dir_ = MakeDir();
  std::unique_ptr<Store> store_;
};

constexpr Duration kNever = std::chrono::hours(1);

TEST_F(Flush, OnlyDurableCommitsWaitForTheDisk) {
  Open(kNever);
  ASSERT_OK(Put("a", true));
  const int before = MyFlushes();
  for (int i = 0; i < 50; ++i) ASSERT_OK(Put(fmt::format("b{:02}", i), false));
  EXPECT_EQ(MyFlushes(), before);
  EXPECT_EQ(Left(), "a ");
  ASSERT_OK(Put("c", true));
  EXPECT_GT(MyFlushes(), before);
  const std::string left = Left();
  EXPECT_NE(left.find("b00 b01 "), std::string::npos) << "never without those before it";
  EXPECT_NE(left.find(" c "), std::string::npos);
}

TEST_F(Flush, TheOthersFollowSoon) {
  Open(std::chrono::milliseconds(1));
  ASSERT_OK(Put("a", true));
  const int mine = MyFlushes();
  const int all = Disk::Get()->flushes();
  ASSERT_OK(Put("b", false));
  Disk::Get()->WaitForFlushes(all + 1);
  EXPECT_EQ(MyFlushes(), mine) << "by another thread";
  EXPECT_EQ(Left(), "a b ");
}

TEST_F(Flush, AFailedFlushOfADurableCommitIsAnErrorAndCured) {
  Open(kNever);
  ASSERT_OK(Put("a", true));
  ASSERT_OK(Put("b", false));
  Disk::Get()->FailFlushes(1);
  EXPECT_THAT(Put("c", true), HasReason(Code::kUnavailable, "STORE_UNAVAILABLE"));
  EXPECT_EQ(Left(), "a ");
  // The retry copies everything before it commits, so that nothing depends on what was lost.
  ASSERT_OK(Put("c", true));
  EXPECT_EQ(Left(), "a b c ");
}

TEST_F(Flush, TheLogIsCopiedByTheStoresThread) {
  Open(std::chrono::milliseconds(1), /*checkpoint_pages=*/20);
  ASSERT_OK(Put("a", true));
  const int mine = MyFlushes();
  for (int i = 0; i < 100; ++i) ASSERT_OK(Put(fmt::format("b{:02}", i), false));
  // Once no more commits come.
  Disk::Get()->WaitForSize(dir_ + "/torpor.db", 50000);
  ASSERT_OK(Put("c", false));
  EXPECT_EQ(MyFlushes(), mine) << "the first commit to the emptied log waits for nothing";
  ASSERT_OK(Put("d", true));
  const std::string left = Left();
  EXPECT_EQ(std::count(left.begin(), left.end(), ' '), 103);
}

}  // namespace
}  // namespace torpor::control
