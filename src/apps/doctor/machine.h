#pragma once
// Checks of the machine itself: kernel, namespaces, cgroups, programs, users, disk, ports.
//
// Reads only. `Machine` is all that they see of the world, so tests hand in a made one.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/doctor/finding.h"
#include "base/status.h"

namespace torpor::doctor {

struct Disk {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int64_t free_inodes = 0;
};

struct Machine {
  // A whole file such as /proc/meminfo; NOT_FOUND when there is none.
  std::function<StatusOr<std::string>(const std::string& path)> read;
  std::function<bool(const std::string& path)> exists;
  // The path of a program; empty when PATH has none.
  std::function<std::string(const std::string& program)> find_program;
  std::function<bool(const std::string& user)> has_user;
  std::function<StatusOr<Disk>(const std::string& path)> disk;
  bool root = false;
  int landlock = 0;  // os::LandlockVersion
};
Machine RealMachine();

struct MachineQuestions {
  std::string dir = "/var/lib/torpor";
  std::vector<int> ports;  // that torpor up would take; empty = it runs, they are its own
};

Findings CheckMachine(const Machine& machine, const MachineQuestions& questions);

// The local ports of listening sockets in a /proc/net/tcp or tcp6 text.
std::vector<int> ListeningPorts(const std::string& text);

}  // namespace torpor::doctor
