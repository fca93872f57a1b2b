#include "objstore/registry.h"

#include "model/reasons.h"
#include "objstore/file/file_store.h"
#include "objstore/xml/remote_stores.h"

namespace torpor::objstore {
namespace {

Status Denied(std::string_view message) { return Fail(reasons::kStoreDenied, message); }

StatusOr<StoreRegistry::Opener> FileOpener(const std::string& root) {
  ASSIGN_OR_RETURN(Uri root_uri, ParseUri("file://" + root));
  ASSIGN_OR_RETURN(std::shared_ptr<FileStore> store, FileStore::Open(root));
  return StoreRegistry::Opener([root_uri, store](const Uri& uri) -> StatusOr<Place> {
    if (!IsAtOrBelow(uri, root_uri)) {
      return Denied(
          fmt::format("file:///{} is outside the store of this installation; use an "
                      "address below its store root",
                      uri.path));
    }
    if (uri.path == root_uri.path) return Place{store, ""};
    size_t skip = root_uri.path.empty() ? 0 : root_uri.path.size() + 1;
    return Place{store, uri.path.substr(skip)};
  });
}

}  // namespace

void StoreRegistry::Add(std::string_view scheme, Opener opener) {
  openers_.insert_or_assign(std::string(scheme), std::move(opener));
}

StatusOr<Place> StoreRegistry::Resolve(std::string_view uri) const {
  ASSIGN_OR_RETURN(Uri parsed, ParseUri(uri));
  return Resolve(parsed);
}

StatusOr<Place> StoreRegistry::Resolve(const Uri& uri) const {
  auto it = openers_.find(uri.scheme);
  if (it == openers_.end()) {
    std::string known;
    for (const auto& [scheme, opener] : openers_) known += (known.empty() ? "" : ", ") + scheme;
    return Denied(
        fmt::format("storage of the scheme {} is not served here; served: {}", uri.scheme, known));
  }
  return it->second(uri);
}

StatusOr<StoreRegistry> StandardStores(const StoreOptions& options) {
  StoreRegistry stores;
  if (!options.file_root.empty()) {
    ASSIGN_OR_RETURN(StoreRegistry::Opener opener, FileOpener(options.file_root));
    stores.Add("file", std::move(opener));
  }
  std::map<std::string, std::vector<Uri>> by_scheme;
  for (const std::string& address : options.addresses) {
    ASSIGN_OR_RETURN(Uri uri, ParseUri(address));
    by_scheme[uri.scheme].push_back(std::move(uri));
  }
  for (const Dialect* dialect : {&kS3Dialect, &kGcsDialect}) {
    std::vector<Uri>& uris = by_scheme[dialect->scheme];
    if (uris.empty()) continue;
    ASSIGN_OR_RETURN(StoreRegistry::Opener opener,
                     RemoteOpener(*dialect, options.remote, std::move(uris), ReadEnvironment));
    stores.Add(dialect->scheme, std::move(opener));
  }
  return stores;
}

}  // namespace torpor::objstore
