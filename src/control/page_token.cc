#include "control/page_token.h"

#include <array>

#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr size_t kTokenMax = 256;
constexpr size_t kHashBytes = 8;

// FNV-1a: tells lists and damage apart; a token is no secret and no proof.
uint64_t Hash(std::string_view text, uint64_t hash = 14695981039346656037ULL) {
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

std::string HashBytes(std::string_view binding, std::string_view position) {
  uint64_t hash = Hash(position, Hash(binding) * 31);
  std::string bytes(kHashBytes, '\0');
  for (char& b : bytes) {
    b = static_cast<char>(hash & 0xff);
    hash >>= 8;
  }
  return bytes;
}

std::string Encode(std::string_view bytes) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (unsigned char c : bytes) {
    bits = (bits << 8) | c;
    count += 8;
    while (count >= 6) {
      count -= 6;
      out += kAlphabet[(bits >> count) & 63];
    }
  }
  if (count > 0) out += kAlphabet[(bits << (6 - count)) & 63];
  return out;
}

bool Decode(std::string_view text, std::string* out) {
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return false;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out->push_back(static_cast<char>((bits >> count) & 0xff));
    }
  }
  return true;
}

}  // namespace

std::string MakePageToken(std::string_view binding, std::string_view position) {
  return Encode(HashBytes(binding, position) + std::string(position));
}

StatusOr<std::string> ReadPageToken(std::string_view binding, std::string_view token) {
  if (token.empty()) return std::string();
  std::string bytes;
  if (token.size() <= kTokenMax && Decode(token, &bytes) && bytes.size() > kHashBytes) {
    std::string position = bytes.substr(kHashBytes);
    if (bytes.compare(0, kHashBytes, HashBytes(binding, position)) == 0) return position;
  }
  return Fail(reasons::kPageTokenInvalid,
              "page_token is damaged or of another list; list again from the start");
}

StatusOr<int> PageSize(int asked) {
  constexpr int kMax = 1000;
  if (asked < 0) {
    return InvalidFields(reasons::kFieldInvalid.name, {{"page_size", "must not be negative"}});
  }
  return asked == 0 || asked > kMax ? kMax : asked;
}

}  // namespace torpor::control
