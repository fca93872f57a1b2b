#pragma once
// A worker's door with an actor behind it, in threads of the test.

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "model/door_line.h"
#include "router/testing/sockets.h"

namespace torpor::router {

class FakeDoor {
 public:
  // What the door answers to a CONNECT head: kOpen, or a whole head.
  using Gate = std::function<std::string(const std::string& connect, int number)>;
  // What the actor does on a connection; the connection closes when it returns.
  using Actor = std::function<void(Peer& peer)>;
  static constexpr char kOpen[] = "HTTP/1.1 200 OK\r\n\r\n";
  static std::string No(int status, const std::string& reason) {
    return "HTTP/1.1 " + std::to_string(status) + " No\r\ntorpor-reason: " + reason +
           "\r\ntorpor-generation: 7\r\n\r\n";
  }

  explicit FakeDoor(Actor actor, Gate gate = nullptr)
      : actor_(std::move(actor)), gate_(std::move(gate)) {
    static std::atomic<int> next{0};
    path_ = "/tmp/router-door-" + std::to_string(getpid()) + "-" + std::to_string(next++);
    unlink(path_.c_str());
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    CHECK(listen(listener_.get(), 64) == 0);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~FakeDoor() {
    stopping_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    std::list<std::thread> threads;
    {
      MutexLock lock(&mu_);
      for (int fd : open_) shutdown(fd, SHUT_RDWR);
      threads.swap(threads_);
    }
    for (auto& thread : threads) thread.join();
    unlink(path_.c_str());
  }

  std::string address() const { return "unix:" + path_; }
  // CONNECT heads in the order they came.
  std::vector<std::string> connects() const {
    MutexLock lock(&mu_);
    return connects_;
  }

  // The router's control connection, of which the test writes the door's side.
  bool WaitForControls(int n) {
    MutexLock lock(&mu_);
    return WaitFor([this, n]() NO_THREAD_SAFETY_ANALYSIS { return controls_ >= n; });
  }
  void Tell(const torpor::v1::DoorLine& line) {
    std::string text = FormatDoorLine(line);
    MutexLock lock(&mu_);
    CHECK(send(control_, text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
  }
  void EndControl() {
    MutexLock lock(&mu_);
    shutdown(control_, SHUT_RDWR);
  }
  // The n-th line of the router, from 1.
  torpor::v1::DoorLine Line(size_t n) {
    MutexLock lock(&mu_);
    if (!WaitFor([this, n]() NO_THREAD_SAFETY_ANALYSIS { return lines_.size() >= n; })) return {};
    auto line = ParseDoorLine(lines_[n - 1].substr(0, lines_[n - 1].size() - 1));
    return line.ok() ? *line : torpor::v1::DoorLine();
  }

 private:
  void Accept() {
    while (!stopping_) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) continue;
      MutexLock lock(&mu_);
      open_.insert(fd.get());
      threads_.emplace_back([this, raw = fd.Release()] { Serve(UniqueFd(raw)); });
    }
  }
  void Serve(UniqueFd fd) {
    int raw = fd.get();
    Peer peer(std::move(fd));
    std::string connect = peer.ReadHead();
    if (connect.starts_with("GET /torpor/control ")) return ServeControl(peer, raw);
    int number = 0;
    {
      MutexLock lock(&mu_);
      connects_.push_back(connect);
      number = static_cast<int>(connects_.size());
    }
    std::string answer = gate_ ? gate_(connect, number) : kOpen;
    peer.Send(answer);
    if (answer == kOpen) actor_(peer);
    MutexLock lock(&mu_);
    open_.erase(raw);
    peer.Close();
  }

  void ServeControl(Peer& peer, int raw) {
    peer.Send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
        "Upgrade: torpor-control/1\r\n\r\n");
    {
      MutexLock lock(&mu_);
      control_ = raw;
      ++controls_;
      changed_.SignalAll();
    }
    for (std::string line = peer.ReadLine(); !line.empty(); line = peer.ReadLine()) {
      MutexLock lock(&mu_);
      lines_.push_back(line);
      changed_.SignalAll();
    }
    MutexLock lock(&mu_);
    if (control_ == raw) control_ = -1;
    open_.erase(raw);
    peer.Close();
  }
  bool WaitFor(const std::function<bool()>& condition) REQUIRES(mu_) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (!changed_.WaitUntil(&mu_, deadline)) return condition();
    }
    return true;
  }

  const Actor actor_;
  const Gate gate_;
  std::string path_;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread accepting_;
  mutable Mutex mu_;
  CondVar changed_;
  int control_ GUARDED_BY(mu_) = -1;
  int controls_ GUARDED_BY(mu_) = 0;
  std::vector<std::string> lines_ GUARDED_BY(mu_);
  std::vector<std::string> connects_ GUARDED_BY(mu_);
  std::set<int> open_ GUARDED_BY(mu_);
  std::list<std::thread> threads_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
