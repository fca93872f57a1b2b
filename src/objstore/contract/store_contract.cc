#include "objstore/contract/store_contract.h"

#include <thread>

#include "base/testing/matchers.h"

namespace torpor::objstore {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);

std::string StoreContract::Read(const std::string& key, ByteRange range) {
  std::string out;
  auto info = store_.Get(key, range, [&](std::string_view piece) {
    out.append(piece);
    return OkStatus();
  });
  EXPECT_OK(info);
  return out;
}

namespace {

std::string Pattern(size_t bytes, uint64_t seed) {
  std::string out(bytes, '\0');
  for (char& c : out) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(seed >> 56);
  }
  return out;
}

Status Ignore(std::string_view) { return OkStatus(); }

TEST_P(StoreContract, PutHeadGetRoundTrip) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{3000001}}) {
    std::string data = Pattern(bytes, bytes);
    ASSERT_OK(store_.Put("a/b/c", data));
    ASSERT_OK_AND_ASSIGN(ObjectInfo info, store_.Head("a/b/c"));
    EXPECT_EQ(info.key, "a/b/c");
    EXPECT_EQ(info.bytes, static_cast<int64_t>(bytes));
    EXPECT_TRUE(Read("a/b/c") == data);
  }
}

TEST_P(StoreContract, MissingObjects) {
  EXPECT_THAT(store_.Head("a"), HasCode(Code::kNotFound));
  EXPECT_THAT(store_.Get("a/b", {}, Ignore), HasCode(Code::kNotFound));
  EXPECT_THAT(store_.Copy("a", "b"), HasCode(Code::kNotFound));
  EXPECT_THAT(store_.Head("b"), HasCode(Code::kNotFound));
  EXPECT_OK(store_.Delete("a"));
}

TEST_P(StoreContract, APrefixIsNoObject) {
  ASSERT_OK(store_.Put("a/b", "x"));
  EXPECT_THAT(store_.Head("a"), HasCode(Code::kNotFound));
  EXPECT_THAT(store_.Get("a", {}, Ignore), HasCode(Code::kNotFound));
  EXPECT_OK(store_.Delete("a"));
  EXPECT_EQ(Read("a/b"), "x");
}

TEST_P(StoreContract, Ranges) {
  std::string data = Pattern(2500000, 7);
  ASSERT_OK(store_.Put("r", data));
  EXPECT_TRUE(Read("r", {0, 10}) == data.substr(0, 10));
  EXPECT_TRUE(Read("r", {1048570, 20}) == data.substr(1048570, 20));
  EXPECT_TRUE(Read("r", {5, -1}) == data.substr(5));
  EXPECT_TRUE(Read("r", {2499990, 100}) == data.substr(2499990));
  EXPECT_EQ(Read("r", {2500000, -1}), "");
  EXPECT_EQ(Read("r", {17, 0}), "");
  EXPECT_THAT(store_.Get("r", {2500001, 1}, Ignore), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(store_.Get("r", {-1, 1}, Ignore), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(store_.Get("r", {0, -2}, Ignore), HasCode(Code::kInvalidArgument));
}

TEST_P(StoreContract, TheSinkEndsAGet) {
  ASSERT_OK(store_.Put("r", Pattern(5000000, 1)));
  int pieces = 0;
  auto result = store_.Get("r", {}, [&](std::string_view) {
    ++pieces;
    return Error(Code::kCancelled, "CANCELLED", "enough");
  });
  EXPECT_THAT(result, HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_EQ(pieces, 1);
}

TEST_P(StoreContract, IfAbsent) {
  ASSERT_OK(store_.Put("k", "first", {.if_absent = true}));
  EXPECT_THAT(store_.Put("k", "second", {.if_absent = true}), HasCode(Code::kFailedPrecondition));
  EXPECT_EQ(Read("k"), "first");
  ASSERT_OK(store_.Put("k", "third"));
  EXPECT_EQ(Read("k"), "third");
}

TEST_P(StoreContract, IfAbsentHasOneWinner) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      if (store_.Put("race/k", std::to_string(i), {.if_absent = true}).ok()) ++winners;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(StoreContract, ReadersSeeWholeObjects) {
  const std::string a(300000, 'a');
  const std::string b(200000, 'b');
  ASSERT_OK(store_.Put("k", a));
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) EXPECT_OK(store_.Put("k", i % 2 == 0 ? b : a));
  });
  for (int i = 0; i < 200; ++i) {
    std::string seen = Read("k");
    EXPECT_TRUE(seen == a || seen == b) << seen.size();
  }
  writer.join();
}

