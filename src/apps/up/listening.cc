#include "apps/up/listening.h"

#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace torpor::up {
namespace {

constexpr char kListen[] = "0A";  // TCP_LISTEN

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// "0100007F:1E14", or 32 digits for IPv6: words of 32 bits in the order of the machine. Empty when
// it is neither.
std::string FormatAddress(const std::string& hex) {
  size_t colon = hex.find(':');
  if (colon != 8 && colon != 32) return "";
  uint32_t words[4] = {};
  char* end = nullptr;
  for (size_t i = 0; i < colon / 8; ++i) {
    const std::string word = hex.substr(i * 8, 8);
    words[i] = static_cast<uint32_t>(strtoul(word.c_str(), &end, 16));
    if (*end != 0) return "";
  }
  unsigned long port = strtoul(hex.c_str() + colon + 1, &end, 16);
  if (*end != 0 || port > 65535) return "";
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(colon == 8 ? AF_INET : AF_INET6, words, text, sizeof text);
  return colon == 8 ? fmt::format("{}:{}", text, port) : fmt::format("[{}]:{}", text, port);
}

}  // namespace

std::vector<ListeningSocket> ParseProcNetTcp(const std::string& text) {
  std::vector<ListeningSocket> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
    std::istringstream fields(line);
    std::string slot, local, remote, state, skipped;
    fields >> slot >> local >> remote >> state;
    if (state != kListen) continue;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    ListeningSocket socket;
    socket.address = FormatAddress(local);
    if (fields >> socket.inode && !socket.address.empty()) found.push_back(socket);
  }
  return found;
}

std::vector<std::string> ListeningAddresses(pid_t pid) {
  const std::string proc = fmt::format("/proc/{}", pid);
  std::set<unsigned long> inodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd", error)) {
    std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(strtoul(target.c_str() + 8, nullptr, 10));
  }
  std::set<std::string> addresses;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    for (const ListeningSocket& socket : ParseProcNetTcp(ReadText(proc + table))) {
      if (inodes.count(socket.inode) != 0) addresses.insert(socket.address);
    }
  }
  return {addresses.begin(), addresses.end()};
}

}  // namespace torpor::up
