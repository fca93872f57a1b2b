#include "router/listener/router.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "router/answer/json.h"
#include "router/listener/admin.h"
#include "router/listener/client_connection.h"
#include "router/listener/doors.h"
#include "router/listener/shard.h"
#include "router/upstream/tcp_options.h"

namespace torpor::router {
namespace {

using Tcp = net::ip::tcp;
using Acceptor = net::basic_socket_acceptor<Tcp, Executor>;
constexpr std::chrono::milliseconds kAcceptPause(100);
constexpr Duration kSecond = std::chrono::seconds(1);
constexpr size_t kFlightsShown = 100;
constexpr Duration kReportAtLeast = std::chrono::seconds(5);
constexpr Duration kRemindEvery = std::chrono::milliseconds(20);

StatusOr<Tcp::endpoint> EndpointOf(const std::string& text) {
  ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
  ErrorCode ignored;  // ParseListenAddress checked it.
  return Tcp::endpoint(net::ip::make_address(address.ip, ignored),
                       static_cast<unsigned short>(address.port));
}

StatusOr<std::unique_ptr<Acceptor>> Listen(net::io_context& io, const Tcp::endpoint& endpoint) {
  auto acceptor = std::make_unique<Acceptor>(io.get_executor());
  ErrorCode error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) {
    SetOption(acceptor->native_handle(), SOL_SOCKET, SO_REUSEADDR, 1);
    SetOption(acceptor->native_handle(), SOL_SOCKET, SO_REUSEPORT, 1);
    acceptor->bind(endpoint, error);
  }
  if (!error) acceptor->listen(4096, error);
  if (error) {
    return ErrnoStatus(error.value(), fmt::format("listen on {}:{}", endpoint.address().to_string(),
                                                  endpoint.port()));
  }
  return acceptor;
}

int ThreadCount(int asked) {
  if (asked > 0) return asked;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

size_t ConnectionsMax(size_t asked) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return asked;
  size_t files = limit.rlim_cur > 512 ? limit.rlim_cur - 512 : 64;
  return std::min(asked, files / 2);
}

class RouterImpl : public Router {
 public:
  RouterImpl(RouterOptions options, Parts parts, AddressSet proxies)
      : shared_(std::move(options), std::move(proxies), parts.clock, parts.resolver),
        per_address_(shared_.options.connections_per_address),
        connections_max_(ConnectionsMax(shared_.options.connections_max)) {
    shared_.reporter = parts.reporter;
    shared_.authorizer = parts.authorizer;
  }
  ~RouterImpl() override { Shutdown(); }

  Status Begin();
  void Shutdown() override;
  int port() const override { return port_; }
  int admin_port() const override { return admin_port_; }

 private:
  struct Worker {
    explicit Worker(SharedState* shared, PoolLimits limits)
        : shard(shared, limits), guard(shard.io.get_executor()) {}
    Shard shard;
    net::executor_work_guard<Executor> guard;
    std::vector<std::unique_ptr<Acceptor>> acceptors;
    std::unique_ptr<SteadyTimer> accept_pause;
    std::thread thread;
  };

  void MakeLot();
  void MakeDoors();
  Status OpenListeners();
  void Accept(Worker* worker, Acceptor* acceptor);
  void OnAccepted(Worker* worker, Tcp::socket socket);
  void AcceptAdmin();
  void EverySecond(Worker* worker);
  void ReportActivity();
  void OnGenerationSeen(const std::string& uid, int64_t generation);
  void OnEveryShard(std::function<void(Shard*)> call);
  void WaitForConnections(Duration grace);
  Metrics::Gauges Gauges() const;
  std::string StatusPage() const;