TEST_P(StoreContract, Multipart) {
  const std::string data = Pattern(static_cast<size_t>(2 * kPartBytesMin + 12345), 3);
  const auto part = static_cast<size_t>(kPartBytesMin);
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m/x", kPartBytesMin));
  // The order of arrival does not matter, and a part may be sent again.
  ASSERT_OK(upload->PutPart(3, std::string_view(data).substr(2 * part)));
  ASSERT_OK(upload->PutPart(1, std::string_view(data).substr(part, part)));
  ASSERT_OK(upload->PutPart(2, std::string_view(data).substr(part, part)));
  ASSERT_OK(upload->PutPart(1, std::string_view(data).substr(0, part)));
  EXPECT_THAT(store_.Head("m/x"), HasCode(Code::kNotFound));
  ASSERT_OK(upload->Complete());
  EXPECT_TRUE(Read("m/x") == data);
}

TEST_P(StoreContract, MultipartRules) {
  EXPECT_THAT(store_.Begin("m", kPartBytesMin - 1).status(), HasCode(Code::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m", kPartBytesMin));
  EXPECT_THAT(upload->PutPart(0, "x"), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(upload->PutPart(kPartsMax + 1, "x"), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(upload->PutPart(1, std::string(static_cast<size_t>(kPartBytesMin) + 1, 'x')),
              HasCode(Code::kInvalidArgument));
  EXPECT_THAT(upload->Complete(), HasCode(Code::kInvalidArgument));
  ASSERT_OK(upload->PutPart(2, "x"));
  EXPECT_THAT(upload->Complete(), HasCode(Code::kInvalidArgument));
  ASSERT_OK(upload->PutPart(1, "short, but not the last"));
  EXPECT_THAT(upload->Complete(), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(store_.Head("m"), HasCode(Code::kNotFound));
}

TEST_P(StoreContract, MultipartAbortAndReplace) {
  {
    ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m", kPartBytesMin));
    ASSERT_OK(upload->PutPart(1, "x"));
    upload->Abort();
    upload->Abort();
  }
  EXPECT_THAT(store_.Head("m"), HasCode(Code::kNotFound));
  ASSERT_OK(store_.Put("m", "there"));
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "late"));
  EXPECT_EQ(Read("m"), "there");
  ASSERT_OK(upload->Complete());
  EXPECT_EQ(Read("m"), "late");
}

TEST_P(StoreContract, AnAbortedUploadTakesNothingMore) {
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "x"));
  upload->Abort();
  EXPECT_THAT(upload->PutPart(1, "x"), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(upload->Complete(), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(store_.Head("m"), HasCode(Code::kNotFound));
}

TEST_P(StoreContract, MultipartFromManyThreads) {
  constexpr size_t kParts = 6;
  const auto part = static_cast<size_t>(kPartBytesMin);
  const std::string data = Pattern(kParts * part - 1000, 5);
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin("m/threads", kPartBytesMin));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kParts; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_OK(
          upload->PutPart(static_cast<int>(i) + 1, std::string_view(data).substr(i * part, part)));
    });
  }
  for (std::thread& t : threads) t.join();
  ASSERT_OK(upload->Complete());
  EXPECT_TRUE(Read("m/threads") == data);
}

TEST_P(StoreContract, UploadsThatWereGivenUpAreNoObjects) {
  {
    ASSERT_OK_AND_ASSIGN(auto gone, store_.Begin("m/gone", kPartBytesMin));
    ASSERT_OK(gone->PutPart(1, std::string(static_cast<size_t>(kPartBytesMin), 'x')));
  }
  ASSERT_OK_AND_ASSIGN(auto open, store_.Begin("m/open", kPartBytesMin));
  ASSERT_OK(open->PutPart(1, "x"));
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(store_, "", 10));
  EXPECT_EQ(all.size(), 0u);
}

TEST_P(StoreContract, ListIsOrderedAndByWholeComponents) {
  for (const char* key : {"a/b", "a/b.c/d", "a/b-c", "ab/x", "a/z/1/2", "b"}) {
    ASSERT_OK(store_.Put(key, key));
  }
  auto keys = [&](const std::string& prefix) {
    std::vector<std::string> out;
    auto all = ListAll(store_, prefix, 100);
    EXPECT_OK(all);
    for (const ObjectInfo& info : *all) {
      EXPECT_EQ(info.bytes, static_cast<int64_t>(info.key.size()));
      out.push_back(info.key);
    }
    return out;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys(""), (Keys{"a/b", "a/b-c", "a/b.c/d", "a/z/1/2", "ab/x", "b"}));
  EXPECT_EQ(keys("a"), (Keys{"a/b", "a/b-c", "a/b.c/d", "a/z/1/2"}));
  EXPECT_EQ(keys("a/z"), (Keys{"a/z/1/2"}));
  EXPECT_EQ(keys("a/b"), Keys{});
  EXPECT_EQ(keys("none"), Keys{});
  EXPECT_THAT(ListAll(store_, "", 3), HasCode(Code::kResourceExhausted));
}

