#include "base/quantity.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace torpor {
namespace {

// The value of a quantity times `multiplier`, rounded up. Long double keeps 64 bits of mantissa,
// which is exact for every quantity that fits an int64.
StatusOr<int64_t> Parse(std::string_view text, long double multiplier) {
  auto bad = [&] {
    return Error(
        Code::kInvalidArgument, "FIELD_INVALID",
        fmt::format("'{}' is not a quantity above 0; write it like 512Mi, 2Gi, 500m or 1.5",
                    std::string(text)));
  };
  size_t i = 0;
  int digits = 0;
  long double value = 0;
  long double fraction = 0.1L;
  bool point = false;
  for (; i < text.size(); ++i) {
    char c = text[i];
    if (c >= '0' && c <= '9') {
      ++digits;
      if (point) {
        value += (c - '0') * fraction;
        fraction /= 10;
      } else {
        value = value * 10 + (c - '0');
      }
    } else if (c == '.' && !point) {
      point = true;
    } else {
      break;
    }
  }
  if (digits == 0 || digits > 30) return bad();
  std::string_view suffix = text.substr(i);
  static constexpr std::pair<std::string_view, long double> kSuffixes[] = {
      {"", 1.0L},
      {"n", 1e-9L},
      {"u", 1e-6L},
      {"m", 1e-3L},
      {"k", 1e3L},
      {"M", 1e6L},
      {"G", 1e9L},
      {"T", 1e12L},
      {"P", 1e15L},
      {"E", 1e18L},
      {"Ki", 1024.0L},
      {"Mi", 1048576.0L},
      {"Gi", 1073741824.0L},
      {"Ti", 1099511627776.0L},
      {"Pi", 1125899906842624.0L},
      {"Ei", 1152921504606846976.0L}};
  bool known = false;
  for (const auto& [name, scale] : kSuffixes) {
    if (suffix == name) {
      value *= scale;
      known = true;
    }
  }
  if (!known && (suffix[0] == 'e' || suffix[0] == 'E')) {
    int exponent = 0;
    std::string_view number = suffix.substr(1);
    if (!number.empty() && number[0] == '+') number.remove_prefix(1);
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), exponent);
    if (error != std::errc() || end != number.data() + number.size() || std::abs(exponent) > 30) {
      return bad();
    }
    value *= powl(10.0L, exponent);
    known = true;
  }
  // A decimal like 0.1 is slightly off in binary; without the nudge 100m would round up to 101.
  long double scaled = std::ceil(value * multiplier - 1e-9L);
  if (!known || value <= 0 || scaled >= 9.2e18L) return bad();
  return static_cast<int64_t>(scaled);
}

}  // namespace

StatusOr<int64_t> ParseMilli(std::string_view quantity) { return Parse(quantity, 1000); }

StatusOr<int64_t> ParseBytes(std::string_view quantity) { return Parse(quantity, 1); }

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{:.4g}{}", value, kUnits[unit]);
}

}  // namespace torpor