  SharedState shared_;
  AddressCounter per_address_;
  const size_t connections_max_;
  AdminPages pages_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Doors> doors_;  // On the first worker's thread.
  MonotonicTime reported_{};      // Used by that thread only.
  std::unique_ptr<Acceptor> admin_;
  int port_ = 0;
  int admin_port_ = 0;
  bool running_ = false;
};

void RouterImpl::MakeLot() {
  ParkingLot::Parts parts;
  parts.clock = shared_.clock;
  parts.resolver = shared_.resolver;
  parts.timer = [this](MonotonicTime when, std::function<void()> call) {
    Shard* shard = &workers_[0]->shard;
    net::post(shard->io, [shard, when, call = std::move(call)] {
      auto timer = std::make_shared<SteadyTimer>(shard->io.get_executor());
      timer->expires_at(when);
      timer->async_wait([timer, call](const ErrorCode& error) {
        if (!error) call();
      });
    });
  };
  parts.random01 = [random = std::make_shared<FastRandom>()] { return random->Unit(); };
  parts.on_route = [this](const ActorKey& key, RoutePtr route) {
    auto complete = std::make_shared<Route>(*route);
    complete->activity = shared_.activity.Cell(route->uid, route->generation);
    doors_->Want(complete->door);
    shared_.cache.Put(key, complete, shared_.clock->Now());
    OnGenerationSeen(complete->uid, complete->generation);
    return RoutePtr(std::move(complete));
  };
  parts.on_retry = [this](const Status& status) { shared_.metrics.ResumeRetry(status.code()); };
  shared_.lot = std::make_unique<ParkingLot>(shared_.options.park, std::move(parts));
}

void RouterImpl::MakeDoors() {
  Doors::Parts parts;
  parts.io = &workers_[0]->shard.io;
  parts.router_id = shared_.options.router_id;
  parts.clock = shared_.clock;
  parts.activity = &shared_.activity;
  parts.metrics = &shared_.metrics;
  parts.shards = workers_.size();
  parts.on_every_shard = [this](std::function<void(Shard*)> call) { OnEveryShard(call); };
  parts.on_lost = [this](const std::string& door) { shared_.cache.DropDoor(door); };
  doors_ = std::make_unique<Doors>(std::move(parts));
  shared_.doors = doors_.get();
}

void RouterImpl::OnEveryShard(std::function<void(Shard*)> call) {
  for (auto& worker : workers_) {
    Shard* shard = &worker->shard;
    net::post(shard->io, [shard, call] { call(shard); });
  }
}

void RouterImpl::OnGenerationSeen(const std::string& uid, int64_t generation) {
  OnEveryShard([uid, generation](Shard* shard) { shard->pool.GenerationSeen(uid, generation); });
}

Status RouterImpl::OpenListeners() {
  const RouterOptions& options = shared_.options;
  for (const std::string& text : options.listen) {
    ASSIGN_OR_RETURN(Tcp::endpoint endpoint, EndpointOf(text));
    for (auto& worker : workers_) {
      ASSIGN_OR_RETURN(auto acceptor, Listen(worker->shard.io, endpoint));
      ErrorCode ignored;
      // With port 0 the first thread finds one, and the others share it.
      endpoint = acceptor->local_endpoint(ignored);
      worker->acceptors.push_back(std::move(acceptor));
    }
    if (port_ == 0) port_ = endpoint.port();
  }
  if (options.admin_listen.empty()) return OkStatus();
  ASSIGN_OR_RETURN(Tcp::endpoint endpoint, EndpointOf(options.admin_listen));
  ASSIGN_OR_RETURN(admin_, Listen(workers_[0]->shard.io, endpoint));
  ErrorCode ignored;
  admin_port_ = admin_->local_endpoint(ignored).port();
  return OkStatus();
}

Status RouterImpl::Begin() {
  const RouterOptions& options = shared_.options;
  int threads = ThreadCount(options.threads);
  auto share = [threads](size_t total) {
    return std::max<size_t>(
        1, (total + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads));
  };
  PoolLimits limits{share(options.actor_connections_max),
                    options.actor_idle_max == 0 ? 0 : share(options.actor_idle_max),
                    options.actor_idle_time};
  for (int i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>(&shared_, limits));
  MakeDoors();
  MakeLot();
  RETURN_IF_ERROR(OpenListeners());
  pages_.ready = [this] { return !shared_.draining.load(); };
  pages_.status = [this] { return StatusPage(); };
  pages_.metrics = [this] {
    const auto& more = shared_.options.more_metrics;
    return shared_.metrics.Render(Gauges()) + (more ? more() : "");
  };
  for (auto& worker : workers_) {
    worker->accept_pause = std::make_unique<SteadyTimer>(worker->shard.io.get_executor());
    for (auto& acceptor : worker->acceptors) Accept(worker.get(), acceptor.get());
    EverySecond(worker.get());
  }
  if (admin_) AcceptAdmin();
  running_ = true;
  for (auto& worker : workers_) {
    worker->thread = std::thread([io = &worker->shard.io] { io->run(); });
  }
  return OkStatus();
}

void RouterImpl::Accept(Worker* worker, Acceptor* acceptor) {
  acceptor->async_accept(
      worker->shard.io, [this, worker, acceptor](const ErrorCode& error, Tcp::socket socket) {
        if (!acceptor->is_open()) return;
        if (!error) {
          OnAccepted(worker, std::move(socket));
          return Accept(worker, acceptor);
        }
        // Mostly out of files: connections that end will free some.
        worker->accept_pause->expires_after(kAcceptPause);
        worker->accept_pause->async_wait([this, worker, acceptor](const ErrorCode& cancelled) {
          if (!cancelled) Accept(worker, acceptor);
        });
      });
}

void RouterImpl::OnAccepted(Worker* worker, Tcp::socket socket) {
  ErrorCode error;
  Tcp::endpoint peer = socket.remote_endpoint(error);
  if (error || shared_.connections.load(std::memory_order_relaxed) >= connections_max_) return;
  net::ip::address address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6());
  }
  std::string text = address.to_string();
  bool counted = !address.is_loopback();
  if (counted && !per_address_.Add(text)) return;
  TuneTcp(socket.native_handle());
  bool trusted = shared_.proxies.Contains(text);
  auto connection = std::make_shared<ClientConnection>(
      &worker->shard,
      Socket(worker->shard.io.get_executor(), net::generic::stream_protocol(peer.protocol()),
             socket.release(error)),
      text, trusted);
  if (counted) connection->set_on_gone([this, text] { per_address_.Remove(text); });
  connection->Start();
}

