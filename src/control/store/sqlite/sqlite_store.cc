#include "control/store/sqlite/sqlite_store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <atomic>

#include "base/log.h"
#include "base/sync.h"
#include "control/store/sqlite/flusher.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr int kFormat = 1;
const std::string kSetFormat = fmt::format("PRAGMA user_version = {}", kFormat);
// No commit for so long: nobody is likely to wait while the log is copied.
constexpr Duration kQuiet = std::chrono::milliseconds(100);
constexpr char kSchema[] = R"sql(
CREATE TABLE IF NOT EXISTS rows (
  kind INTEGER NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER NOT NULL, atespace TEXT NOT NULL,
  actor TEXT NOT NULL, node TEXT NOT NULL, value BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_by_actor ON events (atespace, actor, sequence);
CREATE INDEX IF NOT EXISTS events_by_time ON events (time_us);
)sql";

int64_t Micros(WallTime t) {
  return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
}

// A prepared statement that is reset after each use.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    prepare_ = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  class Use {
   public:
    explicit Use(Statement& s) : s_(s) {}
    ~Use() {
      sqlite3_reset(s_.statement_);
      sqlite3_clear_bindings(s_.statement_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Use& Int(int64_t v) { return Note(sqlite3_bind_int64(s_.statement_, ++index_, v)); }
    Use& Text(std::string_view v) {
      return Note(sqlite3_bind_text(s_.statement_, ++index_, v.data(), static_cast<int>(v.size()),
                                    SQLITE_TRANSIENT));
    }
    Use& Blob(std::string_view v) {
      // A null pointer would bind NULL; an empty value is a value.
      return Note(sqlite3_bind_blob(s_.statement_, ++index_, v.empty() ? "" : v.data(),
                                    static_cast<int>(v.size()), SQLITE_TRANSIENT));
    }
    // SQLITE_ROW, SQLITE_DONE or an error.
    int Step() {
      if (s_.prepare_ != SQLITE_OK) return s_.prepare_;
      return error_ != SQLITE_OK ? error_ : sqlite3_step(s_.statement_);
    }
    int64_t IntAt(int column) { return sqlite3_column_int64(s_.statement_, column); }
    std::string BytesAt(int column) {
      const void* data = sqlite3_column_blob(s_.statement_, column);
      int size = sqlite3_column_bytes(s_.statement_, column);
      return data == nullptr
                 ? std::string()
                 : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
    }

   private:
    Use& Note(int code) {
      if (error_ == SQLITE_OK) error_ = code;
      return *this;
    }
    Statement& s_;
    int index_ = 0;
    int error_ = SQLITE_OK;
  };

 private:
  sqlite3_stmt* statement_ = nullptr;
  int prepare_ = SQLITE_OK;
};

struct Closer {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
using Connection = std::unique_ptr<sqlite3, Closer>;

class OpenStore : public Store {
 public:
  OpenStore(Connection db, const SqliteStore::Options& options)
      : options_(options),
        db_(std::move(db)),
        begin_(db_.get(), "BEGIN IMMEDIATE"),
        commit_(db_.get(), "COMMIT"),
        rollback_(db_.get(), "ROLLBACK"),
        insert_(db_.get(), "INSERT INTO rows (kind, key, version, value) VALUES (?, ?, 1, ?)"),
        update_(db_.get(),
                "UPDATE rows SET value = ?, version = version + 1 "
                "WHERE kind = ? AND key = ? AND version = ?"),
        upsert_(db_.get(),
                "INSERT INTO rows (kind, key, version, value) VALUES (?, ?, 1, ?) "
                "ON CONFLICT DO UPDATE SET value = excluded.value, version = version + 1"),
        delete_(db_.get(), "DELETE FROM rows WHERE kind = ? AND key = ? AND version = ?"),
        delete_any_(db_.get(), "DELETE FROM rows WHERE kind = ? AND key = ?"),
        get_(db_.get(), "SELECT value, version FROM rows WHERE kind = ? AND key = ?"),
        scan_(db_.get(),
              "SELECT key, value, version FROM rows WHERE kind = ? AND key >= ? AND key > ? "
              "ORDER BY key LIMIT ?"),
        append_(
            db_.get(),
            "INSERT INTO events (time_us, atespace, actor, node, value) VALUES (?, ?, ?, ?, ?)"),
        list_(db_.get(),
              "SELECT sequence, value FROM events WHERE sequence < ? "
              "AND (?2 = '' OR atespace = ?2) AND (?3 = '' OR actor = ?3) "
              "AND (?4 = '' OR node = ?4) AND time_us >= ?5 AND time_us < ?6 "
              "ORDER BY sequence DESC LIMIT ?7"),
        list_actor_(db_.get(),
                    "SELECT sequence, value FROM events WHERE sequence < ? "
                    "AND atespace = ?2 AND actor = ?3 "
                    "AND (?4 = '' OR node = ?4) AND time_us >= ?5 AND time_us < ?6 "
                    "ORDER BY sequence DESC LIMIT ?7"),
        trim_time_(db_.get(), "DELETE FROM events WHERE time_us < ?"),
        atespaces_(db_.get(), "SELECT DISTINCT atespace FROM events"),
        trim_count_(db_.get(),
                    "DELETE FROM events WHERE atespace = ?1 AND sequence <= (SELECT sequence FROM "
                    "events WHERE atespace = ?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)") {
    sqlite3_wal_hook(db_.get(), &OnCommitted, this);
    sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_JOURNAL_POINTER, &log_);
    CHECK(log_ != nullptr && log_->pMethods != nullptr);
    flusher_ = std::make_unique<Flusher>(options.flush_after, [this] { return FlushLog(); });
  }

