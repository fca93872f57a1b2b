#pragma once
// SHA-256 of a stream and of a string. A Sha256 belongs to one thread.

#include <memory>
#include <string>
#include <string_view>

namespace torpor::snapshot {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::string_view bytes);
  std::string Finish();     // 32 bytes; one of the two is called, once
  std::string FinishHex();  // 64 lower-case digits

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Hex(std::string_view bytes);
// 64 lower-case hex digits.
bool IsSha256Hex(std::string_view text);

}  // namespace torpor::snapshot
