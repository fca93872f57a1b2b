#pragma once
// What every object store must do. A backend's test instantiates the suite with a factory:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, testing::Values(+[] { ... }));

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "objstore/object_store.h"

namespace torpor::objstore {

// A store and whatever it needs to live; empty at first.
struct StoreUnderTest {
  std::shared_ptr<void> resources;
  std::unique_ptr<ObjectStore> store;
};
using MakeStore = StoreUnderTest (*)();

class StoreContract : public testing::TestWithParam<MakeStore> {
 protected:
  StoreContract() : under_test_(GetParam()()), store_(*under_test_.store) {}
  std::string Read(const std::string& key, ByteRange range = {});

  StoreUnderTest under_test_;
  ObjectStore& store_;
};

}  // namespace torpor::objstore
