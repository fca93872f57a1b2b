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
#include <vector>

#include "base/status.h"
#include "base/time.h"
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

// Where buckets are and who asks for them. Credentials themselves are no settings.
struct RemoteOptions {
  std::string s3_endpoint;             // empty = Amazon's of the region
  std::string s3_region;               // empty = as the environment says, else us-east-1
  std::string s3_addressing = "auto";  // path, virtual; auto = path at an endpoint of one's own
  std::string s3_credentials_file;  // empty = the environment, the usual file, this machine's role
  std::string s3_profile;
  std::string gcs_endpoint;          // empty = Google's
  std::string gcs_credentials_file;  // empty = the environment, this machine's service account
  Duration give_up_after = std::chrono::seconds(30);  // of a request that fails again and again
};

struct StoreOptions {
  std::string file_root;  // absolute directory that holds every file:// object; empty = no files
  // At or below which objects may lie; those of file:// are bounded by the root and count for
  // nothing here.
  std::vector<std::string> addresses;
  RemoteOptions remote;
};

// The stores that this program serves. Errors are those of opening the file root, and
// INVALID_ARGUMENT for a bad address or setting.
StatusOr<StoreRegistry> StandardStores(const StoreOptions& options);

}  // namespace torpor::objstore
