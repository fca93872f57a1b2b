#include "agent/journal_format.h"

#include <cstring>
#include <map>
#include <set>

#include <xxhash.h>

#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::JournalRecord;

constexpr std::string_view kMagic = "TORPJNL1";
constexpr size_t kFrameHeadBytes = 12;

void AppendLittleEndian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

uint64_t ReadLittleEndian(std::string_view in, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(in[at + static_cast<size_t>(i)]))
             << (8 * i);
  }
  return value;
}

std::string Frame(const google::protobuf::Message& message) {
  std::string payload = message.SerializeAsString();
  std::string out;
  out.reserve(payload.size() + kFrameHeadBytes);
  AppendLittleEndian(out, payload.size(), 4);
  AppendLittleEndian(out, XXH3_64bits(payload.data(), payload.size()), 8);
  return out + payload;
}

// The payload of the frame at `*at`, which is moved behind it; false when it does not verify.
bool TakeFrame(std::string_view bytes, size_t* at, std::string_view* payload) {
  if (bytes.size() - *at < kFrameHeadBytes) return false;
  uint64_t length = ReadLittleEndian(bytes, *at, 4);
  uint64_t sum = ReadLittleEndian(bytes, *at + 4, 8);
  if (length > kJournalRecordBytesMax || length > bytes.size() - *at - kFrameHeadBytes)
    return false;
  *payload = bytes.substr(*at + kFrameHeadBytes, length);
  if (XXH3_64bits(payload->data(), payload->size()) != sum) return false;
  *at += kFrameHeadBytes + length;
  return true;
}

bool ParsePayload(std::string_view payload, google::protobuf::Message* message) {
  return message->ParseFromArray(payload.data(), static_cast<int>(payload.size()));
}

}  // namespace

StatusOr<ParsedJournal> ParseJournal(std::string_view bytes) {
  if (bytes.size() > kJournalBytesMax || bytes.substr(0, kMagic.size()) != kMagic) {
    return Error(Code::kDataLoss, "INTERNAL", "not a journal of this program");
  }
  ParsedJournal out;
  size_t at = kMagic.size();
  std::string_view payload;
  if (!TakeFrame(bytes, &at, &payload) || !ParsePayload(payload, &out.header) ||
      out.header.format() != kJournalFormat) {
    return Error(Code::kDataLoss, "INTERNAL", "the journal's header does not verify");
  }
  out.valid_bytes = at;
  while (at < bytes.size() && TakeFrame(bytes, &at, &payload)) {
    JournalRecord record;
    if (!ParsePayload(payload, &record)) break;
    out.records.push_back(std::move(record));
    out.valid_bytes = at;
  }
  return out;
}

std::string EncodeJournalStart(const torpor::v1::JournalHeader& header) {
  return std::string(kMagic) + Frame(header);
}

std::string EncodeJournalRecord(const JournalRecord& record) { return Frame(record); }

std::vector<JournalRecord> CompactRecords(const std::vector<JournalRecord>& records, WallTime now) {
  struct Seen {
    bool ended = false;
    bool acknowledged = false;
    WallTime time;
  };
  std::map<std::string, Seen> seen;
  int64_t highest = 0;
  for (const JournalRecord& record : records) {
    highest = std::max(highest, record.generation());
    Seen& op = seen[record.op_id()];
    if (record.kind() == JournalRecord::KIND_ACKNOWLEDGED) op.acknowledged = true;
    if (record.kind() == JournalRecord::KIND_OUTCOME) op.ended = true;
    if (record.kind() == JournalRecord::KIND_REFUSED) op.ended = op.acknowledged = true;
    op.time = std::max(op.time, FromProto(record.time()));
  }
  // Newest first: what is beyond the bound goes like what is too old.
  std::set<std::string> dropped;
  size_t settled = 0;
  for (auto it = records.rbegin(); it != records.rend(); ++it) {
    const Seen& op = seen[it->op_id()];
    bool last =
        it->kind() == JournalRecord::KIND_OUTCOME || it->kind() == JournalRecord::KIND_REFUSED;
    if (!last || !op.acknowledged) continue;
    if (++settled > kAcknowledgedOutcomesMax || now - op.time >= kOutcomeRetention) {
      dropped.insert(it->op_id());
    }
  }
  std::vector<JournalRecord> out;
  JournalRecord generation;
  generation.set_kind(JournalRecord::KIND_GENERATION);
  generation.set_generation(highest);
  out.push_back(std::move(generation));
  for (const JournalRecord& record : records) {
    const Seen& op = seen[record.op_id()];
    if (record.kind() == JournalRecord::KIND_GENERATION) continue;
    if (dropped.count(record.op_id()) > 0) continue;
    // Of an ended operation only the outcome and whose request it answers matter.
    if (op.ended && record.kind() == JournalRecord::KIND_STEP) continue;
    out.push_back(record);
    if (op.ended) out.back().clear_request();
  }
  return out;
}

}  // namespace torpor::agent
