#include "api/validate/field.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/quantity.h"
#include "base/uuid.h"
#include "model/names.h"

namespace torpor::api {
namespace {

// Handles what all string formats share; true when the format itself is to be checked.
bool Present(const Field& field, const std::string& value, Need need) {
  if (value.empty()) {
    if (need == Need::kSet) field.Fail("must be set");
    return false;
  }
  if (need == Need::kEmpty) field.Fail("must be empty here");
  return need != Need::kEmpty;
}

bool IsRepositoryName(std::string_view name) {
  // A host part may carry a port; the path is lower case with the separators . _ - inside.
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view piece = name.substr(begin, end - begin);
    if (piece.empty() || piece.front() == '.' || piece.front() == '-') return false;
    begin = end + 1;
  }
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
           c == '/' || c == ':' || c == '[' || c == ']' || (c >= 'A' && c <= 'Z');
  });
}

}  // namespace

Field Field::At(std::string_view name) const {
  return Field(violations_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name));
}

Field Field::At(int index) const { return Field(violations_, fmt::format("{}[{}]", path_, index)); }

void Field::FailWith(std::string_view reason, std::string_view description) const {
  violations_->push_back({std::string(reason), {path_, std::string(description)}});
}

size_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void CheckLabel(const Field& field, const std::string& value, Need need) {
  if (!Present(field, value, need) || IsLabel(value)) return;
  std::string text =
      "must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";
  if (std::string near = NearestLabel(value); !near.empty()) text += "; '" + near + "' would do";
  field.Fail(text);
}

void CheckSubdomain(const Field& field, const std::string& value, Need need) {
  if (!Present(field, value, need) || IsSubdomain(value)) return;
  field.Fail("must be DNS labels joined by '.', at most 253 characters");
}

void CheckUuid(const Field& field, const std::string& value, Need need) {
  if (!Present(field, value, need) || IsUuid(value)) return;
  field.Fail("must be a lower case uuid");
}

void CheckText(const Field& field, const std::string& value, size_t max, Need need) {
  if (!Present(field, value, need)) return;
  if (Characters(value) > max) field.Fail(fmt::format("must have at most {} characters", max));
  if (value.find('\0') != std::string::npos) field.Fail("must not contain NUL");
}

void CheckCount(const Field& field, int count, int min, int max) {
  if (count >= min && count <= max) return;
  field.Fail(min == 0 ? fmt::format("must have at most {} elements", max)
                      : fmt::format("must have {} to {} elements", min, max));
}

void CheckRange(const Field& field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  field.Fail(fmt::format("must be from {} to {}", min, max));
}

void CheckDuration(const Field& field, const google::protobuf::Duration& value, Duration min,
                   Duration max, bool zero) {
  constexpr int64_t kSecondsMax = 315576000000;  // google/protobuf/duration.proto
  if (std::abs(value.seconds()) > kSecondsMax || std::abs(value.nanos()) > 999999999 ||
      (value.seconds() > 0 && value.nanos() < 0) || (value.seconds() < 0 && value.nanos() > 0)) {
    field.Fail("is no valid duration");
    return;
  }
  // Compared in seconds first: not every valid duration fits 64-bit nanoseconds.
  const std::pair<int64_t, int64_t> v(value.seconds(), value.nanos());
  auto split = [](Duration d) {
    return std::pair<int64_t, int64_t>(d.count() / 1000000000, d.count() % 1000000000);
  };
  if (zero && v == std::pair<int64_t, int64_t>(0, 0)) return;
  if (v >= split(min) && v <= split(max)) return;
  field.Fail(fmt::format("must be {}{} to {}", zero && min.count() > 0 ? "0 or " : "",
                         min.count() == 0 ? "0s" : FormatDuration(min), FormatDuration(max)));
}

void CheckQuantity(const Field& field, const std::string& value) {
  if (!Present(field, value, Need::kSet)) return;
  if (value.size() > 32) {
    field.Fail("must have at most 32 characters");
  } else if (auto parsed = ParseBytes(value); !parsed.ok()) {
    field.Fail("must be a quantity above 0 such as 512Mi, 2, 250m");
  }
}

void CheckImage(const Field& field, const std::string& value) {
  if (!Present(field, value, Need::kSet)) return;
  if (Characters(value) > 512) {
    field.Fail("must have at most 512 characters");
    return;
  }
  const size_t at = value.find('@');
  if (at == std::string::npos || !IsSha256Digest(std::string_view(value).substr(at + 1))) {
    field.Fail("must be pinned by digest: NAME@sha256:<64 hex digits>");
  } else if (!IsRepositoryName(std::string_view(value).substr(0, at))) {
    field.Fail("must be an image reference: [HOST[:PORT]/]PATH[:TAG]@sha256:<64 hex digits>");
  }
}

void CheckRef(const Field& field, bool present, const ateapi::ObjectRef& ref, Scope scope) {
  if (!present) {
    field.Fail("must be set");
    return;
  }
  CheckLabel(field.At("atespace"), ref.atespace(),
             scope == Scope::kAtespaced ? Need::kSet : Need::kEmpty);
  CheckLabel(field.At("name"), ref.name(), Need::kSet);
}

void CheckMetadata(const Field& field, bool present, const ateapi::ResourceMetadata& metadata,
                   Scope scope, bool update) {
  if (!present) {
    field.Fail("must be set");
    return;
  }
  CheckLabel(field.At("atespace"), metadata.atespace(),
             scope == Scope::kAtespaced ? Need::kSet : Need::kEmpty);
  CheckLabel(field.At("name"), metadata.name(), Need::kSet);
  if (!update) return;
  if (metadata.uid().empty()) {
    field.At("uid").FailWith("PRECONDITION_MISSING", "must be the uid that was read");
  } else {
    CheckUuid(field.At("uid"), metadata.uid(), Need::kSet);
  }
  if (metadata.version() == 0) {
    field.At("version").FailWith("PRECONDITION_MISSING", "must be the version that was read");
  } else if (metadata.version() < 0) {
    field.At("version").Fail("must be at least 1");
  }
}

void CheckSelector(const Field& field, bool present, const ateapi::Selector& selector) {
  if (!present) return;
  const Field labels = field.At("match_labels");
  CheckCount(labels, static_cast<int>(selector.match_labels_size()), 1, 10);
  for (const auto& [key, value] : selector.match_labels()) {
    if (!IsLabelKey(key)) labels.Fail(fmt::format("'{}' is no label key", key.substr(0, 320)));
    if (!IsLabelValue(value)) {
      labels.Fail(fmt::format("'{}' is no label value", value.substr(0, 80)));
    }
  }
}

void CheckDeleteOptions(const Field& field, const ateapi::DeleteOptions& options) {
  if (options.version() < 0) field.At("version").Fail("must be at least 1");
  CheckUuid(field.At("uid"), options.uid(), Need::kMaybe);
}

void CheckPage(const Field& root, int32_t page_size, const std::string& page_token) {
  if (page_size < 0) root.At("page_size").Fail("must not be negative");
  if (Characters(page_token) > 256) {
    root.At("page_token").FailWith("PAGE_TOKEN_INVALID", "must have at most 256 characters");
  }
}

}  // namespace torpor::api
