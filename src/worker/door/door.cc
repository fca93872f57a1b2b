#include "worker/door/door.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/log.h"
#include "model/door_line.h"
#include "worker/door/door_loop.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 512;
constexpr size_t kControlsMax = 64;
constexpr Duration kPendingConnects = milliseconds(200);
constexpr Duration kCloseTimeout = std::chrono::seconds(2);

}  // namespace

StatusOr<std::unique_ptr<Door>> Door::Start(DoorOptions options, Clock* clock) {
  auto door = std::unique_ptr<Door>(new Door(std::move(options), clock));
  RETURN_IF_ERROR(door->Listen());
  for (int i = 0; i < door->options_.threads; ++i) {
    door->loops_.push_back(std::make_unique<DoorLoop>(door.get(), clock));
    RETURN_IF_ERROR(door->loops_.back()->Start());
  }
  return door;
}

Door::Door(DoorOptions options, Clock* clock) : options_(std::move(options)), clock_(clock) {}

Status Door::Listen() {
  size_t slash = options_.path.rfind('/');
  if (slash == std::string::npos || slash == 0) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "the door's path must be absolute");
  }
  std::string name = options_.path.substr(slash + 1);
  UniqueFd dir(open(options_.path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) return ErrnoStatus(errno, "open the directory of " + options_.path);
  // Reached through /proc, since a node directory may be longer than a socket address; ready under
  // a temporary name first, so that whoever sees the name can connect.
  std::string temporary = fmt::format(".{}.{}", name, getpid());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::string short_path = fmt::format("/proc/self/fd/{}/{}", dir.get(), temporary);
  if (short_path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "the door's name is too long");
  }
  memcpy(address.sun_path, short_path.data(), short_path.size());
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return ErrnoStatus(errno, "door socket");
  unlinkat(dir.get(), temporary.c_str(), 0);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, "bind " + options_.path);
  }
  uid_t owner = options_.socket_user.value_or(geteuid());
  struct stat info = {};
  if (fchmodat(dir.get(), temporary.c_str(), 0600, 0) != 0 ||
      (owner != geteuid() && fchownat(dir.get(), temporary.c_str(), owner, static_cast<gid_t>(-1),
                                      AT_SYMLINK_NOFOLLOW) != 0) ||
      listen(listener_.get(), kBacklog) != 0 ||
      fstatat(dir.get(), temporary.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      renameat(dir.get(), temporary.c_str(), dir.get(), name.c_str()) != 0) {
    Status status = ErrnoStatus(errno, "serve " + options_.path);
    unlinkat(dir.get(), temporary.c_str(), 0);
    return status;
  }
  inode_ = info.st_ino;
  return OkStatus();
}

Door::~Door() {
  for (const auto& loop : loops_) loop->Stop();
  loops_.clear();
  struct stat info = {};
  if (inode_ != 0 && lstat(options_.path.c_str(), &info) == 0 && info.st_ino == inode_) {
    unlink(options_.path.c_str());
  }
}

bool Door::MayConnect(int fd) const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (peer.uid == 0 || peer.uid == geteuid() || peer.uid == options_.socket_user) return true;
  LogWarning("door: connection of another user closed", {{"uid", fmt::to_string(peer.uid)}});
  return false;
}

std::shared_ptr<Route> Door::Find(const std::string& uid) const {
  MutexLock lock(&mu_);
  auto it = routes_.find(uid);
  return it == routes_.end() ? nullptr : it->second;
}

void Door::Add(const std::string& uid, int64_t generation, std::vector<int> ports,
               DialFunction dial) {
  Remove(uid, "stopped");
  MutexLock lock(&mu_);
  routes_[uid] = std::make_shared<Route>(uid, generation, std::move(ports), std::move(dial));
}

void Door::CloseConnections(const std::shared_ptr<Route>& route) {
  Route::Counts counts = route->counts();
  if (counts.connecting + counts.open == 0) return;
  for (const auto& loop : loops_) loop->CloseRoute(route);
  if (!route->WaitEmpty(clock_->Now() + kCloseTimeout)) {
    LogError("door: connections did not close", {{"actor", route->uid}});
  }
}

DrainOutcome Door::Drain(const std::string& uid, const DrainOptions& options) {
  std::shared_ptr<Route> route = Find(uid);
  if (route == nullptr) return DrainOutcome::kDrained;
  MonotonicTime began = clock_->Now();
  route->StartDraining(options);
  AskToDrain(*route, route->routers());
  // Completed connects end as connections that can be closed cleanly. Those that still hang are
  // aborted below; a reset ends their half in the guest.
  (void)route->WaitNoneConnecting(began + kPendingConnects);
  if (!route->WaitDrained(clock_, began)) {
    Undrain(uid);
    return DrainOutcome::kBusy;
  }
  CloseConnections(route);
  return DrainOutcome::kDrained;
}

