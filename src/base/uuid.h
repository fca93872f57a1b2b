#pragma once
// Random identifiers. The source is injected, so that tests and the simulator can repeat a run.

#include <string>
#include <string_view>

#include "base/sync.h"

namespace torpor {

// Thread-safe.
class IdSource {
 public:
  virtual ~IdSource() = default;
  virtual std::string NewUuid() = 0;  // lower case, 8-4-4-4-12, version 4
  static IdSource* Real();            // getrandom(2)
};

// 00000000-0000-4000-8000-000000000001, ...2, ...
class SequentialIds : public IdSource {
 public:
  std::string NewUuid() override EXCLUDES(mu_);

 private:
  Mutex mu_;
  uint64_t next_ GUARDED_BY(mu_) = 1;
};

// True for the lower-case 8-4-4-4-12 form.
bool IsUuid(std::string_view text);
// `bytes` random bytes from getrandom(2), as lower-case hex.
std::string RandomHex(size_t bytes);

}  // namespace torpor
