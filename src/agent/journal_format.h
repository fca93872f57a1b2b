#pragma once
// The bytes of journal/<actor uid>.j.
//
//   "TORPJNL1"  frame(JournalHeader)  frame(JournalRecord) ...
//   frame = length u32 LE | XXH3-64 of the payload u64 LE | payload
//
// Pure functions. The file survives the crash of any process, not a power cut; a record is one
// write, so only the last one can be torn: parsing stops at the first frame that does not verify.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/agent.pb.h"

namespace torpor::agent {

inline constexpr int kJournalFormat = 1;
inline constexpr size_t kJournalRecordBytesMax = 4 << 20;
inline constexpr size_t kJournalBytesMax = 64 << 20;
// Outcomes are kept this long, and until they were acknowledged; of the acknowledged ones at most
// this many per actor, so that a busy one does not fill memory and disk.
inline constexpr Duration kOutcomeRetention = std::chrono::hours(24);
inline constexpr size_t kAcknowledgedOutcomesMax = 64;

struct ParsedJournal {
  torpor::v1::JournalHeader header;
  std::vector<torpor::v1::JournalRecord> records;
  size_t valid_bytes = 0;  // what follows is a torn tail
};

// DATA_LOSS unless magic and header verify.
StatusOr<ParsedJournal> ParseJournal(std::string_view bytes);

std::string EncodeJournalStart(const torpor::v1::JournalHeader& header);
std::string EncodeJournalRecord(const torpor::v1::JournalRecord& record);

// What is left of `records` without losing a promise: the highest generation, every record of an
// operation without outcome, outcomes that are not acknowledged, the newest acknowledged ones (and
// refused ids) within kOutcomeRetention and kAcknowledgedOutcomesMax.
std::vector<torpor::v1::JournalRecord> CompactRecords(
    const std::vector<torpor::v1::JournalRecord>& records, WallTime now);

}  // namespace torpor::agent
