#include "workloads/glutton/quantity.h"

#include <cstddef>

#include "workloads/base/flags.h"

namespace torpor::workloads::glutton {
namespace {

struct Scale {
  int binary = 0;   // power of two
  int decimal = 0;  // power of ten
};

std::optional<Scale> ParseSuffix(std::string_view suffix) {
  static constexpr std::string_view kBinary = "KMGTPE";
  static constexpr std::string_view kDecimal = "kMGTPE";
  if (suffix.empty()) return Scale{};
  if (suffix.size() == 2 && suffix[1] == 'i') {
    const size_t power = kBinary.find(suffix[0]);
    if (power == std::string_view::npos) return std::nullopt;
    return Scale{static_cast<int>(10 * (power + 1)), 0};
  }
  if (suffix.size() == 1) {
    if (suffix == "n") return Scale{0, -9};
    if (suffix == "u") return Scale{0, -6};
    if (suffix == "m") return Scale{0, -3};
    const size_t power = kDecimal.find(suffix[0]);
    if (power == std::string_view::npos) return std::nullopt;
    return Scale{0, static_cast<int>(3 * (power + 1))};
  }
  if (suffix[0] != 'e' && suffix[0] != 'E') return std::nullopt;
  std::string_view digits = suffix.substr(1);
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  int64_t exponent = 0;
  if (!ParseInteger(digits, 0, 18, &exponent)) return std::nullopt;
  return Scale{0, static_cast<int>(negative ? -exponent : exponent)};
}

}  // namespace

std::optional<int64_t> ParseQuantity(std::string_view text) {
  constexpr int kMaxDigits = 18;
  constexpr auto kMax = static_cast<__int128>(INT64_MAX);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  __int128 value = 0;
  int digits = 0;
  int fraction = -1;  // digits after the point; -1 before it
  size_t used = 0;
  for (; used < text.size(); ++used) {
    const char c = text[used];
    if (c == '.' && fraction < 0) {
      fraction = 0;
    } else if (c >= '0' && c <= '9' && digits < kMaxDigits) {
      value = value * 10 + (c - '0');
      ++digits;
      if (fraction >= 0) ++fraction;
    } else {
      break;
    }
  }
  const std::optional<Scale> scale = ParseSuffix(text.substr(used));
  if (digits == 0 || !scale) return std::nullopt;
  // 18 digits times 2^60 stay below 2^127, and so do 18 digits times 10^18.
  value <<= scale->binary;
  int decimal = scale->decimal - (fraction > 0 ? fraction : 0);
  for (; decimal > 0; --decimal) value *= 10;
  for (; decimal < 0; ++decimal) value = (value + 9) / 10;
  if (value > kMax) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace torpor::workloads::glutton
