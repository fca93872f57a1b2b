#include "objstore/probe.h"

#include "base/uuid.h"
#include "model/reasons.h"

namespace torpor::objstore {

Status ProbeStorage(const StoreRegistry& stores, std::string_view uri) {
  ASSIGN_OR_RETURN(Place at, stores.Resolve(uri));
  RETURN_IF_ERROR(at.store->List(at.key, "").status());
  const std::string text = RandomHex(16);
  const std::string key = (at.key.empty() ? "" : at.key + "/") + "torpor-probe-" + text;
  RETURN_IF_ERROR(at.store->Put(key, text));
  auto there = ReadAll(*at.store, key, static_cast<int64_t>(text.size()));
  RETURN_IF_ERROR(at.store->Delete(key));
  RETURN_IF_ERROR(there.status());
  if (*there == text) return OkStatus();
  return Fail(reasons::kObjectStorageUnavailable,
              fmt::format("{} did not read back as it was written; check the store", key));
}

}  // namespace torpor::objstore
