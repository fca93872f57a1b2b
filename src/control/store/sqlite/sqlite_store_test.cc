#include "control/store/sqlite/sqlite_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "control/store/contract/store_contract.h"

namespace torpor::control {
namespace {

std::string MakeDir() {
  std::string dir = ::testing::TempDir() + "/torpor-sqlite-XXXXXX";
  return mkdtemp(dir.data());
}

struct SqliteFactory {
  std::string dir = MakeDir();
  ~SqliteFactory() { std::filesystem::remove_all(dir); }
  std::string path() const { return dir + "/torpor.db"; }
  std::unique_ptr<Store> Make() {
    auto store = SqliteStore::Open(path());
    EXPECT_THAT(store, IsOk());
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::unique_ptr<Store> Reopen(std::unique_ptr<Store> store) {
    store.reset();
    return Make();
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, StoreContract, SqliteFactory);

TEST(SqliteStore, IsPrivate) {
  SqliteFactory factory;
  auto store = factory.Make();
  struct stat info{};
  ASSERT_EQ(stat(factory.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(SqliteStore, NoFileIsNoStore) {
  EXPECT_THAT(SqliteStore::Open("/nonexistent/dir/torpor.db").status(),
              HasReason(Code::kUnavailable, "STORE_UNAVAILABLE"));
}

TEST(SqliteStore, DamagedFileIsDataLoss) {
  SqliteFactory factory;
  std::ofstream(factory.path()) << std::string(8192, 'x');
  EXPECT_THAT(SqliteStore::Open(factory.path()).status(),
              HasReason(Code::kDataLoss, "STORE_CORRUPT"));
}

TEST(SqliteStore, NewerFormatIsRefused) {
  SqliteFactory factory;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(factory.path().c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version = 99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_THAT(SqliteStore::Open(factory.path()).status(), HasCode(Code::kFailedPrecondition));
}

// An owner that sleeps is the owner still: nobody takes over its file, so whatever it commits when
// it wakes is not stale.
TEST(SqliteStore, B12_AStoppedProcessKeepsTheFile) {
  SqliteFactory factory;
  const pid_t owner = fork();  // no other thread is there
  if (owner == 0) {
    auto store = factory.Make();
    if (store == nullptr) _exit(1);
    raise(SIGSTOP);
    Batch batch;
    batch.writes.push_back({Kind::kActor, "demo/a", "woken", 0});
    _exit(store->Commit(batch).ok() ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(owner, &status, WUNTRACED), owner);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  EXPECT_THAT(SqliteStore::Open(factory.path(), {.lock_wait = std::chrono::milliseconds(1)}),
              HasReason(Code::kUnavailable, "STORE_UNAVAILABLE"));
  ASSERT_EQ(kill(owner, SIGCONT), 0);
  ASSERT_EQ(waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  auto store = factory.Make();
  ASSERT_NE(store, nullptr);
  ASSERT_OK_AND_ASSIGN(auto row, store->Get(Kind::kActor, "demo/a"));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->value, "woken");
}

TEST(SqliteStatus, EveryFamily) {
  const std::map<int, Code> kWant = {
      {SQLITE_OK, Code::kOk},
      {SQLITE_ROW, Code::kOk},
      {SQLITE_DONE, Code::kOk},
      {SQLITE_BUSY, Code::kUnavailable},
      {SQLITE_BUSY_SNAPSHOT, Code::kUnavailable},
      {SQLITE_LOCKED, Code::kUnavailable},
      {SQLITE_FULL, Code::kUnavailable},
      {SQLITE_IOERR, Code::kUnavailable},
      {SQLITE_IOERR_FSYNC, Code::kUnavailable},
      {SQLITE_CANTOPEN, Code::kUnavailable},
      {SQLITE_READONLY, Code::kUnavailable},
      {SQLITE_NOMEM, Code::kUnavailable},
      {SQLITE_CORRUPT, Code::kDataLoss},
      {SQLITE_CORRUPT_INDEX, Code::kDataLoss},
      {SQLITE_NOTADB, Code::kDataLoss},
      {SQLITE_MISUSE, Code::kInternal},
      {SQLITE_CONSTRAINT, Code::kInternal},
  };
  for (const auto& [code, want] : kWant) {
    EXPECT_EQ(SqliteStatus(code, "commit", "detail").code(), want) << code;
  }
}

}  // namespace
}  // namespace torpor::control
