#include "control/store/memory/memory_store.h"

#include "control/store/contract/store_contract.h"

namespace torpor::control {
namespace {

struct MemoryFactory {
  std::unique_ptr<Store> Make() { return std::make_unique<MemoryStore>(); }
  // Its life is that of the object: the next control plane gets the same one.
  std::unique_ptr<Store> Reopen(std::unique_ptr<Store> store) { return store; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StoreContract, MemoryFactory);

}  // namespace
}  // namespace torpor::control
