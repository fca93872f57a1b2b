#include "worker/network/gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <iterator>

#include <fmt/format.h>

#include "base/log.h"
#include "base/time.h"
#include "model/reasons.h"
#include "os/process/process.h"

namespace torpor::worker {
namespace {

using os::Ipv4;
using os::MacAddress;
using os::MakeIpv4;
using os::Netlink;
using os::NetNamespace;

constexpr Ipv4 kGatewayAddress = MakeIpv4(169, 254, 17, 1);
constexpr Ipv4 kActorAddress = MakeIpv4(169, 254, 17, 2);
constexpr int kPrefixBits = 30;
constexpr MacAddress kGatewayMac = {0x02, 0x54, 0x6f, 0x72, 0x70, 0x01};
constexpr MacAddress kActorMac = {0x02, 0x54, 0x6f, 0x72, 0x70, 0x02};
constexpr int kLoopbackIndex = 1;
constexpr size_t kStock = 32;
constexpr char kActorLink[] = "eth0";
// A wake takes longer than this after it took its network, but not every machine is busy with wakes
// all the time.
constexpr Duration kQuiet = std::chrono::milliseconds(300);
constexpr Duration kRetry = std::chrono::seconds(5);

// Every packet of an actor carries the mark of its link, which is the number of its routing table,
// too. The bit keeps marked packets apart from all others.
constexpr uint32_t kMarkBit = 0x10000;
static_assert(Gateway::kLinksMax < kMarkBit);
constexpr uint32_t kLinkRulePriority = 1000;
constexpr os::MarkRule kNoOtherTable = {
    .mark = kMarkBit, .mask = kMarkBit, .table = 0, .priority = 2000};

std::string LinkName(uint32_t number) { return fmt::format("v{}", number); }
os::MarkRule RuleOf(uint32_t number) {
  uint32_t mark = kMarkBit + number;
  return {.mark = mark, .table = mark, .priority = kLinkRulePriority};
}

// Actors may answer, never begin. Not by connection tracking: all actors have the same addresses
// and ports may repeat, so two connections would share one entry of it. Without a socket behind it
// a segment that is no SYN is answered with a reset by the kernel itself, as nothing listens here.
// The reset of a SYN comes before routing, so that it does not depend on the address: a guest whose
// connect hangs could not be captured (a half-open endpoint is a crash of the sentry).
//
// The marks of all links that can ever be are listed at once, by name, because a map of nft is the
// only way from a link to a mark, and changing it per link would cost a process each time.
std::string Rules() {
  std::string links;
  for (uint32_t number = 0; number < Gateway::kLinksMax; ++number) {
    fmt::format_to(std::back_inserter(links), "{}\"{}\" : {}", number == 0 ? "" : ",",
                   LinkName(number), RuleOf(number).mark);
  }
  return fmt::format(R"(
table inet torpor {{
  map links {{
    type ifname : mark
    elements = {{ {} }}
  }}
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iif lo accept
    meta mark set iifname map @links
    meta mark 0 drop
    meta nfproto ipv4 tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    iif lo accept
    ip protocol tcp accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
  }}
}}
)",
                     links);
}

// In the gateway's namespace.
Status SetUpGateway(std::unique_ptr<Netlink>* netlink) {
  for (const auto& [key, value] :
       {std::pair("net/ipv6/conf/all/disable_ipv6", "1"),
        std::pair("net/ipv6/conf/default/disable_ipv6", "1"), std::pair("net/ipv4/ip_forward", "0"),
        std::pair("net/ipv4/conf/all/rp_filter", "0"),
        std::pair("net/ipv4/conf/default/rp_filter", "0"),
        std::pair("net/ipv4/fwmark_reflect", "1")}) {
    RETURN_IF_ERROR(os::SetNetSysctl(key, value));
  }
  ASSIGN_OR_RETURN(*netlink, Netlink::Open());
  RETURN_IF_ERROR((*netlink)->SetUp(kLoopbackIndex));
  // An answer to a link that is just being removed goes nowhere, not to another actor.
  RETURN_IF_ERROR((*netlink)->AddRule(kNoOtherTable));
  // The child inherits the namespace of this thread.
  os::CommandOptions options;
  options.deadline = Clock::Real()->Now() + std::chrono::seconds(10);
  options.input = Rules();
  StatusOr<std::string> output = os::CommandOutput({"nft", "-f", "-"}, options);
  return output.ok() ? OkStatus() : Annotate(output.status(), "packet rules (package nftables)");
}

class GatewayNetwork : public ActorNetwork {
 public:
  GatewayNetwork(Gateway* gateway, NetNamespace ns, std::unique_ptr<Netlink> netlink,
                 uint32_t number)
      : gateway_(gateway),
        ns_(std::move(ns)),
        netlink_(std::move(netlink)),
        number_(number),
        link_(LinkName(number)) {}
  ~GatewayNetwork() override {
    Status status = Remove();
    if (!status.ok()) LogWarning("network not removed", {{"error", status.ToString()}});
  }

