#pragma once
// The worker's own network namespace, to which every actor is linked, and from which the worker
// connects into the actors.
//
// Each actor has a namespace torpor-<uid> with eth0 169.254.17.2/30; the other end of the link lies
// in torpor-gw-<worker> with 169.254.17.1. All actors have the same addresses, so a guest never
// sees them change; SO_BINDTODEVICE tells the links apart. What the kernel answers without a socket
// (resets) goes back over the link that was asked: packets of a link carry its mark, answers take
// over the mark (fwmark_reflect), and a rule per mark names the link's own routing table. In the
// gateway nothing listens, nothing is forwarded, IPv6 is off, and packet rules take from actors
// only replies; a connection an actor begins is reset, wherever it goes. MAC addresses are fixed
// and the neighbour entry is permanent: a restored guest knows its peer at once, and no lost ARP
// request costs a second.
//
// A few networks are made in advance, so that a wake does not wait for the 10 ms that one costs.
// Each is used once and then destroyed. New ones are made when no actor has asked for a moment:
// then they do not compete with the wake that took the last.
//
// Thread-safe. Needs root. The Gateway outlives the networks it made.

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "os/netns/netlink.h"
#include "os/netns/netns.h"
#include "worker/network/actor_network.h"

namespace torpor::worker {

class Gateway : public NetworkProvider {
 public:
  static constexpr uint32_t kLinksMax = 4096;

  // `worker_id` is a label. What an earlier gateway of this id left is removed first. `spares` is
  // the number of networks made in advance.
  static StatusOr<std::unique_ptr<Gateway>> Start(const std::string& worker_id, int spares = 0);
  ~Gateway() override;

  StatusOr<std::shared_ptr<ActorNetwork>> Create(const std::string& actor_uid) override
      EXCLUDES(mu_);

  // A TCP socket of the gateway's namespace. From a small stock, so that no caller waits for a
  // thread that may enter the namespace.
  StatusOr<UniqueFd> NewSocket() EXCLUDES(mu_);
  os::Netlink& netlink() { return *netlink_; }
  // For networks: a link is gone, its number may be given again.
  void ReturnLink(uint32_t number) EXCLUDES(mu_);
  const std::string& netns_name() const { return name_; }
  int spares() const EXCLUDES(mu_);  // that are ready

 private:
  Gateway(const std::string& worker_id, int spares);
  void Refill() EXCLUDES(mu_);
  // A network whose namespace has this name.
  StatusOr<std::shared_ptr<ActorNetwork>> Make(const std::string& netns_name) EXCLUDES(mu_);
  void RunSpares() EXCLUDES(mu_);  // on its own thread
  StatusOr<uint32_t> TakeLink() EXCLUDES(mu_);

  const std::string name_;
  const std::string spare_prefix_;
  const size_t spares_wanted_;
  std::unique_ptr<os::Netlink> netlink_;
  std::unique_ptr<os::NetnsThread> thread_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mu_) = false;
  MonotonicTime asked_ GUARDED_BY(mu_);  // the last time a network was taken
  int64_t spares_made_ GUARDED_BY(mu_) = 0;
  std::deque<std::shared_ptr<ActorNetwork>> spares_ GUARDED_BY(mu_);
  std::thread spare_thread_;
  std::deque<UniqueFd> stock_ GUARDED_BY(mu_);
  uint32_t links_begun_ GUARDED_BY(mu_) = 0;           // numbers below were given out once
  std::set<uint32_t> returned_links_ GUARDED_BY(mu_);  // and these came back
};

// The name of an actor's namespace, unless it was made in advance.
std::string ActorNetnsName(std::string_view actor_uid);
std::string GatewayNetnsName(std::string_view worker_id);
// Of namespaces made in advance; a number follows. Short, since a worker's id may fill a name.
std::string SpareNetnsPrefix(std::string_view worker_id);

}  // namespace torpor::worker
