#include "objstore/object_store.h"

#include "model/reasons.h"

namespace torpor::objstore {

bool IsObjectKey(std::string_view key) {
  if (key.empty() || key.size() > 1024) return false;
  auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-~+=,:@").find(c) != std::string_view::npos;
  };
  bool at_start = true;
  size_t component_bytes = 0;
  for (char c : key) {
    if (c == '/') {
      if (at_start) return false;
      at_start = true;
      component_bytes = 0;
      continue;
    }
    if (!allowed(c) || (at_start && c == '.') || ++component_bytes > 255) return false;
    at_start = false;
  }
  return !at_start;
}

StatusOr<std::string> ReadAll(ObjectStore& store, const std::string& key, int64_t bytes_max) {
  std::string out;
  // One byte more than allowed tells "too large" from "exactly the limit".
  ASSIGN_OR_RETURN(ObjectInfo info, store.Get(key, {0, bytes_max + 1}, [&](std::string_view piece) {
    out.append(piece);
    return OkStatus();
  }));
  if (info.bytes > bytes_max) {
    return Error(
        Code::kDataLoss, "SNAPSHOT_CORRUPT",
        fmt::format("{} has {} bytes; at most {} are allowed", key, info.bytes, bytes_max));
  }
  if (static_cast<int64_t>(out.size()) != info.bytes) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("{} was cut at {} of {} bytes", key, out.size(), info.bytes));
  }
  return out;
}

StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store, const std::string& prefix,
                                          size_t objects_max) {
  std::vector<ObjectInfo> out;
  std::string token;
  do {
    ASSIGN_OR_RETURN(ListPage page, store.List(prefix, token));
    out.insert(out.end(), page.objects.begin(), page.objects.end());
    if (out.size() > objects_max) {
      return Fail(reasons::kRateLimited,
                  fmt::format("more than {} objects below {}", objects_max, prefix));
    }
    token = page.next_token;
  } while (!token.empty());
  return out;
}

}  // namespace torpor::objstore