  Status Commit(const Batch& batch) override EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (unsure_) RETURN_IF_ERROR(CopyLog(SQLITE_CHECKPOINT_TRUNCATE));
      RETURN_IF_ERROR(SetFlushing(batch.durable));
      RETURN_IF_ERROR(Run(begin_, "begin"));
      Status status = WriteAll(batch);
      if (status.ok()) {
        status = Run(commit_, "commit");
        unsure_ |= !status.ok() && batch.durable;
      }
      if (!status.ok()) {
        if (sqlite3_get_autocommit(db_.get()) != 0) return status;
        Status undone = Run(rollback_, "rollback");
        if (!undone.ok()) LogError("rollback failed", {{"error", undone.ToString()}});
        return status;
      }
      last_commit_ = std::chrono::steady_clock::now();
    }
    if (!batch.durable || log_pages_ >= options_.checkpoint_pages) flusher_->Note();
    return OkStatus();
  }

  StatusOr<std::optional<Row>> Get(Kind kind, std::string_view key) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    Statement::Use use(get_);
    int code = use.Int(static_cast<int>(kind)).Text(key).Step();
    if (code == SQLITE_DONE) return std::optional<Row>();
    RETURN_IF_ERROR(Check(code, "read a row"));
    return std::optional<Row>(Row{std::string(key), use.BytesAt(0), use.IntAt(1)});
  }

  StatusOr<std::vector<Row>> Scan(Kind kind, std::string_view prefix, std::string_view after,
                                  int limit) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    std::vector<Row> rows;
    Statement::Use use(scan_);
    use.Int(static_cast<int>(kind)).Text(prefix).Text(after).Int(limit);
    while (true) {
      int code = use.Step();
      if (code == SQLITE_DONE) return rows;
      RETURN_IF_ERROR(Check(code, "scan rows"));
      std::string key = use.BytesAt(0);
      if (key.compare(0, prefix.size(), prefix) != 0) return rows;
      rows.push_back({std::move(key), use.BytesAt(1), use.IntAt(2)});
    }
  }

  StatusOr<std::vector<StoredEvent>> ListEvents(const EventQuery& query) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    std::vector<StoredEvent> events;
    bool one_actor = !query.atespace.empty() && !query.actor_name.empty();
    Statement::Use use(one_actor ? list_actor_ : list_);
    use.Int(query.before_sequence > 0 ? query.before_sequence : INT64_MAX)
        .Text(query.atespace)
        .Text(query.actor_name)
        .Text(query.node_name)
        .Int(query.start ? Micros(*query.start) : INT64_MIN)
        .Int(query.end ? Micros(*query.end) : INT64_MAX)
        .Int(query.limit);
    while (true) {
      int code = use.Step();
      if (code == SQLITE_DONE) return events;
      RETURN_IF_ERROR(Check(code, "list events"));
      StoredEvent& event = events.emplace_back();
      event.sequence = use.IntAt(0);
      if (!event.event.ParseFromString(use.BytesAt(1))) {
        return Fail(reasons::kStoreCorrupt, "an event of the store cannot be read");
      }
    }
  }

  Status TrimEvents(WallTime before, int64_t per_atespace_max) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(SetFlushing(false));
    flusher_->Note();
    {
      Statement::Use use(trim_time_);
      RETURN_IF_ERROR(Check(use.Int(Micros(before)).Step(), "trim events"));
    }
    std::vector<std::string> atespaces;
    {
      Statement::Use use(atespaces_);
      int code = 0;
      while ((code = use.Step()) == SQLITE_ROW) atespaces.push_back(use.BytesAt(0));
      RETURN_IF_ERROR(Check(code, "trim events"));
    }
    for (const std::string& atespace : atespaces) {
      Statement::Use use(trim_count_);
      RETURN_IF_ERROR(Check(use.Text(atespace).Int(per_atespace_max).Step(), "trim events"));
    }
    return OkStatus();
  }

 private:
  Status Check(int code, const char* what) REQUIRES(mu_) {
    return SqliteStatus(code, what, sqlite3_errmsg(db_.get()));
  }

  Status Run(Statement& statement, const char* what) REQUIRES(mu_) {
    Statement::Use use(statement);
    return Check(use.Step(), what);
  }

  // Runs inside every commit, under the lock.
  static int OnCommitted(void* self, sqlite3*, const char*, int pages) {
    static_cast<OpenStore*>(self)->log_pages_ = pages;
    return SQLITE_OK;
  }

  // Whether the next commits wait for the disk.
  Status SetFlushing(bool full) REQUIRES(mu_) {
    if (full == flushing_) return OkStatus();
    const char* sql = full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL";
    RETURN_IF_ERROR(Check(sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr), "set flushing"));
    flushing_ = full;
    return OkStatus();
  }

  Status CopyLog(int mode) REQUIRES(mu_) {
    int code = sqlite3_wal_checkpoint_v2(db_.get(), nullptr, mode, nullptr, nullptr);
    RETURN_IF_ERROR(Check(code, "copy the log"));
    unsure_ = false;
    log_pages_ = 0;
    // The first write to an emptied log waits for the disk; this one does it for the next commit.
    return Check(sqlite3_exec(db_.get(), kSetFormat.c_str(), nullptr, nullptr, nullptr),
                 "begin the log");
  }

  Status FlushLog() EXCLUDES(mu_) {
    const int code = log_->pMethods->xSync(log_, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
    MutexLock lock(&mu_);
    unsure_ |= code != SQLITE_OK;
    if (unsure_) return CopyLog(SQLITE_CHECKPOINT_TRUNCATE);
    if (log_pages_ < options_.checkpoint_pages) return OkStatus();
    const bool quiet = std::chrono::steady_clock::now() > last_commit_ + kQuiet;
    if (quiet || log_pages_ >= options_.checkpoint_pages_max)
      return CopyLog(SQLITE_CHECKPOINT_PASSIVE);
    flusher_->Note();
    return OkStatus();
  }

  Status WriteAll(const Batch& batch) REQUIRES(mu_) {
    for (const Write& write : batch.writes) RETURN_IF_ERROR(WriteOne(write));
    for (const torpor::v1::Event& event : batch.events) {
      Statement::Use use(append_);
      use.Int(Micros(FromProto(event.time())))
          .Text(event.actor().atespace())
          .Text(event.actor().name())
          .Text(event.node_name())
          .Blob(event.SerializeAsString());
      RETURN_IF_ERROR(Check(use.Step(), "append an event"));
    }
    return OkStatus();
  }

  Status WriteOne(const Write& write) REQUIRES(mu_) {
    const int64_t kind = static_cast<int>(write.kind);
    const bool any = write.expected_version == kAnyVersion;
    if (!write.value.has_value()) {
      Statement::Use use(any ? delete_any_ : delete_);
      use.Int(kind).Text(write.key);
      if (!any) use.Int(write.expected_version);
      RETURN_IF_ERROR(Check(use.Step(), "delete a row"));
      return any ? OkStatus() : CheckOneChanged(write);
    }
    if (any || write.expected_version == 0) {
      Statement::Use use(any ? upsert_ : insert_);
      int code = use.Int(kind).Text(write.key).Blob(*write.value).Step();
      if ((code & 0xff) == SQLITE_CONSTRAINT) return Conflict(write);
      return Check(code, "insert a row");
    }
    Statement::Use use(update_);
    use.Blob(*write.value).Int(kind).Text(write.key).Int(write.expected_version);
    RETURN_IF_ERROR(Check(use.Step(), "update a row"));
    return CheckOneChanged(write);
  }

  Status CheckOneChanged(const Write& write) REQUIRES(mu_) {
    return sqlite3_changes(db_.get()) == 1 ? OkStatus() : Conflict(write);
  }

  static Status Conflict(const Write& write) {
    return Fail(reasons::kVersionConflict,
                fmt::format("row {} has not version {}", write.key, write.expected_version));
  }

  const SqliteStore::Options options_;
  Mutex mu_;
  const Connection db_;
  sqlite3_file* log_ = nullptr;  // the WAL; belongs to the connection
  std::atomic<int> log_pages_ = 0;
  bool flushing_ GUARDED_BY(mu_) = true;
  bool unsure_ GUARDED_BY(mu_) = false;  // a flush failed
  MonotonicTime last_commit_ GUARDED_BY(mu_);
  Statement begin_ GUARDED_BY(mu_);
  Statement commit_ GUARDED_BY(mu_);
  Statement rollback_ GUARDED_BY(mu_);
  Statement insert_ GUARDED_BY(mu_);
  Statement update_ GUARDED_BY(mu_);
  Statement upsert_ GUARDED_BY(mu_);
  Statement delete_ GUARDED_BY(mu_);
  Statement delete_any_ GUARDED_BY(mu_);
  Statement get_ GUARDED_BY(mu_);
  Statement scan_ GUARDED_BY(mu_);
  Statement append_ GUARDED_BY(mu_);
  Statement list_ GUARDED_BY(mu_);
  Statement list_actor_ GUARDED_BY(mu_);
  Statement trim_time_ GUARDED_BY(mu_);
  Statement atespaces_ GUARDED_BY(mu_);
  Statement trim_count_ GUARDED_BY(mu_);
  std::unique_ptr<Flusher> flusher_;  // last: it uses the others
};

