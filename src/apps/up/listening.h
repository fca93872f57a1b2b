#pragma once
// Where a process listens, as the kernel says it.

#include <sys/types.h>

#include <string>
#include <vector>

namespace torpor::up {

// TCP addresses as host:port, sorted; empty when there are none or no such process. Needs the right
// to read /proc/<pid>/fd.
std::vector<std::string> ListeningAddresses(pid_t pid);

// The pure half: listening sockets of a /proc/net/tcp or tcp6 text, by inode.
struct ListeningSocket {
  unsigned long inode = 0;
  std::string address;
  bool operator==(const ListeningSocket&) const = default;
};
std::vector<ListeningSocket> ParseProcNetTcp(const std::string& text);

}  // namespace torpor::up
