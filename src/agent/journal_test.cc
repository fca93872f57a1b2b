#include "agent/journal.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::agent {
namespace {

using torpor::v1::JournalHeader;
using torpor::v1::JournalRecord;
using torpor::v1::Operation;

constexpr char kBoot[] = "99999999-9999-4999-8999-999999999999";
constexpr char kName[] = "11111111-1111-4111-8111-111111111111";

JournalRecord Record(JournalRecord::Kind kind, const std::string& op, int64_t generation,
                     WallTime time = {}) {
  JournalRecord record;
  record.set_kind(kind);
  record.set_op_id(op);
  record.set_generation(generation);
  *record.mutable_time() = ToProto(time);
  return record;
}

std::string Bytes(const std::vector<JournalRecord>& records) {
  JournalHeader header;
  header.set_format(kJournalFormat);
  header.set_boot_id(kBoot);
  std::string out = EncodeJournalStart(header);
  for (const JournalRecord& record : records) out += EncodeJournalRecord(record);
  return out;
}

TEST(JournalFormatTest, ATornTailIsIgnoredAtEveryLength) {
  const std::vector<JournalRecord> records = {Record(JournalRecord::KIND_ACCEPTED, "a", 1),
                                              Record(JournalRecord::KIND_STEP, "a", 1),
                                              Record(JournalRecord::KIND_OUTCOME, "a", 1)};
  const std::string whole = Bytes(records);
  const size_t two = Bytes({records[0], records[1]}).size();
  for (size_t length = two; length < whole.size(); ++length) {
    auto parsed = ParseJournal(std::string_view(whole).substr(0, length));
    ASSERT_OK(parsed);
    EXPECT_EQ(parsed->records.size(), 2U) << length;
    EXPECT_EQ(parsed->valid_bytes, two);
  }
  EXPECT_EQ(ParseJournal(whole)->records.size(), 3U);
}

TEST(JournalFormatTest, ADamagedRecordEndsWhatIsBelieved) {
  std::string bytes = Bytes(
      {Record(JournalRecord::KIND_ACCEPTED, "a", 1), Record(JournalRecord::KIND_OUTCOME, "a", 1)});
  const size_t one = Bytes({Record(JournalRecord::KIND_ACCEPTED, "a", 1)}).size();
  for (size_t at = one; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] ^= 0x40;
    EXPECT_EQ(ParseJournal(damaged)->records.size(), 1U) << at;
  }
}

TEST(JournalFormatTest, WhatIsNoJournalIsRefused) {
  EXPECT_THAT(ParseJournal(""), HasCode(Code::kDataLoss));
  EXPECT_THAT(ParseJournal("TORPJNL1"), HasCode(Code::kDataLoss));
  EXPECT_THAT(ParseJournal("TORPJNL1\xff\xff\xff\xff garbage"), HasCode(Code::kDataLoss));
  JournalHeader other;
  other.set_format(kJournalFormat + 1);
  EXPECT_THAT(ParseJournal(EncodeJournalStart(other)), HasCode(Code::kDataLoss));
}

TEST(JournalFormatTest, CompactionKeepsPromises) {
  const WallTime now = WallTime() + std::chrono::hours(100);
  const WallTime old = now - std::chrono::hours(25);
  auto accepted = Record(JournalRecord::KIND_ACCEPTED, "open", 7, old);
  accepted.mutable_capture()->set_snapshot_name("s");
  const std::vector<JournalRecord> records = {
      Record(JournalRecord::KIND_ACCEPTED, "old", 9, old),
      Record(JournalRecord::KIND_OUTCOME, "old", 9, old),
      Record(JournalRecord::KIND_ACKNOWLEDGED, "old", 0, old),
      Record(JournalRecord::KIND_ACCEPTED, "unacknowledged", 3, old),
      Record(JournalRecord::KIND_STEP, "unacknowledged", 3, old),
      Record(JournalRecord::KIND_OUTCOME, "unacknowledged", 3, old),
      Record(JournalRecord::KIND_OUTCOME, "young", 4, now),
      Record(JournalRecord::KIND_ACKNOWLEDGED, "young", 0, now),
      accepted,
      Record(JournalRecord::KIND_STEP, "open", 7, old),
      Record(JournalRecord::KIND_REFUSED, "refused", 0, now),
      Record(JournalRecord::KIND_REFUSED, "refused-old", 0, old),
  };
  std::map<std::string, int> kept;
  for (const JournalRecord& record : CompactRecords(records, now)) {
    if (record.kind() == JournalRecord::KIND_GENERATION) {
      EXPECT_EQ(record.generation(), 9);
      continue;
    }
    ++kept[record.op_id()];
    if (record.op_id() == "open" && record.kind() == JournalRecord::KIND_ACCEPTED) {
      EXPECT_EQ(record.capture().snapshot_name(), "s");
    }
  }
  EXPECT_EQ(kept, (std::map<std::string, int>{
                      {"unacknowledged", 2}, {"young", 2}, {"open", 2}, {"refused", 1}}));
}