void RouterImpl::AcceptAdmin() {
  net::io_context& io = workers_[0]->shard.io;
  admin_->async_accept(io, [this, &io](const ErrorCode& error, Tcp::socket socket) {
    if (!admin_->is_open()) return;
    if (!error) {
      ErrorCode ignored;
      auto protocol = net::generic::stream_protocol(admin_->local_endpoint(ignored).protocol());
      std::make_shared<AdminConnection>(
          Socket(io.get_executor(), protocol, socket.release(ignored)), &pages_)
          ->Start();
      return AcceptAdmin();
    }
    auto pause = std::make_shared<SteadyTimer>(io.get_executor());
    pause->expires_after(kAcceptPause);
    pause->async_wait([this, pause](const ErrorCode& cancelled) {
      if (!cancelled) AcceptAdmin();
    });
  });
}

void RouterImpl::EverySecond(Worker* worker) {
  Shard& shard = worker->shard;
  shard.second_timer.expires_after(kSecond);
  shard.second_timer.async_wait([this, worker](const ErrorCode& error) {
    if (error) return;
    Shard& shard = worker->shard;
    shard.pool.Sweep(shared_.clock->Now());
    shard.idle_actor_connections.store(shard.pool.idle(), std::memory_order_relaxed);
    shard.busy_actor_connections.store(shard.pool.busy(), std::memory_order_relaxed);
    shard.log.Flush();
    if (worker == workers_[0].get()) {
      if (shared_.reporter != nullptr) ReportActivity();
      if (shared_.authorizer != nullptr) shared_.authorizer->Refresh();
    }
    EverySecond(worker);
  });
}

void RouterImpl::ReportActivity() {
  auto request = shared_.activity.Collect(shared_.clock->WallNow());
  MonotonicTime now = shared_.clock->Now();
  if (request.activities_size() == 0 && now - reported_ < kReportAtLeast) return;
  reported_ = now;
  request.set_router_id(shared_.options.router_id);
  shared_.reporter->Report(request);
}

