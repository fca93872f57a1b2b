#include "router/admit/token_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "model/names.h"

namespace torpor::router {
namespace {

constexpr int64_t kFileBytesMax = 1 << 20;
constexpr std::string_view kSpaces = " \t\r";
using Hash = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Status Invalid(const std::string& message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

// The next word of `line`, which is taken off; empty at the end.
std::string_view TakeWord(std::string_view* line) {
  size_t begin = std::min(line->find_first_not_of(kSpaces), line->size());
  line->remove_prefix(begin);
  size_t end = std::min(line->find_first_of(kSpaces), line->size());
  std::string_view word = line->substr(0, end);
  line->remove_prefix(end);
  return word;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ParseHash(std::string_view text, Hash* out) {
  if (text.size() != 2 * out->size()) return false;
  for (size_t i = 0; i < out->size(); ++i) {
    int high = HexDigit(text[2 * i]);
    int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*out)[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  std::array<char, 16384> bytes;
  for (;;) {
    ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read " + path);
    if (n == 0) return text;
    text.append(bytes.data(), static_cast<size_t>(n));
    if (text.size() > static_cast<size_t>(kFileBytesMax)) {
      return Invalid(fmt::format("{} is larger than {} bytes", path, kFileBytesMax));
    }
  }
}

Status CheckFile(const struct stat& st, const std::string& path) {
  if (!S_ISREG(st.st_mode)) return Invalid(path + " is not a file");
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Invalid(path + " can be written by other users (chmod go-w)");
  }
  if (st.st_uid != 0 && st.st_uid != geteuid()) {
    return Invalid(path + " belongs to neither root nor the router's user");
  }
  return OkStatus();
}

// The token of the request; empty when there is none, or more than one.
std::string_view TokenOf(const RequestHead& head) {
  constexpr std::string_view kScheme = "bearer";
  std::string_view token;
  int fields = 0;
  for (const Field& field : head.fields) {
    if (field.id != FieldId::kReserved || !EqualsIgnoreCase(field.name, kAuthorizationField)) {
      continue;
    }
    std::string_view rest = field.value;
    bool bearer = EqualsIgnoreCase(TakeWord(&rest), kScheme);
    token = TakeWord(&rest);
    if (!bearer || !TakeWord(&rest).empty()) token = {};
    ++fields;
  }
  return fields == 1 ? token : std::string_view();
}

}  // namespace

StatusOr<std::vector<TokenLine>> ParseTokenLines(std::string_view text) {
  std::vector<TokenLine> out;
  for (int number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    std::string_view hash = TakeWord(&line);
    if (hash.empty()) continue;
    TokenLine one;
    if (!ParseHash(hash, &one.sha256)) {
      return Invalid(fmt::format(
          "line {}: the first word is not the sha256 of a token (64 digits of 0-9a-f)", number));
    }
    std::string_view atespace = TakeWord(&line);
    if (atespace != "*" && !IsLabel(atespace)) {
      return Invalid(fmt::format("line {}: the second word is neither an atespace nor *", number));
    }
    if (!TakeWord(&line).empty()) {
      return Invalid(fmt::format("line {}: more than two words; notes come after a #", number));
    }
    one.atespace = std::string(atespace);
    if (out.size() == kTokenLinesMax) {
      return Invalid(fmt::format("line {}: more than {} tokens", number, kTokenLinesMax));
    }
    out.push_back(std::move(one));
  }
  return out;
}

StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(std::string path) {
  auto file = std::unique_ptr<TokenFile>(new TokenFile(std::move(path)));
  if (StatusOr<bool> loaded = file->Load(); !loaded.ok()) {
    return Invalid("authorize-tokens-file: " + std::string(loaded.status().message()));
  }
  return file;
}

StatusOr<bool> TokenFile::Load() {
  UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path_);
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat " + path_);
  RETURN_IF_ERROR(CheckFile(st, path_));
  ASSIGN_OR_RETURN(std::string text, ReadAll(fd.get(), path_));
  if (loaded_ && text == text_) return false;
  auto lines = ParseTokenLines(text);
  if (!lines.ok()) {
    return Invalid(fmt::format("{}, {}", path_, std::string(lines.status().message())));
  }
  loaded_ = true;
  text_ = std::move(text);
  MutexLock lock(&mu_);
  lines_ = std::make_shared<const Lines>(*std::move(lines));
  return true;
}

void TokenFile::Refresh() {
  StatusOr<bool> loaded = Load();
  std::string error = loaded.ok() ? "" : std::string(loaded.status().message());
  if (!error.empty() && error != last_error_) {
    LogError("the file of tokens was not taken over, the old tokens stay in force",
             {{"file", path_}, {"error", error}});
  }
  if (loaded.ok() && *loaded) LogInfo("the file of tokens was read anew", {{"file", path_}});
  last_error_ = std::move(error);
}

std::optional<Denial> TokenFile::Authorize(const RequestHead& head, const ActorKey& actor) {
  std::string_view token = TokenOf(head);
  if (token.empty()) {
    return Denial{false, fmt::format("this router wants the field '{}: Bearer <token>', once",
                                     kAuthorizationField)};
  }
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  std::shared_ptr<const Lines> lines;
  {
    MutexLock lock(&mu_);
    lines = lines_;
  }
  bool known = false;
  bool allowed = false;
  // No way out of the loop: where a token is in the file, and how much of it, stays unknown.
  for (const TokenLine& line : *lines) {
    bool same = CRYPTO_memcmp(line.sha256.data(), hash.data(), hash.size()) == 0;
    bool covers = line.atespace == "*" || line.atespace == actor.atespace;
    known |= same;
    allowed |= same & covers;
  }
  if (allowed) return std::nullopt;
  if (known) return Denial{true, "the token is not for atespace " + actor.atespace};
  return Denial{false, "the token is not known to this router"};
}

}  // namespace torpor::router
