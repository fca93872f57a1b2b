// torpor status: the roles of this machine, and what they say of themselves.

#include <cstdio>

#include "apps/commands.h"
#include "apps/up/layout.h"
#include "apps/up/listening.h"
#include "apps/up/local_client.h"
#include "apps/up/supervisor.h"
#include "base/options.h"
#include "os/fs/dir_fd.h"

namespace torpor {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace

int StatusCommand(const Args& args) {
  const char* environment = getenv("TORPOR_DIR");
  up::Layout layout{environment != nullptr ? environment : "/var/lib/torpor"};
  Options declared("status");
  declared.String("dir", &layout.dir, "data directory of torpor up");
  Status parsed = declared.Parse(args);
  if (!parsed.ok()) {
    fprintf(stderr, "error: %s\n", std::string(parsed.message()).c_str());
    return 2;
  }
  if (declared.asked()) {
    printf("%s", declared.Answer("torpor status: the roles of this machine").c_str());
    return 0;
  }
  auto run = os::DirFd::OpenPath(layout.dir + "/run");
  const bool up = run.ok() && run->Exists("up.lock") && !os::LockFile(*run, "up.lock").ok();
  if (!up) {
    fprintf(stderr, "torpor is not up in %s; start it with torpor up\n", layout.dir.c_str());
    return 6;
  }
  auto text = run->ReadFile("roles.json", 1 << 20);
  auto states = text.ok() ? up::ParseStates(*text) : text.status();
  if (!states.ok()) {
    fprintf(stderr, "error: %s\n", std::string(states.status().message()).c_str());
    return 1;
  }
  printf("%-10s %-8s %-9s %s\n", "ROLE", "PID", "RESTARTS", "LISTENS");
  for (const auto& role : *states) {
    const bool runs = role.pid > 0 && up::StartTicks(role.pid) == role.start_ticks;
    printf("%-10s %-8s %-9d %s\n", role.name.c_str(),
           runs ? std::to_string(role.pid).c_str() : "down", role.restarts,
           runs ? Join(up::ListeningAddresses(role.pid)).c_str() : role.last_exit.c_str());
  }
  Status ready = up::LocalClient(layout.Run("api.sock")).CheckReady(WallTime());
  printf("%s\n", ready.ok() ? "ready" : ("not ready: " + std::string(ready.message())).c_str());
  return ready.ok() ? 0 : 6;
}

}  // namespace torpor
