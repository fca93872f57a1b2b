#include "objstore/memory/memory_store.h"

#include "objstore/contract/store_contract.h"

namespace torpor::objstore {
namespace {

StoreUnderTest Make() { return {nullptr, std::make_unique<MemoryStore>()}; }

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, testing::Values(&Make));

}  // namespace
}  // namespace torpor::objstore
