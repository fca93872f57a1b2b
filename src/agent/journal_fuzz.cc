// Whatever the bytes are, parsing ends, and what was believed parses to the same again.

#include <cstdint>

#include "agent/journal_format.h"
#include "base/log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using torpor::agent::EncodeJournalRecord;
  using torpor::agent::EncodeJournalStart;
  auto parsed = torpor::agent::ParseJournal({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  CHECK(parsed->valid_bytes <= size);
  std::string bytes = EncodeJournalStart(parsed->header);
  for (const auto& record :
       torpor::agent::CompactRecords(parsed->records, torpor::Clock::Real()->WallNow())) {
    bytes += EncodeJournalRecord(record);
  }
  auto again = torpor::agent::ParseJournal(bytes);
  CHECK(again.ok());
  CHECK(again->valid_bytes == bytes.size());
  return 0;
}