TEST(JournalFormatTest, ABusyActorKeepsABoundedNumberOfAcknowledgedOutcomes) {
  const WallTime now = WallTime() + std::chrono::hours(100);
  std::vector<JournalRecord> records;
  for (int i = 0; i < 200; ++i) {
    records.push_back(Record(JournalRecord::KIND_OUTCOME, std::to_string(i), i, now));
    if (i >= 10)
      records.push_back(Record(JournalRecord::KIND_ACKNOWLEDGED, std::to_string(i), i, now));
  }
  std::set<int> kept;
  for (const JournalRecord& record : CompactRecords(records, now)) {
    if (!record.op_id().empty()) kept.insert(std::stoi(record.op_id()));
  }
  EXPECT_EQ(kept.size(), 10 + kAcknowledgedOutcomesMax);
  EXPECT_EQ(kept.count(9), 1U);
  EXPECT_EQ(kept.count(10), 0U);
  EXPECT_EQ(kept.count(199), 1U);
}

TEST(JournalTest, RecordsSurviveAndATornTailDoesNotHideLaterOnes) {
  os::TempDir temp;
  {
    ASSERT_OK_AND_ASSIGN(auto journal,
                         Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
    ASSERT_OK(journal->Append(Record(JournalRecord::KIND_ACCEPTED, "a", 5)));
  }
  ASSERT_OK_AND_ASSIGN(UniqueFd fd,
                       temp.dir().OpenRegular(std::string(kName) + ".j", O_WRONLY | O_APPEND));
  ASSERT_OK(os::WriteAll(fd.get(), "half a rec"));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(auto journal,
                         Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
    ASSERT_OK(journal->Append(Record(JournalRecord::KIND_STEP, "a", 5)));
  }
  ASSERT_OK_AND_ASSIGN(auto journal,
                       Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
  EXPECT_EQ(journal->records().size(), 4U);  // generation, accepted, two steps
}

TEST(JournalTest, AnotherBootStartsEmpty) {
  os::TempDir temp;
  {
    ASSERT_OK_AND_ASSIGN(auto journal,
                         Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
    ASSERT_OK(journal->Append(Record(JournalRecord::KIND_ACCEPTED, "a", 5)));
  }
  ASSERT_OK_AND_ASSIGN(auto journal,
                       Journal::Open(temp.dir(), kName, "other", Clock::Real(), nullptr));
  EXPECT_EQ(journal->records().size(), 1U);
  EXPECT_EQ(journal->records()[0].generation(), 0);
}

TEST(JournalTest, LongHistoriesAreCompacted) {
  os::TempDir temp;
  FakeClock clock;
  ASSERT_OK_AND_ASSIGN(auto journal, Journal::Open(temp.dir(), kName, kBoot, &clock, nullptr));
  for (int i = 0; i < 200; ++i) {
    std::string op = std::to_string(i);
    for (auto kind : {JournalRecord::KIND_ACCEPTED, JournalRecord::KIND_OUTCOME,
                      JournalRecord::KIND_ACKNOWLEDGED}) {
      ASSERT_OK(journal->Append(Record(kind, op, i, clock.WallNow())));
    }
    clock.Advance(std::chrono::hours(7));
  }
  EXPECT_LE(journal->records().size(), 64U);
}

TEST(JournalTest, AWriteThatFailsLeavesAReadableJournal) {
  os::TempDir temp;
  ASSERT_OK_AND_ASSIGN(auto journal,
                       Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
  ASSERT_OK(journal->Append(Record(JournalRecord::KIND_ACCEPTED, "a", 5)));
  auto size = temp.dir().Stat(std::string(kName) + ".j")->st_size;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = static_cast<rlim_t>(size) + 5;  // the record fits in part
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status failed = journal->Append(Record(JournalRecord::KIND_STEP, "a", 5));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(failed.ok());
  ASSERT_OK(journal->Append(Record(JournalRecord::KIND_OUTCOME, "a", 5)));
  ASSERT_OK_AND_ASSIGN(auto again, Journal::Open(temp.dir(), kName, kBoot, Clock::Real(), nullptr));
  EXPECT_EQ(again->records().back().kind(), JournalRecord::KIND_OUTCOME);
}

}  // namespace
}  // namespace torpor::agent