Status Execute(sqlite3* db, const char* sql) {
  char* message = nullptr;
  int code = sqlite3_exec(db, sql, nullptr, nullptr, &message);
  Status status = SqliteStatus(code, "prepare the store", message == nullptr ? "" : message);
  sqlite3_free(message);
  return status;
}

StatusOr<int> FormatOf(sqlite3* db) {
  Statement statement(db, "PRAGMA user_version");
  Statement::Use use(statement);
  int code = use.Step();
  RETURN_IF_ERROR(SqliteStatus(code, "read the format of the store", sqlite3_errmsg(db)));
  return static_cast<int>(use.IntAt(0));
}

}  // namespace

Status SqliteStatus(int code, const std::string& what, const std::string& detail) {
  const std::string message = fmt::format("{}: {}", what, detail.empty() ? "SQLite" : detail);
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return OkStatus();
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Fail(reasons::kStoreUnavailable, message + " (another process has the store)");
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_NOMEM:
      return Fail(reasons::kStoreUnavailable, message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Fail(reasons::kStoreCorrupt, message);
    default:
      return Fail(reasons::kInternal, fmt::format("{} (SQLite result {})", message, code));
  }
}

StatusOr<std::unique_ptr<Store>> SqliteStore::Open(const std::string& path,
                                                   const Options& options) {
  sqlite3* raw = nullptr;
  int code = sqlite3_open_v2(
      path.c_str(), &raw,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_EXRESCODE,
      options.vfs);
  Connection db(raw);
  RETURN_IF_ERROR(
      SqliteStatus(code, "open " + path, raw == nullptr ? "no memory" : sqlite3_errmsg(raw)));
  // Environment values of templates may be secrets; the files beside it take its mode.
  if (chmod(path.c_str(), 0600) != 0) return ErrnoStatus(errno, "chmod " + path);
  sqlite3_busy_timeout(db.get(), static_cast<int>(ToMs(options.lock_wait)));
  RETURN_IF_ERROR(Execute(
      db.get(),
      "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = EXTRA; PRAGMA journal_mode = WAL; "
      "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; "
      "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -16384;"));
  ASSIGN_OR_RETURN(int format, FormatOf(db.get()));
  if (format > kFormat) {
    return Fail(reasons::kWrongState,
                fmt::format("{} was written by a newer version (format {}, this one knows {})",
                            path, format, kFormat));
  }
  RETURN_IF_ERROR(Execute(db.get(), kSchema));
  RETURN_IF_ERROR(Execute(db.get(), kSetFormat.c_str()));
  return std::unique_ptr<Store>(std::make_unique<OpenStore>(std::move(db), options));
}

}  // namespace torpor::control
