#pragma once
// What every Store promises, as a typed test suite. A backend instantiates it with a factory:
//
//   struct Factory { std::unique_ptr<Store> Make(); std::unique_ptr<Store>
//   Reopen(std::unique_ptr<Store>); }; INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StoreContract,
//   Factory);

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/testing/matchers.h"
#include "control/store/store.h"

namespace torpor::control {

template <typename Factory>
class StoreContract : public ::testing::Test {
 protected:
  void SetUp() override { store = factory.Make(); }

  static Batch Put(Kind kind, std::string key, std::string value, int64_t expected) {
    Batch batch;
    batch.writes.push_back({kind, std::move(key), std::move(value), expected});
    return batch;
  }
  static torpor::v1::Event Event(const std::string& atespace, const std::string& name,
                                 int64_t seconds) {
    torpor::v1::Event event;
    event.set_event_id(name + std::to_string(seconds));
    event.mutable_actor()->set_atespace(atespace);
    event.mutable_actor()->set_name(name);
    event.set_node_name("n1");
    event.mutable_time()->set_seconds(seconds);
    return event;
  }
  static std::string Ids(const std::vector<StoredEvent>& events) {
    std::string out;
    for (const StoredEvent& event : events) out += event.event.event_id() + " ";
    return out;
  }
  static std::string Keys(const std::vector<Row>& rows) {
    std::string out;
    for (const Row& row : rows) out += row.key + " ";
    return out;
  }

  Factory factory;
  std::unique_ptr<Store> store;
};

TYPED_TEST_SUITE_P(StoreContract);

TYPED_TEST_P(StoreContract, PutGetDelete) {
  auto& store = *this->store;
  ASSERT_OK_AND_ASSIGN(auto none, store.Get(Kind::kActor, "demo/a"));
  EXPECT_FALSE(none.has_value());
  const std::string bytes("a\0b\xff", 4);
  ASSERT_OK(store.Commit(this->Put(Kind::kActor, "demo/a", bytes, 0)));
  ASSERT_OK_AND_ASSIGN(auto row, store.Get(Kind::kActor, "demo/a"));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->value, bytes);
  EXPECT_EQ(row->version, 1);
  ASSERT_OK_AND_ASSIGN(auto other, store.Get(Kind::kTag, "demo/a"));
  EXPECT_FALSE(other.has_value()) << "kinds are apart";
  ASSERT_OK(store.Commit(this->Put(Kind::kActor, "demo/a", "2", 1)));
  ASSERT_OK_AND_ASSIGN(row, store.Get(Kind::kActor, "demo/a"));
  EXPECT_EQ(row->version, 2);
  Batch remove;
  remove.writes.push_back({Kind::kActor, "demo/a", std::nullopt, 2});
  ASSERT_OK(store.Commit(remove));
  ASSERT_OK_AND_ASSIGN(row, store.Get(Kind::kActor, "demo/a"));
  EXPECT_FALSE(row.has_value());
}

TYPED_TEST_P(StoreContract, CompareAndSetIsAllOrNothing) {
  auto& store = *this->store;
  ASSERT_OK(store.Commit(this->Put(Kind::kActor, "a", "1", 0)));
  Batch batch = this->Put(Kind::kActor, "b", "1", 0);
  batch.writes.push_back({Kind::kActor, "a", "2", 7});
  batch.events.push_back(this->Event("demo", "a", 1));
  EXPECT_THAT(store.Commit(batch), HasReason(Code::kAborted, "VERSION_CONFLICT"));
  ASSERT_OK_AND_ASSIGN(auto b, store.Get(Kind::kActor, "b"));
  EXPECT_FALSE(b.has_value());
  ASSERT_OK_AND_ASSIGN(auto events, store.ListEvents({}));
  EXPECT_TRUE(events.empty());
  EXPECT_THAT(store.Commit(this->Put(Kind::kActor, "a", "2", 0)), HasCode(Code::kAborted));
  Batch remove;
  remove.writes.push_back({Kind::kActor, "a", std::nullopt, 3});
  EXPECT_THAT(store.Commit(remove), HasCode(Code::kAborted));
  remove.writes[0] = {Kind::kActor, "none", std::nullopt, 1};
  EXPECT_THAT(store.Commit(remove), HasCode(Code::kAborted));
  ASSERT_OK(store.Commit(this->Put(Kind::kActor, "a", "2", 1)));
}

TYPED_TEST_P(StoreContract, AnyVersionReplacesAndDeletes) {
  auto& store = *this->store;
  for (const char* value : {"1", "2"}) {
    ASSERT_OK(store.Commit(this->Put(Kind::kReport, "u/000", value, kAnyVersion)));
  }
  ASSERT_OK_AND_ASSIGN(auto row, store.Get(Kind::kReport, "u/000"));
  EXPECT_EQ(row->value, "2");
  EXPECT_EQ(row->version, 2);
  Batch remove;
  remove.writes.push_back({Kind::kReport, "u/000", std::nullopt, kAnyVersion});
  ASSERT_OK(store.Commit(remove));
  ASSERT_OK(store.Commit(remove)) << "nothing there is no conflict";
}