TEST_P(StoreContract, ListHasPages) {
  const int count = kListMax + 50;
  for (int i = 0; i < count; ++i) {
    ASSERT_OK(store_.Put(fmt::format("p/{:02}/{:05}", i % 7, i), ""));
  }
  ASSERT_OK_AND_ASSIGN(ListPage first, store_.List("p", ""));
  EXPECT_EQ(first.objects.size(), static_cast<size_t>(kListMax));
  EXPECT_NE(first.next_token, "");
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(store_, "p", 10000));
  std::set<std::string> seen;
  for (const ObjectInfo& info : all) seen.insert(info.key);
  EXPECT_EQ(seen.size(), static_cast<size_t>(count));
  EXPECT_EQ(all.size(), static_cast<size_t>(count));
  EXPECT_THAT(store_.List("p", "other/x").status(), HasCode(Code::kInvalidArgument));
}

TEST_P(StoreContract, DeleteAndCopy) {
  std::string data = Pattern(1500000, 9);
  ASSERT_OK(store_.Put("d/x", data));
  ASSERT_OK(store_.Copy("d/x", "e/f/y"));
  ASSERT_OK(store_.Copy("d/x", "d/x"));
  ASSERT_OK(store_.Delete("d/x"));
  ASSERT_OK(store_.Delete("d/x"));
  EXPECT_THAT(store_.Head("d/x"), HasCode(Code::kNotFound));
  EXPECT_TRUE(Read("e/f/y") == data);
}

TEST_P(StoreContract, PutsSurviveDeletesOfNeighbours) {
  std::atomic<bool> stop{false};
  std::thread deleter([&] {
    while (!stop) EXPECT_OK(store_.Delete("x/y/z/other"));
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_OK(store_.Put("x/y/z/mine", "v"));
    EXPECT_OK(store_.Delete("x/y/z/mine"));
  }
  stop = true;
  deleter.join();
}

TEST_P(StoreContract, EveryAllowedCharacter) {
  const std::string key = "aZ09/x._-~+=,:@/y";
  ASSERT_OK(store_.Put(key, "here"));
  EXPECT_EQ(Read(key), "here");
  ASSERT_OK(store_.Copy(key, key + "+copy"));
  EXPECT_EQ(Read(key + "+copy"), "here");
  ASSERT_OK_AND_ASSIGN(auto upload, store_.Begin(key + "=m", kPartBytesMin));
  ASSERT_OK(upload->PutPart(1, "parts"));
  ASSERT_OK(upload->Complete());
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(store_, "aZ09/x._-~+=,:@", 10));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].key, key);
  for (const ObjectInfo& info : all) EXPECT_OK(store_.Delete(info.key));
  ASSERT_OK_AND_ASSIGN(auto none, ListAll(store_, "", 10));
  EXPECT_EQ(none.size(), 0u);
}

TEST_P(StoreContract, BadKeys) {
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string(".."),
        std::string("a/../b"), std::string("./a"), std::string(".tmp/x"), std::string("a\0b", 3),
        std::string("a b"), std::string("\xff"), std::string(256, 'x'), std::string(1025, '/'),
        std::string("a?b"), std::string("a%2e")}) {
    EXPECT_THAT(store_.Put(key, "x"), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Head(key), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Get(key, {}, Ignore), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Delete(key), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Begin(key, kPartBytesMin).status(), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Copy(key, "b"), HasCode(Code::kInvalidArgument)) << key;
    EXPECT_THAT(store_.Copy("b", key), HasCode(Code::kInvalidArgument)) << key;
  }
}

TEST_P(StoreContract, ReadAllIsBounded) {
  ASSERT_OK(store_.Put("k", "12345"));
  ASSERT_OK_AND_ASSIGN(std::string text, ReadAll(store_, "k", 5));
  EXPECT_EQ(text, "12345");
  EXPECT_THAT(ReadAll(store_, "k", 4), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
}

}  // namespace
}  // namespace torpor::objstore
