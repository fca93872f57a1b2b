#pragma once
// The journal file of one actor: append-only while the agent runs, compacted by rename.
//
// One write per record on an O_APPEND descriptor, no fsync (node.md 3): what was appended survives
// the end of this process at any moment. No descriptor is held between appends, since a node has
// thousands of actors. Thread-safe. Append fails with the errno's status
// (DISK_FULL ...); the record is then not there, and nothing that depends on it may happen. What
// such a failure left in the file is repaired before the next record.

#include <memory>
#include <string>
#include <vector>

#include "agent/journal_format.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "os/fs/dir_fd.h"

namespace torpor::agent {

// Told about every append, before and after it. Crash tests stop an agent here.
class JournalObserver {
 public:
  virtual ~JournalObserver() = default;
  virtual void BeforeAppend(const torpor::v1::JournalRecord& record) = 0;
  virtual void AfterAppend(const torpor::v1::JournalRecord& record) = 0;
};

class Journal {
 public:
  // Opens <name>.j below `dir`, making it when missing. A journal of another boot, or one whose
  // header does not verify, is replaced by an empty one. `dir`, `clock` and `observer` (may be
  // null) outlive the journal.
  static StatusOr<std::unique_ptr<Journal>> Open(const os::DirFd& dir, const std::string& name,
                                                 const std::string& boot_id, Clock* clock,
                                                 JournalObserver* observer);

  Status Append(const torpor::v1::JournalRecord& record) EXCLUDES(mu_);
  // For what has happened already: a record that cannot be written now is kept and written before
  // the next one.
  Status AppendOrKeep(const torpor::v1::JournalRecord& record) EXCLUDES(mu_);
  std::vector<torpor::v1::JournalRecord> records() const EXCLUDES(mu_);
  // Drops what CompactRecords drops. True when nothing but a generation is left.
  StatusOr<bool> Compact() EXCLUDES(mu_);
  // Removes the file; nothing may be appended afterwards.
  Status Remove() EXCLUDES(mu_);

 private:
  Journal(const os::DirFd& dir, std::string name, std::string boot_id, Clock* clock,
          JournalObserver* observer)
      : dir_(dir),
        file_(name + ".j"),
        name_(std::move(name)),
        boot_id_(std::move(boot_id)),
        clock_(clock),
        observer_(observer) {}
  Status AppendLocked(const torpor::v1::JournalRecord& record) REQUIRES(mu_);
  Status Rewrite() REQUIRES(mu_);

  const os::DirFd& dir_;
  const std::string file_;
  const std::string name_;
  const std::string boot_id_;
  Clock* const clock_;
  JournalObserver* const observer_;
  mutable Mutex mu_;
  bool removed_ GUARDED_BY(mu_) = false;
  bool torn_ GUARDED_BY(mu_) = false;  // the file is not what records_ says
  std::vector<torpor::v1::JournalRecord> records_ GUARDED_BY(mu_);
  size_t compact_at_ GUARDED_BY(mu_) = 32;
};

}  // namespace torpor::agent