void Door::Undrain(const std::string& uid) {
  std::shared_ptr<Route> route = Find(uid);
  if (route == nullptr) return;
  route->StopDraining();
  torpor::v1::DoorLine line;
  line.mutable_undrain()->set_uid(uid);
  line.mutable_undrain()->set_gen(route->generation);
  TellRouters(*route, line);
}

void Door::Remove(const std::string& uid, std::string_view reason) {
  std::shared_ptr<Route> route;
  {
    MutexLock lock(&mu_);
    auto it = routes_.find(uid);
    if (it == routes_.end()) return;
    route = it->second;
    routes_.erase(it);
  }
  route->MarkGone();
  CloseConnections(route);
  torpor::v1::DoorLine line;
  line.mutable_gone()->set_uid(uid);
  line.mutable_gone()->set_gen(route->generation);
  line.mutable_gone()->set_reason(std::string(reason));
  TellRouters(*route, line);
}

// ---- Control connections ----

std::shared_ptr<ControlChannel> Door::ControlOf(const std::string& router) const {
  MutexLock lock(&mu_);
  auto it = controls_.find(router);
  return it == controls_.end() ? nullptr : it->second;
}

void Door::AskToDrain(Route& route, const std::vector<std::string>& routers) {
  std::optional<torpor::v1::DoorLine> line = route.drain_line();
  if (!line) return;
  for (const std::string& router : routers) {
    std::shared_ptr<ControlChannel> channel = ControlOf(router);
    if (channel == nullptr) continue;
    route.RouterAsked(router, clock_->Now());
    if (!channel->Send(FormatDoorLine(*line))) route.RouterLost(router);
  }
}

void Door::TellRouters(const Route& route, const torpor::v1::DoorLine& line) {
  for (const std::string& router : route.routers()) {
    // A router that has left learns it from its next connection.
    if (auto channel = ControlOf(router)) (void)channel->Send(FormatDoorLine(line));
  }
}

bool Door::AddControl(const std::shared_ptr<ControlChannel>& channel) {
  std::shared_ptr<ControlChannel> old;
  std::vector<std::shared_ptr<Route>> routes;
  {
    MutexLock lock(&mu_);
    auto it = controls_.find(channel->router);
    if (it != controls_.end()) {
      old = std::exchange(it->second, channel);
    } else if (controls_.size() >= kControlsMax) {
      return false;
    } else {
      controls_[channel->router] = channel;
    }
    for (const auto& [uid, route] : routes_) routes.push_back(route);
  }
  if (old != nullptr) old->Close();
  // A router that comes back during a drain has to know of it.
  for (const auto& route : routes) {
    std::vector<std::string> known = route->routers();
    if (std::find(known.begin(), known.end(), channel->router) != known.end()) {
      AskToDrain(*route, {channel->router});
    }
  }
  return true;
}

void Door::RemoveControl(const std::shared_ptr<ControlChannel>& channel) {
  std::vector<std::shared_ptr<Route>> routes;
  {
    MutexLock lock(&mu_);
    auto it = controls_.find(channel->router);
    if (it == controls_.end() || it->second != channel) return;
    controls_.erase(it);
    for (const auto& [uid, route] : routes_) routes.push_back(route);
  }
  for (const auto& route : routes) route->RouterLost(channel->router);
}

void Door::OnControlLine(const std::string& router, const torpor::v1::DoorLine& line) {
  const bool drained = line.has_drained();
  // What only a door says is nothing to act on.
  if (!drained && !line.has_busy()) return;
  std::shared_ptr<Route> route = Find(drained ? line.drained().uid() : line.busy().uid());
  if (route == nullptr) return;
  if (route->generation != (drained ? line.drained().gen() : line.busy().gen())) return;
  if (drained) {
    route->RouterAnswered(router, line.drained().seq(), 0, 0);
  } else {
    route->RouterAnswered(router, line.busy().seq(), line.busy().inflight(), line.busy().streams());
  }
}

Route::Counts Door::CountsOf(const std::string& uid) const {
  std::shared_ptr<Route> route = Find(uid);
  return route == nullptr ? Route::Counts{} : route->counts();
}

}  // namespace torpor::worker
