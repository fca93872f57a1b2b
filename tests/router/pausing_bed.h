#pragma once
// A router, a real door and one actor that a control plane of the test puts to sleep and wakes.

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/sync.h"
#include "router/listener/router.h"
#include "router/park/resolver.h"
#include "router/testing/sockets.h"
#include "worker/door/door.h"

namespace torpor {

inline constexpr char kActorUid[] = "00000000-0000-4000-8000-000000000001";

// An HTTP server that outlives the activations, as a restored guest does. Counts how often each
// path was executed.
class TestActor {
 public:
  // Serves one request whose head was read; false ends the connection.
  using Handler = std::function<bool(router::Peer& peer, const std::string& head)>;

  explicit TestActor(Handler handler) : handler_(std::move(handler)) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size) == 0);
    CHECK(listen(listener_.get(), 128) == 0);
    CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size) == 0);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~TestActor() {
    stopping_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    {
      MutexLock lock(&mu_);
      for (int fd : open_) shutdown(fd, SHUT_RDWR);
    }
    for (auto& thread : threads_) thread.join();
  }

  worker::DialFunction Dialer() {
    return [this](int) -> StatusOr<UniqueFd> {
      UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)) != 0 &&
          errno != EINPROGRESS) {
        return ErrnoStatus(errno, "connect");
      }
      return fd;
    };
  }
  int executed(const std::string& path) const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    auto it = executed_.find(path);
    return it == executed_.end() ? 0 : it->second;
  }

 private:
  void Accept() {
    while (!stopping_) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) continue;
      int one = 1;
      (void)setsockopt(fd.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
      MutexLock lock(&mu_);
      open_.insert(fd.get());
      threads_.emplace_back([this, raw = fd.Release()] { Serve(UniqueFd(raw)); });
    }
  }
  void Serve(UniqueFd fd) {
    int raw = fd.get();
    router::Peer peer(std::move(fd));
    while (true) {
      std::string head = peer.ReadHead();
      if (head.find("\r\n\r\n") == std::string::npos) break;
      size_t begin = head.find(' ') + 1;
      {
        MutexLock lock(&mu_);
        ++executed_[head.substr(begin, head.find(' ', begin) - begin)];
      }
      if (!handler_(peer, head)) break;
    }
    MutexLock lock(&mu_);
    open_.erase(raw);
    peer.Close();
  }

  const Handler handler_;
  sockaddr_in address_ = {};
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread accepting_;
  std::list<std::thread> threads_;  // Written by accepting_ until it has ended.
  mutable Mutex mu_;
  std::set<int> open_ GUARDED_BY(mu_);
  std::map<std::string, int> executed_ GUARDED_BY(mu_);
};

// The control plane of one actor. Resumes wait while it is being paused, and wake it afterwards.
class PausingControl : public router::ActorResolver {
 public:
  PausingControl(worker::Door* door, TestActor* actor) : door_(door), actor_(actor) { Wake(); }

  void Resume(const router::ActorKey&, Duration, const std::string&,
              std::function<void(StatusOr<Answer>)> done) override EXCLUDES(mu_) {
    bool woke = false;
    {
      MutexLock lock(&mu_);
      if (state_ == State::kPausing) {
        waiting_.push_back(std::move(done));
        return;
      }
      if (state_ == State::kAsleep) {
        Wake();
        woke = true;
      }
    }
    done(MakeAnswer(woke));
  }
  void Progress(const router::ActorKey&,
                std::function<void(StatusOr<std::optional<router::WakeProgress>>)> done) override {
    done(std::optional<router::WakeProgress>());
  }
  void Phases(const router::ActorKey&, const std::string&,
              std::function<void(StatusOr<std::vector<torpor::v1::Phase>>)> done) override {
    done(std::vector<torpor::v1::Phase>());
  }

  // False: the actor was busy and goes on.
  bool Pause(const worker::DrainOptions& options) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      state_ = State::kPausing;
    }
    bool drained = door_->Drain(kActorUid, options) == worker::DrainOutcome::kDrained;
    if (drained) {
      worker::Route::Counts counts = door_->CountsOf(kActorUid);
      CHECK(counts.open + counts.connecting == 0);
      door_->Remove(kActorUid, "captured");
    }
    std::vector<std::function<void(StatusOr<Answer>)>> waiting;
    {
      MutexLock lock(&mu_);
      state_ = drained ? State::kAsleep : State::kRunning;
      waiting.swap(waiting_);
      if (drained && !waiting.empty()) Wake();
    }
    for (auto& done : waiting) done(MakeAnswer(drained));
    return drained;
  }

 private:
  enum class State { kRunning, kPausing, kAsleep };

  void Wake() {
    ++generation_;
    door_->Add(kActorUid, generation_, {80}, actor_->Dialer());
    state_ = State::kRunning;
  }
  Answer MakeAnswer(bool woke) const {
    router::Route route;
    route.uid = kActorUid;
    route.generation = generation_;
    route.door = door_->address();
    route.ports = {80};
    Answer answer;
    answer.route = std::make_shared<router::Route>(std::move(route));
    answer.woke = woke;
    return answer;
  }

  worker::Door* const door_;
  TestActor* const actor_;
  Mutex mu_;
  State state_ = State::kAsleep;
  std::atomic<int64_t> generation_{0};
  std::vector<std::function<void(StatusOr<Answer>)>> waiting_ GUARDED_BY(mu_);
};

class PausingBed {
 public:
  explicit PausingBed(TestActor::Handler handler, int threads = 2) : actor_(std::move(handler)) {
    char name[] = "/tmp/router-door-XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    dir_ = name;
    worker::DoorOptions door;
    door.path = dir_ + "/door.sock";
    auto opened = worker::Door::Start(door, Clock::Real());
    CHECK(opened.ok());
    door_ = std::move(opened).value();
    control_ = std::make_unique<PausingControl>(door_.get(), &actor_);
    router::RouterOptions options;
    options.listen = {"127.0.0.1:0"};
    options.admin_listen = "127.0.0.1:0";
    options.threads = threads;
    options.router_id = "r1";
    options.shutdown_grace = std::chrono::milliseconds(0);
    auto started = router::Router::Start(options, {control_.get(), nullptr, Clock::Real()});
    CHECK(started.ok());
    router_ = std::move(started).value();
  }
  ~PausingBed() {
    router_.reset();
    door_.reset();
    rmdir(dir_.c_str());
  }

  router::Peer Client() { return router::Peer::ConnectTcp(router_->port()); }
  PausingControl& control() { return *control_; }
  TestActor& actor() { return actor_; }
  worker::Door& door() { return *door_; }
  std::string Page(const std::string& path) {
    router::Peer peer = router::Peer::ConnectTcp(router_->admin_port());
    peer.Send("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    return peer.ReadToEnd();
  }
  // Until the router's status page says so.
  bool WaitForStatus(const std::string& text) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      if (Page("/statusz").find(text) != std::string::npos) return true;
      std::this_thread::yield();
    }
    return false;
  }
  bool WaitForControl() { return WaitForStatus("\"open\":true"); }

 private:
  std::string dir_;
  TestActor actor_;
  std::unique_ptr<worker::Door> door_;
  std::unique_ptr<PausingControl> control_;
  std::unique_ptr<router::Router> router_;
};

}  // namespace torpor
