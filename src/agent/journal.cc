#include "agent/journal.h"

#include <fcntl.h>

namespace torpor::agent {

using torpor::v1::JournalRecord;

namespace {
constexpr size_t kCompactAtRecords = 32;
}

StatusOr<std::unique_ptr<Journal>> Journal::Open(const os::DirFd& dir, const std::string& name,
                                                 const std::string& boot_id, Clock* clock,
                                                 JournalObserver* observer) {
  std::unique_ptr<Journal> journal(new Journal(dir, name, boot_id, clock, observer));
  auto bytes = dir.ReadFile(journal->file_, kJournalBytesMax);
  MutexLock lock(&journal->mu_);
  if (bytes.ok()) {
    auto parsed = ParseJournal(*bytes);
    if (parsed.ok() && parsed->header.boot_id() == boot_id) {
      journal->records_ = std::move(parsed->records);
    }
  } else if (bytes.status().code() != Code::kNotFound) {
    return bytes.status();
  }
  // Rewritten in any case: a torn tail would hide what is appended behind it.
  RETURN_IF_ERROR(journal->Rewrite());
  return journal;
}

Status Journal::Append(const JournalRecord& record) {
  MutexLock lock(&mu_);
  return AppendLocked(record);
}

Status Journal::AppendOrKeep(const JournalRecord& record) {
  MutexLock lock(&mu_);
  Status status = AppendLocked(record);
  if (!status.ok() && !removed_) {
    records_.push_back(record);
    torn_ = true;
  }
  return status;
}

Status Journal::AppendLocked(const JournalRecord& record) {
  if (observer_ != nullptr) observer_->BeforeAppend(record);
  if (removed_) return Error(Code::kInternal, "INTERNAL", "the journal was removed");
  if (torn_) RETURN_IF_ERROR(Annotate(Rewrite(), file_));
  ASSIGN_OR_RETURN(UniqueFd fd, dir_.OpenRegular(file_, O_WRONLY | O_APPEND));
  Status written = os::WriteAll(fd.get(), EncodeJournalRecord(record));
  if (!written.ok()) {
    // Half a record would hide the next one: if that cannot be repaired now, nothing may follow
    // before it was.
    torn_ = true;
    (void)Rewrite().ok();
    return Annotate(written, file_);
  }
  records_.push_back(record);
  if (observer_ != nullptr) observer_->AfterAppend(record);
  // A compaction that fails leaves the longer journal, which says the same.
  if (records_.size() >= compact_at_ && !Rewrite().ok()) compact_at_ = records_.size() * 2;
  return OkStatus();
}

std::vector<JournalRecord> Journal::records() const {
  MutexLock lock(&mu_);
  return records_;
}

StatusOr<bool> Journal::Compact() {
  MutexLock lock(&mu_);
  if (CompactRecords(records_, clock_->WallNow()).size() < records_.size()) {
    RETURN_IF_ERROR(Rewrite());
  }
  return records_.size() <= 1;
}

Status Journal::Remove() {
  MutexLock lock(&mu_);
  removed_ = true;
  Status status = dir_.Unlink(file_);
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

Status Journal::Rewrite() {
  std::vector<JournalRecord> kept = CompactRecords(records_, clock_->WallNow());
  torpor::v1::JournalHeader header;
  header.set_format(kJournalFormat);
  header.set_boot_id(boot_id_);
  header.set_actor_uid(name_);
  std::string bytes = EncodeJournalStart(header);
  for (const JournalRecord& record : kept) bytes += EncodeJournalRecord(record);
  RETURN_IF_ERROR(dir_.WriteFile(file_, bytes, 0600));
  torn_ = false;
  records_ = std::move(kept);
  compact_at_ = std::max(kCompactAtRecords, records_.size() * 2);
  return OkStatus();
}

}  // namespace torpor::agent
