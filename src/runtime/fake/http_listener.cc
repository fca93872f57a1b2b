#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "runtime/fake/fake_guest.h"

namespace torpor::runtime {
namespace {

struct Listening {
  UniqueFd fd;
  int port = 0;
  Status status;
};

// Runs on a thread of its own: entering a namespace changes the thread.
void Listen(const std::string& netns_path, int port, Listening* result) {
  if (!netns_path.empty()) {
    UniqueFd netns(open(netns_path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!netns.valid() || setns(netns.get(), CLONE_NEWNET) != 0) {
      result->status = ErrnoStatus(errno, "setns " + netns_path);
      return;
    }
  }
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(netns_path.empty() ? 0 : static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(netns_path.empty() ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, size) != 0 || listen(fd.get(), 64) != 0 ||
      getsockname(fd.get(), generic, &size) != 0) {
    result->status = ErrnoStatus(errno, fmt::format("listen on port {}", port));
    return;
  }
  result->port = ntohs(address.sin_port);
  result->fd = std::move(fd);
}

}  // namespace

struct HttpListener::Connections {
  std::function<std::string(const std::string&)> answer;
  Mutex mu;
  bool stopping GUARDED_BY(mu) = false;
  std::set<int> open GUARDED_BY(mu);
  std::vector<std::thread> threads GUARDED_BY(mu);
  std::thread acceptor;

  void Serve(int fd) {
    pthread_setname_np(pthread_self(), kFakeGuestThread);
    std::string buffer;
    char bytes[4096];
    for (;;) {
      size_t end = buffer.find("\r\n\r\n");
      if (end == std::string::npos) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) break;
        buffer.append(bytes, static_cast<size_t>(n));
        continue;
      }
      size_t space = buffer.find(' ');
      std::string path = buffer.substr(space + 1, buffer.find(' ', space + 1) - space - 1);
      buffer.erase(0, end + 4);
      std::string body = answer(path);
      std::string out = fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}",
                                    body.empty() ? "404 Not Found" : "200 OK", body.size(), body);
      if (send(fd, out.data(), out.size(), MSG_NOSIGNAL) < 0) break;
    }
    MutexLock lock(&mu);
    open.erase(fd);
    close(fd);
  }
};

StatusOr<std::unique_ptr<HttpListener>> HttpListener::Start(
    const std::string& netns_path, int port,
    std::function<std::string(const std::string&)> answer) {
  Listening listening;
  std::thread(Listen, netns_path, port, &listening).join();
  RETURN_IF_ERROR(listening.status);
  std::unique_ptr<HttpListener> listener(new HttpListener);
  listener->listener_ = std::move(listening.fd);
  listener->port_ = listening.port;
  listener->connections_ = std::make_unique<Connections>();
  Connections* connections = listener->connections_.get();
  connections->answer = std::move(answer);
  connections->acceptor = std::thread([connections, fd = listener->listener_.get()] {
    for (;;) {
      int accepted = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0) return;  // shut down
      MutexLock lock(&connections->mu);
      if (connections->stopping) {
        close(accepted);
        return;
      }
      connections->open.insert(accepted);
      connections->threads.emplace_back([connections, accepted] { connections->Serve(accepted); });
    }
  });
  return listener;
}

HttpListener::~HttpListener() {
  if (connections_ == nullptr) return;
  std::vector<std::thread> threads;
  {
    MutexLock lock(&connections_->mu);
    connections_->stopping = true;
    for (int fd : connections_->open) shutdown(fd, SHUT_RDWR);
    threads.swap(connections_->threads);
  }
  shutdown(listener_.get(), SHUT_RDWR);
  connections_->acceptor.join();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace torpor::runtime