void RouterImpl::WaitForConnections(Duration grace) {
  MonotonicTime deadline = std::chrono::steady_clock::now() + grace;
  while (shared_.connections.load() > 0 && std::chrono::steady_clock::now() < deadline) {
    // Keep-alive connections that became idle meanwhile are closed here.
    OnEveryShard([](Shard* shard) {
      for (auto& connection : ConnectionsOf(shard)) connection->Drain();
    });
    std::this_thread::sleep_for(kRemindEvery);
  }
}

void RouterImpl::Shutdown() {
  if (!running_) return;
  running_ = false;
  shared_.draining.store(true);
  for (auto& worker : workers_) {
    net::post(worker->shard.io, [w = worker.get()] {
      ErrorCode ignored;
      for (auto& acceptor : w->acceptors) acceptor->close(ignored);
      w->accept_pause->cancel();
      w->shard.pool.CloseIdle();
    });
  }
  shared_.lot->Drain();
  WaitForConnections(shared_.options.shutdown_grace);
  for (auto& worker : workers_) {
    net::post(worker->shard.io, [this, w = worker.get()] {
      for (auto& connection : ConnectionsOf(&w->shard)) connection->Close();
      w->shard.pool.CloseIdle();
      w->shard.second_timer.cancel();
      w->shard.wheel_timer.cancel();
      w->shard.log.Flush();
      ErrorCode ignored;
      if (w == workers_[0].get()) {
        doors_->Close();
        if (admin_) admin_->close(ignored);
      }
      w->guard.reset();
      // What is left are timers of the parking lot; nobody waits for them.
      w->shard.io.stop();
    });
  }
  for (auto& worker : workers_) worker->thread.join();
}

Metrics::Gauges RouterImpl::Gauges() const {
  Metrics::Gauges gauges;
  ParkingLot::Stats lot = shared_.lot->stats();
  gauges.parked = lot.parked;
  gauges.flights = lot.flights;
  gauges.connections = shared_.connections.load();
  gauges.routes = shared_.cache.size();
  for (const auto& worker : workers_) {
    gauges.upstream_idle += worker->shard.idle_actor_connections.load();
    gauges.upstream_busy += worker->shard.busy_actor_connections.load();
  }
  return gauges;
}

std::string RouterImpl::StatusPage() const {
  std::string out;
  JsonLine json(&out);
  Metrics::Gauges gauges = Gauges();
  ParkingLot::Stats lot = shared_.lot->stats();
  json.Text("version", TORPOR_VERSION);
  json.Bool("draining", shared_.draining.load());
  json.Number("threads", static_cast<int64_t>(workers_.size()));
  json.Number("connections", static_cast<int64_t>(gauges.connections));
  json.Number("routes", static_cast<int64_t>(gauges.routes));
  json.Number("parked", static_cast<int64_t>(lot.parked));
  json.Number("looking_up", static_cast<int64_t>(lot.looking));
  json.Number("flights", static_cast<int64_t>(lot.flights));
  json.Number("parked_bytes", static_cast<int64_t>(lot.memory_bytes));
  json.Number("actor_connections_idle", static_cast<int64_t>(gauges.upstream_idle));
  json.Number("actor_connections_busy", static_cast<int64_t>(gauges.upstream_busy));
  json.List("flights_now", shared_.lot->flights(kFlightsShown),
            [](JsonLine* one, const ParkingLot::FlightStatus& flight) {
              one->Text("actor", flight.key.ToString());
              one->Number("waiting", static_cast<int64_t>(flight.waiting));
              one->Bool("calling", flight.calling);
              one->Number("failures", flight.failures);
            });
  json.List("doors", doors_->status(), [](JsonLine* one, const Doors::DoorStatus& door) {
    one->Text("door", door.door);
    one->Bool("open", door.open);
    one->Number("drains", static_cast<int64_t>(door.drains));
  });
  json.Close();
  out.push_back('\n');
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<Router>> Router::Start(RouterOptions options, Parts parts) {
  AddressSet proxies;
  for (const std::string& text : options.trusted_proxies) RETURN_IF_ERROR(proxies.Add(text));
  auto router = std::make_unique<RouterImpl>(std::move(options), parts, std::move(proxies));
  RETURN_IF_ERROR(router->Begin());
  return std::unique_ptr<Router>(std::move(router));
}

}  // namespace torpor::router
