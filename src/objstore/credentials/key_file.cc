#include "objstore/credentials/key_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "model/reasons.h"

namespace torpor::objstore {
namespace {

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

}  // namespace

KeyFile ParseKeyFile(std::string_view text) {
  KeyFile out;
  std::string section;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = Trimmed(std::string_view(line).substr(1, line.size() - 2));
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    out[section][Trimmed(std::string_view(line).substr(0, equals))] =
        Trimmed(std::string_view(line).substr(equals + 1));
  }
  return out;
}

StatusOr<std::string> ReadFileOfKeys(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid() && errno == ENOENT) return ErrnoStatus(ENOENT, "open " + path);
  auto unreadable = [&](int error) {
    return Fail(reasons::kStoreDenied,
                fmt::format("the file of keys {} cannot be read: {}; let the users torpor and "
                            "torpor-mover read it",
                            path, strerror(error)));
  };
  if (!fd.valid()) return unreadable(errno);
  std::string text(kKeyFileBytesMax, '\0');
  const ssize_t n = read(fd.get(), text.data(), text.size());
  if (n < 0) return unreadable(errno);
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace torpor::objstore