  Status Link() {
    RETURN_IF_ERROR(gateway_->netlink().CreateVeth({.name = link_,
                                                    .mac = kGatewayMac,
                                                    .peer_name = kActorLink,
                                                    .peer_mac = kActorMac,
                                                    .peer_netns_fd = ns_.fd()}));
    ASSIGN_OR_RETURN(int here, gateway_->netlink().LinkIndex(link_));
    RETURN_IF_ERROR(gateway_->netlink().SetAddress(here, kGatewayAddress, kPrefixBits));
    RETURN_IF_ERROR(gateway_->netlink().SetNeighbour(here, kActorAddress, kActorMac));
    os::MarkRule rule = RuleOf(number_);
    RETURN_IF_ERROR(gateway_->netlink().SetHostRoute(here, kActorAddress, rule.table));
    RETURN_IF_ERROR(gateway_->netlink().AddRule(rule));
    ASSIGN_OR_RETURN(index_, netlink_->LinkIndex(kActorLink));
    RETURN_IF_ERROR(netlink_->SetUp(index_));
    return Prepare();
  }

  std::string netns_path() const override { return ns_.path(); }

  Status Prepare() override {
    RETURN_IF_ERROR(netlink_->SetAddress(index_, kActorAddress, kPrefixBits));
    return netlink_->SetDefaultRoute(index_, kGatewayAddress);
  }

  StatusOr<UniqueFd> Dial(int port) override {
    ASSIGN_OR_RETURN(UniqueFd fd, gateway_->NewSocket());
    if (setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, link_.c_str(),
                   static_cast<socklen_t>(link_.size())) != 0) {
      return ErrnoStatus(errno, "bind to " + link_);
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(kActorAddress);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
        errno != EINPROGRESS) {
      return ErrnoStatus(errno, "connect");
    }
    return fd;
  }

  Status Remove() override {
    if (removed_.exchange(true)) return OkStatus();
    // The link by itself, too: sandboxes started meanwhile may still hold the namespace.
    Status link = gateway_->netlink().DeleteLink(link_);
    if (link.ok()) link = gateway_->netlink().DeleteRule(RuleOf(number_));
    if (link.ok()) gateway_->ReturnLink(number_);  // else it is not used again
    Status name = os::DeleteNetNamespace(ns_.name());
    return link.ok() ? name : link;
  }

 private:
  Gateway* const gateway_;
  const NetNamespace ns_;
  const std::unique_ptr<Netlink> netlink_;  // of the actor's namespace
  const uint32_t number_;
  const std::string link_;
  int index_ = -1;  // of eth0; set once by Link
  std::atomic<bool> removed_{false};
};

// Also opens what speaks about it.
StatusOr<NetNamespace> MakeActorNamespace(const std::string& name,
                                          std::unique_ptr<Netlink>* netlink) {
  auto set_up = [netlink]() -> Status {
    RETURN_IF_ERROR(os::SetNetSysctl("net/ipv6/conf/all/disable_ipv6", "1"));
    RETURN_IF_ERROR(os::SetNetSysctl("net/ipv6/conf/default/disable_ipv6", "1"));
    ASSIGN_OR_RETURN(*netlink, Netlink::Open());
    return (*netlink)->SetUp(kLoopbackIndex);
  };
  StatusOr<NetNamespace> ns = NetNamespace::Create(name, set_up);
  if (ns.status().code() != Code::kAlreadyExists) return ns;
  // The worker serialises what happens to one actor: this is nobody's any more.
  RETURN_IF_ERROR(os::DeleteNetNamespace(name));
  return NetNamespace::Create(name, set_up);
}

}  // namespace

std::string ActorNetnsName(std::string_view actor_uid) {
  return fmt::format("torpor-{}", actor_uid);
}
std::string GatewayNetnsName(std::string_view worker_id) {
  return fmt::format("torpor-gw-{}", worker_id);
}
std::string SpareNetnsPrefix(std::string_view worker_id) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (char c : worker_id) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619;
  return fmt::format("torpor-spare-{:08x}-", hash);
}

Gateway::Gateway(const std::string& worker_id, int spares)
    : name_(GatewayNetnsName(worker_id)),
      spare_prefix_(SpareNetnsPrefix(worker_id)),
      spares_wanted_(static_cast<size_t>(spares)) {}

StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const std::string& worker_id, int spares) {
  auto gateway = std::unique_ptr<Gateway>(new Gateway(worker_id, spares));
  RETURN_IF_ERROR(os::DeleteNetNamespace(gateway->name_));
  ASSIGN_OR_RETURN(auto left, os::ListNetNamespaces(gateway->spare_prefix_));
  for (const std::string& name : left) RETURN_IF_ERROR(os::DeleteNetNamespace(name));
  ASSIGN_OR_RETURN(NetNamespace ns, NetNamespace::Create(gateway->name_, [&] {
                     return SetUpGateway(&gateway->netlink_);
                   }));
  ASSIGN_OR_RETURN(gateway->thread_, os::NetnsThread::Start(ns));
  gateway->thread_->Post([raw = gateway.get()] { raw->Refill(); });
  if (spares > 0) gateway->spare_thread_ = std::thread([raw = gateway.get()] { raw->RunSpares(); });
  return gateway;
}

Gateway::~Gateway() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (spare_thread_.joinable()) spare_thread_.join();
  std::deque<std::shared_ptr<ActorNetwork>> spares;
  {
    MutexLock lock(&mu_);
    spares.swap(spares_);
  }
  spares.clear();  // each removes itself, and asks this object for it
  thread_.reset();
  Status status = os::DeleteNetNamespace(name_);
  if (!status.ok()) LogWarning("gateway not removed", {{"error", status.ToString()}});
}

StatusOr<std::shared_ptr<ActorNetwork>> Gateway::Create(const std::string& actor_uid) {
  {
    MutexLock lock(&mu_);
    asked_ = Clock::Real()->Now();
    changed_.SignalAll();
    if (!spares_.empty()) {
      std::shared_ptr<ActorNetwork> network = std::move(spares_.front());
      spares_.pop_front();
      return network;
    }
  }
  return Make(ActorNetnsName(actor_uid));
}

int Gateway::spares() const {
  MutexLock lock(&mu_);
  return static_cast<int>(spares_.size());
}

void Gateway::RunSpares() {
  while (true) {
    std::string name;
    {
      MutexLock lock(&mu_);
      while (!stopping_) {
        MonotonicTime quiet = asked_ + kQuiet;
        if (spares_.size() >= spares_wanted_) {
          changed_.Wait(&mu_);
        } else if (Clock::Real()->Now() >= quiet) {
          break;
        } else {
          (void)changed_.WaitUntil(&mu_, quiet);
        }
      }
      if (stopping_) return;
      name = fmt::format("{}{}", spare_prefix_, spares_made_++);
    }
    StatusOr<std::shared_ptr<ActorNetwork>> made = Make(name);
    MutexLock lock(&mu_);
    if (made.ok()) {
      spares_.push_back(*std::move(made));
      continue;
    }
    LogWarning("no network in advance", {{"error", made.status().ToString()}});
    asked_ = Clock::Real()->Now() + kRetry;
  }
}

StatusOr<std::shared_ptr<ActorNetwork>> Gateway::Make(const std::string& netns_name) {
  ASSIGN_OR_RETURN(uint32_t number, TakeLink());
  std::unique_ptr<Netlink> netlink;
  StatusOr<NetNamespace> ns = MakeActorNamespace(netns_name, &netlink);
  if (!ns.ok()) {
    ReturnLink(number);
    return ns.status();
  }
  auto network =
      std::make_shared<GatewayNetwork>(this, std::move(ns).value(), std::move(netlink), number);
  RETURN_IF_ERROR(network->Link());
  return network;
}

StatusOr<uint32_t> Gateway::TakeLink() {
  MutexLock lock(&mu_);
  if (!returned_links_.empty()) return returned_links_.extract(returned_links_.begin()).value();
  if (links_begun_ < kLinksMax) return links_begun_++;
  return Fail(reasons::kNoCapacity, fmt::format("{} networks exist", kLinksMax));
}

void Gateway::ReturnLink(uint32_t number) {
  MutexLock lock(&mu_);
  returned_links_.insert(number);
}

StatusOr<UniqueFd> Gateway::NewSocket() {
  UniqueFd fd;
  size_t left = 0;
  {
    MutexLock lock(&mu_);
    if (!stock_.empty()) {
      fd = std::move(stock_.front());
      stock_.pop_front();
    }
    left = stock_.size();
  }
  if (left < kStock / 2) thread_->Post([this] { Refill(); });
  if (fd.valid()) return fd;
  RETURN_IF_ERROR(thread_->Run([&]() -> Status {
    fd = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return fd.valid() ? OkStatus() : ErrnoStatus(errno, "socket");
  }));
  return fd;
}

void Gateway::Refill() {
  while (true) {
    {
      MutexLock lock(&mu_);
      if (stock_.size() >= kStock) return;
    }
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return;  // NewSocket will meet and report the same error
    MutexLock lock(&mu_);
    stock_.push_back(std::move(fd));
  }
}

}  // namespace torpor::worker
