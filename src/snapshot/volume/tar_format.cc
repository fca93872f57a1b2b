#include "snapshot/volume/tar_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "model/reasons.h"

namespace torpor::snapshot::tar {
namespace {

// Offsets and lengths of the fields (POSIX ustar).
struct Field {
  size_t at, length;
};
constexpr Field kName = {0, 100}, kMode = {100, 8}, kUid = {108, 8}, kGid = {116, 8},
                kSize = {124, 12}, kMtime = {136, 12}, kSum = {148, 8}, kLink = {157, 100},
                kPrefix = {345, 155};
constexpr size_t kTypeAt = 156;
constexpr size_t kMagicAt = 257;
constexpr std::string_view kMagic(
    "ustar\0"
    "00",
    8);
constexpr std::string_view kXattr = "SCHILY.xattr.";
constexpr std::string_view kUser = "user.";
constexpr int64_t kSecondsMax = int64_t{1} << 40;

void PutText(std::string* block, Field field, std::string_view text) {
  block->replace(field.at, std::min(field.length, text.size()),
                 text.substr(0, std::min(field.length, text.size())));
}

// Zero where the number does not fit: then a pax record has it.
void PutNumber(std::string* block, Field field, uint64_t number) {
  std::string digits = fmt::format("{:0{}o}", number, field.length - 1);
  if (digits.size() > field.length - 1) digits = std::string(field.length - 1, '0');
  PutText(block, field, digits);
}

uint32_t SumOf(std::string_view block) {
  uint32_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    bool of_sum = i >= kSum.at && i < kSum.at + kSum.length;
    sum += of_sum ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

std::string FormatHeader(std::string_view name, std::string_view link, Type type, uint32_t mode,
                         uint32_t uid, uint32_t gid, int64_t size, int64_t mtime) {
  std::string block(kBlock, '\0');
  PutText(&block, kName, name);
  PutNumber(&block, kMode, mode & 07777);
  PutNumber(&block, kUid, uid);
  PutNumber(&block, kGid, gid);
  PutNumber(&block, kSize, static_cast<uint64_t>(size));
  PutNumber(&block, kMtime, mtime < 0 ? 0 : static_cast<uint64_t>(mtime));
  block[kTypeAt] = static_cast<char>(type);
  PutText(&block, kLink, link);
  block.replace(kMagicAt, kMagic.size(), kMagic);
  PutText(&block, kSum, fmt::format("{:06o}", SumOf(block)) + std::string("\0 ", 2));
  return block;
}

// "<length> key=value\n", the length counts itself.
void AddRecord(std::string* records, std::string_view key, std::string_view value) {
  size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (fmt::formatted_size("{}", length) + rest != length) {
    length = fmt::formatted_size("{}", length) + rest;
  }
  fmt::format_to(std::back_inserter(*records), "{} {}=", length, key);
  records->append(value);
  records->push_back('\n');
}

std::string FormatTime(const timespec& time) {
  int64_t seconds = time.tv_sec;
  int64_t nanos = time.tv_nsec;
  if (seconds >= 0 || nanos == 0) return fmt::format("{}.{:09}", seconds, nanos);
  // -1.25 is second -2 and 0.75.
  return fmt::format("-{}.{:09}", -(seconds + 1), 1000000000 - nanos);
}

template <typename T>
bool ParseNumber(std::string_view text, T* number, int base = 10) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

bool ParseTime(std::string_view text, timespec* time) {
  bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  size_t dot = text.find('.');
  int64_t seconds = 0;
  if (!ParseNumber(text.substr(0, dot), &seconds) || seconds < 0 || seconds > kSecondsMax) {
    return false;
  }
  int64_t nanos = 0;
  if (dot != std::string_view::npos) {
    std::string digits(text.substr(dot + 1));
    if (digits.empty() || digits.size() > 9) return false;
    digits.resize(9, '0');
    if (!ParseNumber(digits, &nanos) || nanos < 0) return false;
  }
  time->tv_sec = negative ? -seconds - (nanos > 0) : seconds;
  time->tv_nsec = negative && nanos > 0 ? 1000000000 - nanos : nanos;
  return true;
}

std::string_view FieldText(std::string_view block, Field field) {
  std::string_view text = block.substr(field.at, field.length);
  return text.substr(0, text.find('\0'));
}

bool FieldNumber(std::string_view block, Field field, int64_t* number) {
  std::string_view text = FieldText(block, field);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return ParseNumber(text, number, 8) && *number >= 0;
}

bool IsXattrName(std::string_view name) {
  return name.size() > kUser.size() && name.size() <= kNameMax &&
         name.substr(0, kUser.size()) == kUser && name.find('\0') == std::string_view::npos;
}

// What an extended header changes.
struct Overrides {
  std::optional<std::string> path, link;
  std::optional<int64_t> size, real_size;
  std::optional<uint32_t> uid, gid;
  std::optional<timespec> mtime;
  bool sparse_major = false, sparse_minor = false;
  std::map<std::string, std::string> xattrs;
};

template <typename T>
bool SetNumber(std::string_view value, std::optional<T>* out) {
  T number = 0;
  if (!ParseNumber(value, &number)) return false;
  *out = number;
  return true;
}

bool TakeRecord(std::string_view key, std::string_view value, Overrides* out) {
  if (key == "path" || key == "GNU.sparse.name") {
    out->path = value;
    return true;
  }
  if (key == "linkpath") {
    out->link = value;
    return true;
  }
  if (key == "mtime") {
    timespec time = {};
    if (!ParseTime(value, &time)) return false;
    out->mtime = time;
    return true;
  }
  if (key == "size") return SetNumber(value, &out->size);
  if (key == "uid") return SetNumber(value, &out->uid);
  if (key == "gid") return SetNumber(value, &out->gid);
  if (key == "GNU.sparse.realsize") return SetNumber(value, &out->real_size);
  if (key == "GNU.sparse.major") return out->sparse_major = value == "1";
  if (key == "GNU.sparse.minor") return out->sparse_minor = value == "0";
  if (key.substr(0, kXattr.size()) == kXattr) {
    key.remove_prefix(kXattr.size());
    return IsXattrName(key) && out->xattrs.emplace(key, value).second;
  }
  return false;
}

Status ParseRecords(std::string_view pax, Overrides* out) {
  while (!pax.empty()) {
    size_t space = pax.find(' ');
    size_t length = 0;
    if (space == std::string_view::npos || !ParseNumber(pax.substr(0, space), &length) ||
        length > pax.size() || length < space + 3) {
      return Corrupt("an extended header has a record of a wrong length");
    }
    std::string_view record = pax.substr(space + 1, length - space - 1);
    size_t equals = record.find('=');
    if (record.back() != '\n' || equals == std::string_view::npos) {
      return Corrupt("an extended header has a record without an end");
    }
    record.remove_suffix(1);
    if (equals > record.size() ||
        !TakeRecord(record.substr(0, equals), record.substr(equals + 1), out)) {
      return Corrupt("an extended header has a record that is not understood");
    }
    pax.remove_prefix(length);
  }
  return OkStatus();
}

}  // namespace

Status Corrupt(std::string_view what) {
  return Fail(reasons::kSnapshotCorrupt, fmt::format("volume archive: {}", what));
}

bool IsEntryPath(std::string_view path) {
  if (path == ".") return true;
  if (path.empty() || path.size() > kPathMax || path.find('\0') != std::string_view::npos) {
    return false;
  }
  while (true) {
    size_t slash = path.find('/');
    std::string_view name = path.substr(0, slash);
    if (name.empty() || name.size() > kNameMax || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string_view ParentOf(std::string_view path) {
  size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : path.substr(0, slash);
}

StatusOr<std::string> FormatEntry(const Entry& entry) {
  auto impossible = [&](std::string_view what) {
    return Error(Code::kFailedPrecondition, reasons::kInternal.name,
                 fmt::format("{}... cannot be saved: {}", entry.path.substr(0, 200), what));
  };
  if (!IsEntryPath(entry.path)) return impossible("its path is too long");
  if (entry.size > kFileBytesMax) return impossible("it is too large");
  std::string pax;
  if (entry.sparse) {
    AddRecord(&pax, "GNU.sparse.major", "1");
    AddRecord(&pax, "GNU.sparse.minor", "0");
    AddRecord(&pax, "GNU.sparse.name", entry.path);
    AddRecord(&pax, "GNU.sparse.realsize", fmt::to_string(entry.size));
  } else {
    AddRecord(&pax, "path", entry.path);
  }
  AddRecord(&pax, "mtime", FormatTime(entry.mtime));
  AddRecord(&pax, "uid", fmt::to_string(entry.uid));
  AddRecord(&pax, "gid", fmt::to_string(entry.gid));
  if (entry.stored > 0) AddRecord(&pax, "size", fmt::to_string(entry.stored));
  if (!entry.link.empty()) AddRecord(&pax, "linkpath", entry.link);
  for (const auto& [name, value] : entry.xattrs) {
    AddRecord(&pax, fmt::format("{}{}", kXattr, name), value);
  }
  if (pax.size() > kPaxBytesMax) return impossible("its extended attributes are too large");
  std::string out = FormatHeader("PaxHeaders/entry", "", Type::kPax, 0600, 0, 0,
                                 static_cast<int64_t>(pax.size()), 0);
  out += pax;
  out.append(PaddingOf(static_cast<int64_t>(pax.size())), '\0');
  return out + FormatHeader(entry.path, entry.link, entry.type, entry.mode, entry.uid, entry.gid,
                            entry.stored, entry.mtime.tv_sec);
}

std::string FormatMap(const std::vector<Extent>& extents) {
  std::string out = fmt::format("{}\n", extents.size());
  for (const Extent& extent : extents) {
    fmt::format_to(std::back_inserter(out), "{}\n{}\n", extent.offset, extent.length);
  }
  out.append(PaddingOf(static_cast<int64_t>(out.size())), '\0');
  return out;
}

StatusOr<std::optional<Header>> ParseHeader(std::string_view block) {
  if (block.size() != kBlock) return Corrupt("a header is cut off");
  if (block.find_first_not_of('\0') == std::string_view::npos) return std::optional<Header>();
  if (block.substr(kMagicAt, kMagic.size()) != kMagic) return Corrupt("a header is none");
  Header header;
  int64_t sum = 0, mode = 0, uid = 0, gid = 0;
  if (!FieldNumber(block, kSum, &sum) || sum != SumOf(block)) {
    return Corrupt("a header is damaged");
  }
  if (!FieldNumber(block, kMode, &mode) || !FieldNumber(block, kUid, &uid) ||
      !FieldNumber(block, kGid, &gid) || !FieldNumber(block, kSize, &header.size) ||
      !FieldNumber(block, kMtime, &header.mtime) || !FieldText(block, kPrefix).empty()) {
    return Corrupt("a header has a field that is no number");
  }
  constexpr std::string_view kTypes = "0125x";
  if (kTypes.find(block[kTypeAt]) == std::string_view::npos) {
    return Corrupt("an entry is neither file nor directory nor link");
  }
  header.type = static_cast<Type>(block[kTypeAt]);
  header.mode = static_cast<uint32_t>(mode);
  header.uid = static_cast<uint32_t>(uid);
  header.gid = static_cast<uint32_t>(gid);
  header.path = FieldText(block, kName);
  header.link = FieldText(block, kLink);
  return std::optional<Header>(std::move(header));
}

StatusOr<Entry> ParseEntry(const Header& header, std::string_view pax) {
  Overrides overrides;
  RETURN_IF_ERROR(ParseRecords(pax, &overrides));
  Entry entry;
  entry.type = header.type;
  entry.path = overrides.path.value_or(header.path);
  entry.link = overrides.link.value_or(header.link);
  entry.mode = header.mode & 07777;
  entry.uid = overrides.uid.value_or(header.uid);
  entry.gid = overrides.gid.value_or(header.gid);
  entry.mtime = overrides.mtime.value_or(timespec{.tv_sec = header.mtime, .tv_nsec = 0});
  entry.stored = overrides.size.value_or(header.size);
  entry.xattrs = std::move(overrides.xattrs);
  const bool any_sparse =
      overrides.sparse_major || overrides.sparse_minor || overrides.real_size.has_value();
  entry.sparse = overrides.sparse_major && overrides.sparse_minor && overrides.real_size;
  entry.size = entry.sparse ? *overrides.real_size : entry.stored;
  if (!IsEntryPath(entry.path)) return Corrupt("an entry's path leaves the volume or is too long");
  if (any_sparse && (!entry.sparse || entry.type != Type::kFile)) {
    return Corrupt("an entry is sparse in a way that is not understood");
  }
  if (entry.size < 0 || entry.size > kFileBytesMax || entry.stored < 0 ||
      entry.stored > kFileBytesMax * 2) {
    return Corrupt("a file's size is out of range");
  }
  if (entry.type != Type::kFile && entry.stored != 0) {
    return Corrupt("an entry that is no file has data");
  }
  const bool link = entry.type == Type::kHardLink || entry.type == Type::kSymlink;
  if (link != !entry.link.empty()) return Corrupt("a link without target, or a target without one");
  if (entry.type == Type::kHardLink && (!IsEntryPath(entry.link) || entry.link == ".")) {
    return Corrupt("a hard link leaves the volume");
  }
  if (entry.type == Type::kSymlink &&
      (entry.link.size() > kPathMax + 95 || entry.link.find('\0') != std::string::npos)) {
    return Corrupt("a symbolic link's target is none");
  }
  if (entry.uid == UINT32_MAX || entry.gid == UINT32_MAX) return Corrupt("an owner is none");
  return entry;
}

bool TakeNumber(std::string_view* text, int64_t* number) {
  size_t end = text->find('\n');
  if (end == std::string_view::npos || end > 20) return false;
  if (!ParseNumber(text->substr(0, end), number) || *number < 0) return false;
  text->remove_prefix(end + 1);
  return true;
}

bool AreExtentsOf(const std::vector<Extent>& extents, int64_t size, int64_t stored) {
  int64_t end = 0, sum = 0;
  for (const Extent& extent : extents) {
    if (extent.offset < end || extent.length < 0 || extent.offset > size ||
        extent.length > size - extent.offset) {
      return false;
    }
    end = extent.offset + extent.length;
    sum += extent.length;
  }
  return sum == stored;
}

}  // namespace torpor::snapshot::tar
