#include "objstore/faulty/faulty_store.h"

#include "base/testing/matchers.h"
#include "objstore/contract/store_contract.h"
#include "objstore/memory/memory_store.h"

namespace torpor::objstore {
namespace {

// Without a fault it is as good as the store inside.
StoreUnderTest Make() {
  auto inner = std::make_shared<MemoryStore>();
  return {inner, std::make_unique<FaultyStore>(inner.get(),
                                               [](const FaultyRequest&) { return Fault::kNone; })};
}

INSTANTIATE_TEST_SUITE_P(Faulty, StoreContract, testing::Values(&Make));

TEST(FaultyStoreTest, EachFault) {
  MemoryStore inner;
  Fault fault = Fault::kNone;
  FaultyStore store(&inner, [&](const FaultyRequest&) { return fault; });
  ASSERT_OK(store.Put("k", "12345678"));
  fault = Fault::kRefused;
  EXPECT_THAT(store.Put("new", "x"), HasCode(Code::kUnavailable));
  EXPECT_THAT(inner.Head("new"), HasCode(Code::kNotFound));
  fault = Fault::kThrottled;
  EXPECT_THAT(store.Begin("new", kPartBytesMin).status(), HasCode(Code::kResourceExhausted));
  fault = Fault::kLostAnswer;
  EXPECT_THAT(store.Put("done", "x"), HasCode(Code::kUnavailable));
  EXPECT_OK(inner.Head("done"));
  std::string got;
  auto get = [&] {
    got.clear();
    return store.Get("k", {}, [&](std::string_view piece) {
      got.append(piece);
      return OkStatus();
    });
  };
  fault = Fault::kCutBody;
  ASSERT_OK(get());
  EXPECT_EQ(got, "1234");
  fault = Fault::kFlippedBit;
  ASSERT_OK(get());
  EXPECT_EQ(got, "12344678");
  fault = Fault::kNone;
  ASSERT_OK(store.FreezeLists());
  ASSERT_OK(store.Delete("k"));
  ASSERT_OK_AND_ASSIGN(auto all, ListAll(store, "", 10));
  EXPECT_EQ(all.size(), 2u);
}

}  // namespace
}  // namespace torpor::objstore