TYPED_TEST_P(StoreContract, ScanByPrefixInPages) {
  auto& store = *this->store;
  Batch batch;
  for (const char* key : {"b/1", "a/1", "a/2", "a/3", "a0", "c/1"}) {
    batch.writes.push_back({Kind::kActor, key, "x", 0});
  }
  batch.writes.push_back({Kind::kTag, "a/9", "x", 0});
  ASSERT_OK(store.Commit(batch));
  ASSERT_OK_AND_ASSIGN(auto all, store.Scan(Kind::kActor, "", "", 100));
  EXPECT_EQ(this->Keys(all), "a/1 a/2 a/3 a0 b/1 c/1 ");
  ASSERT_OK_AND_ASSIGN(auto page, store.Scan(Kind::kActor, "a/", "", 2));
  EXPECT_EQ(this->Keys(page), "a/1 a/2 ");
  ASSERT_OK_AND_ASSIGN(page, store.Scan(Kind::kActor, "a/", "a/2", 2));
  EXPECT_EQ(this->Keys(page), "a/3 ");
  ASSERT_OK_AND_ASSIGN(page, store.Scan(Kind::kActor, "d", "", 2));
  EXPECT_TRUE(page.empty());
}

TYPED_TEST_P(StoreContract, EventsNewestFirstWithFilters) {
  auto& store = *this->store;
  Batch batch;
  for (int i = 1; i <= 5; ++i) batch.events.push_back(this->Event("demo", "a", i));
  batch.events.push_back(this->Event("demo", "b", 6));
  batch.events.push_back(this->Event("other", "a", 7));
  ASSERT_OK(store.Commit(batch));
  EventQuery query;
  ASSERT_OK_AND_ASSIGN(auto events, store.ListEvents(query));
  EXPECT_EQ(this->Ids(events), "a7 b6 a5 a4 a3 a2 a1 ");
  query.atespace = "demo";
  query.limit = 2;
  ASSERT_OK_AND_ASSIGN(events, store.ListEvents(query));
  EXPECT_EQ(this->Ids(events), "b6 a5 ");
  query.before_sequence = events.back().sequence;
  ASSERT_OK_AND_ASSIGN(events, store.ListEvents(query));
  EXPECT_EQ(this->Ids(events), "a4 a3 ");
  query = {};
  query.atespace = "demo";
  query.actor_name = "a";
  query.node_name = "n1";
  query.start = WallTime(std::chrono::seconds(2));
  query.end = WallTime(std::chrono::seconds(4));
  ASSERT_OK_AND_ASSIGN(events, store.ListEvents(query));
  EXPECT_EQ(this->Ids(events), "a3 a2 ");
  query.node_name = "n2";
  ASSERT_OK_AND_ASSIGN(events, store.ListEvents(query));
  EXPECT_TRUE(events.empty());
}

TYPED_TEST_P(StoreContract, TrimKeepsTheNewest) {
  auto& store = *this->store;
  Batch batch;
  for (int i = 1; i <= 6; ++i) batch.events.push_back(this->Event("demo", "a", i));
  batch.events.push_back(this->Event("other", "a", 7));
  ASSERT_OK(store.Commit(batch));
  ASSERT_OK(store.TrimEvents(WallTime(std::chrono::seconds(3)), 2));
  ASSERT_OK_AND_ASSIGN(auto events, store.ListEvents({}));
  EXPECT_EQ(this->Ids(events), "a7 a6 a5 ");
}

TYPED_TEST_P(StoreContract, ReopenedStoreHasEverything) {
  ASSERT_OK(this->store->Commit(this->Put(Kind::kActor, "a", "1", 0)));
  Batch batch = this->Put(Kind::kActor, "a", "2", 1);
  batch.events.push_back(this->Event("demo", "a", 1));
  ASSERT_OK(this->store->Commit(batch));
  this->store = this->factory.Reopen(std::move(this->store));
  ASSERT_OK_AND_ASSIGN(auto row, this->store->Get(Kind::kActor, "a"));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->value, "2");
  EXPECT_EQ(row->version, 2);
  ASSERT_OK_AND_ASSIGN(auto events, this->store->ListEvents({}));
  ASSERT_EQ(events.size(), 1u);
  batch = Batch();
  batch.events.push_back(this->Event("demo", "a", 2));
  ASSERT_OK(this->store->Commit(batch));
  ASSERT_OK_AND_ASSIGN(auto more, this->store->ListEvents({}));
  EXPECT_GT(more[0].sequence, events[0].sequence);
}

TYPED_TEST_P(StoreContract, WhatIsNotDurableSurvivesTheProcess) {
  Batch batch = this->Put(Kind::kActor, "a", "1", 0);
  batch.durable = false;
  ASSERT_OK(this->store->Commit(batch));
  ASSERT_OK_AND_ASSIGN(auto now, this->store->Get(Kind::kActor, "a"));
  ASSERT_TRUE(now.has_value());
  this->store = this->factory.Reopen(std::move(this->store));
  ASSERT_OK_AND_ASSIGN(auto row, this->store->Get(Kind::kActor, "a"));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->value, "1");
  batch = this->Put(Kind::kActor, "a", "2", 7);
  batch.durable = false;
  EXPECT_THAT(this->store->Commit(batch), HasReason(Code::kAborted, "VERSION_CONFLICT"));
}

REGISTER_TYPED_TEST_SUITE_P(StoreContract, PutGetDelete, CompareAndSetIsAllOrNothing,
                            AnyVersionReplacesAndDeletes, ScanByPrefixInPages,
                            EventsNewestFirstWithFilters, TrimKeepsTheNewest,
                            ReopenedStoreHasEverything, WhatIsNotDurableSurvivesTheProcess);

}  // namespace torpor::control
