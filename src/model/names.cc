#include "model/names.h"

#include <algorithm>

namespace torpor {
namespace {

bool IsLowerAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsAlnum(char c) { return IsLowerAlnum(c) || (c >= 'A' && c <= 'Z'); }

// Calls `ok` for each piece of `text` between separators; false when one is refused.
template <typename F>
bool AllPieces(std::string_view text, char separator, F ok) {
  while (true) {
    size_t end = text.find(separator);
    if (!ok(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

bool IsQualifiedName(std::string_view text) {
  if (text.empty() || text.size() > 63 || !IsAlnum(text.front()) || !IsAlnum(text.back())) {
    return false;
  }
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

bool IsLabel(std::string_view text) {
  if (text.empty() || text.size() > 63) return false;
  if (!IsLowerAlnum(text.front()) || !IsLowerAlnum(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return IsLowerAlnum(c) || c == '-'; });
}

std::string NearestLabel(std::string_view text) {
  constexpr size_t kLabelMax = 63;
  std::string out;
  for (unsigned char c : text) {
    c = static_cast<unsigned char>(tolower(c));
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (kept) out += static_cast<char>(c);
    if (!kept && !out.empty() && out.back() != '-') out += '-';
    if (out.size() == kLabelMax) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

bool IsSubdomain(std::string_view text) {
  return !text.empty() && text.size() <= 253 && AllPieces(text, '.', IsLabel);
}

bool IsSnapshotFileName(std::string_view text) {
  if (std::count(text.begin(), text.end(), '/') > 1) return false;
  return AllPieces(text, '/', [](std::string_view piece) {
    if (piece.empty() || piece.size() > 128 || piece.front() == '.') return false;
    return std::all_of(piece.begin(), piece.end(),
                       [](char c) { return IsAlnum(c) || c == '.' || c == '_' || c == '-'; });
  });
}

bool IsCleanRelativePath(std::string_view text) {
  if (text.empty() || text.size() > 1024 || text.find('\0') != std::string_view::npos) return false;
  return AllPieces(text, '/', [](std::string_view piece) {
    return !piece.empty() && piece.size() <= 255 && piece != "." && piece != "..";
  });
}

bool IsLabelKey(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return IsQualifiedName(text);
  return IsSubdomain(text.substr(0, slash)) && IsQualifiedName(text.substr(slash + 1));
}

bool IsLabelValue(std::string_view text) { return text.empty() || IsQualifiedName(text); }

bool IsSha256Digest(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  if (text.size() != kPrefix.size() + 64 || text.substr(0, kPrefix.size()) != kPrefix) return false;
  text.remove_prefix(kPrefix.size());
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace torpor
