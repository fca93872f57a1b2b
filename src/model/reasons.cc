#include "model/reasons.h"

#include <set>

namespace torpor {

Status Fail(const Reason& reason, std::string_view message, ErrorMetadata metadata) {
  Status status = Error(reason.code, reason.name, message, std::move(metadata));
  if (reason.retry_ms > 0) SetRetryAfterMs(status, reason.retry_ms);
  return status;
}

const std::vector<Reason>& AllReasons() {
#define TORPOR_LIST_REASON(id, name, code, retry) reasons::id,
  static const std::vector<Reason> kAll = {TORPOR_REASONS(TORPOR_LIST_REASON)};
#undef TORPOR_LIST_REASON
  return kAll;
}

bool IsCrashReason(std::string_view name) {
  static const std::set<std::string_view> kCrash = [] {
    std::set<std::string_view> names = {"SNAPSHOT_CORRUPT", "LOCAL_SNAPSHOT_GONE",
                                        "FAILED_GET_EXTERNAL_OBJECT"};
    for (const Reason& reason : AllReasons()) {
      if (reason.code == Code::kInternal && std::string_view(reason.name) != "INTERNAL") {
        names.insert(reason.name);
      }
    }
    return names;
  }();
  return kCrash.count(name) != 0;
}

}  // namespace torpor
