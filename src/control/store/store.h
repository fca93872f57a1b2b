#pragma once
// What the control plane keeps: versioned rows of a few kinds, and an append-only list of events.
//
// A Batch is atomic. When Commit returns OK it survives the end of this process, and, if it is
// `durable`, a power cut; the others survive a power cut within a second, and never without those
// before them. Each write names the version that it replaces (compare-and-set). Values are opaque
// bytes (torpor/v1/record.proto). Implementations: memory, sqlite; both pass
// contract/store_contract.h. Thread-safe; the control plane commits from one thread.
//
// Errors: ABORTED VERSION_CONFLICT (nothing was written), UNAVAILABLE STORE_UNAVAILABLE (locked,
// disk full; try again), DATA_LOSS STORE_CORRUPT, INTERNAL.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::control {

// Stored as numbers: never renumber.
enum class Kind : int {
  kAtespace = 1,
  kTemplate = 2,
  kActor = 3,
  kTag = 4,
  kNode = 5,
  kWorker = 6,
  kReport = 7,   // operation reports, a ring of rows per actor
  kGarbage = 8,  // what is to be deleted outside the store
  kCpu = 9,      // CPUs that snapshots were captured on, by id
};

struct Row {
  std::string key;
  std::string value;
  int64_t version = 0;
};

constexpr int64_t kAnyVersion = -1;

struct Write {
  Kind kind;
  std::string key;
  std::optional<std::string> value;  // nullopt deletes the row
  // The version of the row now; 0 = there must be none; kAnyVersion = not compared. The new row has
  // one more than the old.
  int64_t expected_version = 0;
};

struct Batch {
  std::vector<Write> writes;  // at most one per (kind, key)
  std::vector<torpor::v1::Event> events;
  // False: what a power cut may undo, so that no caller waits for the disk.
  bool durable = true;
  bool empty() const { return writes.empty() && events.empty(); }
};

// Empty or unset fields match everything.
struct EventQuery {
  std::string atespace;
  std::string actor_name;  // with atespace
  std::string node_name;
  std::optional<WallTime> start;  // inclusive
  std::optional<WallTime> end;    // exclusive
  int64_t before_sequence = 0;    // 0 = from the newest
  int limit = 1000;
};

struct StoredEvent {
  int64_t sequence = 0;  // > 0, rises with every append
  torpor::v1::Event event;
};

class Store {
 public:
  virtual ~Store() = default;
  virtual Status Commit(const Batch& batch) = 0;
  // nullopt when there is no such row.
  virtual StatusOr<std::optional<Row>> Get(Kind kind, std::string_view key) = 0;
  // Rows whose key begins with `prefix` and is greater than `after`, in byte order of the key.
  virtual StatusOr<std::vector<Row>> Scan(Kind kind, std::string_view prefix,
                                          std::string_view after, int limit) = 0;
  // Newest first.
  virtual StatusOr<std::vector<StoredEvent>> ListEvents(const EventQuery& query) = 0;
  // Removes events older than `before`, and the oldest of an atespace beyond `per_atespace_max`.
  virtual Status TrimEvents(WallTime before, int64_t per_atespace_max) = 0;
};

}  // namespace torpor::control
