#pragma once
// Which store serves an address. A new store is one folder and one line in StandardStores.
//
// StoreRegistry is filled at start and read-only afterwards; then Resolve is thread-safe. Stores
// live as long as any Place that names them.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "objstore/object_store.h"
#include "objstore/uri.h"

namespace torpor::objstore {

struct Place {
  std::shared_ptr<ObjectStore> store;
  std::string key;  // of the address in that store; may be empty for its root
};

class StoreRegistry {
 public:
  // Finds the place of an address of its scheme. PERMISSION_DENIED STORE_DENIED: not served here.
  using Opener = std::function<StatusOr<Place>(const Uri& uri)>;

  void Add(std::string_view scheme, Opener opener);
  // INVALID_ARGUMENT for a malformed address, PERMISSION_DENIED STORE_DENIED for an unknown scheme.
  StatusOr<Place> Resolve(std::string_view uri) const;
  StatusOr<Place> Resolve(const Uri& uri) const;

 private:
  std::map<std::string, Opener, std::less<>> openers_;
};

struct StoreOptions {
  std::string file_root;  // absolute directory that holds every file:// object; empty = no files
};

// The stores that this program serves. Errors are those of opening the file root.
StatusOr<StoreRegistry> StandardStores(const StoreOptions& options);

}  // namespace torpor::objstore
