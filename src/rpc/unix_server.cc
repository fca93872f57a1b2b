#include "rpc/unix_server.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/log.h"
#include "rpc/channel.h"
#include "rpc/runtime.h"
#include "rpc/unix_path.h"

namespace torpor::rpc {
namespace {

sockaddr_un Address(const std::string& short_path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, short_path.data(), short_path.size());
  return address;
}

UniqueFd NewSocket(int flags) {
  return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
}

// Whether a process accepts connections at `path`.
StatusOr<bool> IsServed(const std::string& path) {
  ASSIGN_OR_RETURN(ShortPath shorter, ShortenSocketPath(path));
  UniqueFd fd = NewSocket(SOCK_NONBLOCK);
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un address = Address(shorter.path);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return true;
  // EAGAIN: there is a listener, and its queue is full.
  return errno == EAGAIN || errno == EACCES;
}

}  // namespace

UnixServer::UnixServer(std::string path, UnixServerOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

UnixServer::~UnixServer() { Shutdown(); }

StatusOr<std::unique_ptr<UnixServer>> UnixServer::Start(const std::string& path,
                                                        std::vector<grpc::Service*> services,
                                                        UnixServerOptions options) {
  std::unique_ptr<UnixServer> server(new UnixServer(path, std::move(options)));
  server->stop_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_event_.valid()) return ErrnoStatus(errno, "eventfd");
  KeepCallbackThreads();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(server->options_.message_bytes_max);
  builder.SetMaxSendMessageSize(server->options_.message_bytes_max);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (server->options_.configure) server->options_.configure(&builder);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return Error(Code::kInternal, "INTERNAL", "gRPC refused to start a server for " + path);
  }
  RETURN_IF_ERROR(server->Listen());
  server->acceptor_ = std::thread(&UnixServer::AcceptLoop, server.get());
  return server;
}

Status UnixServer::Listen() {
  struct stat existing;
  if (lstat(path_.c_str(), &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode)) {
      return Error(
          Code::kAlreadyExists, "ALREADY_EXISTS",
          fmt::format("{} exists and is no socket; remove it or choose another path", path_));
    }
    ASSIGN_OR_RETURN(bool served, IsServed(path_));
    if (served) {
      return Error(Code::kAlreadyExists, "ALREADY_EXISTS",
                   fmt::format("another process serves {}; stop it first", path_));
    }
  }
  listener_ = NewSocket(SOCK_NONBLOCK);
  if (!listener_.valid()) return ErrnoStatus(errno, "socket");
  // The mode of the descriptor becomes the mode of the file that bind makes.
  if (fchmod(listener_.get(), 0600) != 0) return ErrnoStatus(errno, "fchmod of a socket");
  const std::string temporary = fmt::format("{}.{}~", path_, getpid());
  ASSIGN_OR_RETURN(ShortPath shorter, ShortenSocketPath(temporary));
  unlink(temporary.c_str());
  sockaddr_un address = Address(shorter.path);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, "bind " + path_);
  }
  auto publish = [&]() -> Status {
    if (options_.owner_uid && lchown(temporary.c_str(), *options_.owner_uid, -1) != 0) {
      return ErrnoStatus(errno, fmt::format("chown {} to uid {}", path_, *options_.owner_uid));
    }
    if (listen(listener_.get(), 128) != 0) return ErrnoStatus(errno, "listen on " + path_);
    struct stat made;
    if (lstat(temporary.c_str(), &made) != 0) return ErrnoStatus(errno, "stat " + temporary);
    device_ = made.st_dev;
    inode_ = made.st_ino;
    if (rename(temporary.c_str(), path_.c_str()) != 0)
      return ErrnoStatus(errno, "rename to " + path_);
    return OkStatus();
  };
  Status status = publish();
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

bool UnixServer::MayConnect(int fd) const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  const std::vector<uid_t>& allowed = options_.allowed_uids;
  if (peer.uid == 0 || peer.uid == geteuid() || peer.uid == options_.owner_uid ||
      std::find(allowed.begin(), allowed.end(), peer.uid) != allowed.end()) {
    return true;
  }
  LogWarning("connection refused: user not allowed",
             {{"socket", path_}, {"uid", fmt::to_string(peer.uid)}});
  return false;
}

void UnixServer::AcceptLoop() {
  while (true) {
    pollfd fds[2] = {{listener_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      // Out of descriptors: the connection stays queued, so only a pause avoids a busy loop.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        LogError("cannot accept a connection", {{"socket", path_}, {"error", strerror(errno)}});
        pollfd stop = {stop_event_.get(), POLLIN, 0};
        if (poll(&stop, 1, 100) > 0) return;
      }
      continue;
    }
    if (MayConnect(fd.get())) grpc::AddInsecureChannelFromFd(server_.get(), fd.Release());
  }
}

void UnixServer::Shutdown(Duration grace) {
  if (stopped_) return;
  stopped_ = true;
  if (acceptor_.joinable()) {
    eventfd_write(stop_event_.get(), 1);
    acceptor_.join();
  }
  listener_.Reset();
  struct stat now;
  if (inode_ != 0 && lstat(path_.c_str(), &now) == 0 && now.st_dev == device_ &&
      now.st_ino == inode_) {
    unlink(path_.c_str());
  }
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  server_->Wait();
}

}  // namespace torpor::rpc
