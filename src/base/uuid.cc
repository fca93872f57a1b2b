#include "base/uuid.h"

#include <sys/random.h>

#include <vector>

#include <fmt/format.h>

#include "base/log.h"

namespace torpor {
namespace {

std::vector<unsigned char> RandomBytes(size_t n) {
  std::vector<unsigned char> out(n);
  size_t done = 0;
  while (done < n) {
    ssize_t got = getrandom(out.data() + done, n - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
  }
  return out;
}

class RealIds : public IdSource {
 public:
  std::string NewUuid() override {
    auto b = RandomBytes(16);
    b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
    b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
    std::string out;
    for (size_t i = 0; i < b.size(); ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
      out += fmt::format("{:02x}", b[i]);
    }
    return out;
  }
};

}  // namespace

IdSource* IdSource::Real() {
  static RealIds ids;
  return &ids;
}

std::string SequentialIds::NewUuid() {
  MutexLock lock(&mu_);
  return fmt::format("00000000-0000-4000-8000-{:012x}", next_++);
}

bool IsUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return false;
    } else if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) {
      return false;
    }
  }
  return true;
}

std::string RandomHex(size_t bytes) {
  std::string out;
  for (unsigned char b : RandomBytes(bytes)) out += fmt::format("{:02x}", b);
  return out;
}

}  // namespace torpor
