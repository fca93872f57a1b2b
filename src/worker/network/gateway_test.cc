// Needs root: makes real network namespaces with this process's id in their names.
#include "worker/network/gateway.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "worker/probe/settle.h"

namespace torpor::worker {
namespace {

constexpr uint32_t kGatewayAddress = os::MakeIpv4(169, 254, 17, 1);
constexpr uint32_t kActorAddress = os::MakeIpv4(169, 254, 17, 2);
constexpr uint32_t kElsewhere = os::MakeIpv4(10, 0, 0, 1);

// What a hostile guest, or a late answer, looks like on a link: TCP segments without a socket.
class RawTcp {
 public:
  struct Segment {
    uint32_t from = 0;
    int to_port = 0;
    bool reset = false;
  };
  RawTcp() : fd_(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP)) {
    EXPECT_TRUE(fd_.valid()) << strerror(errno);
  }
  void BindToDevice(const std::string& link) {
    EXPECT_EQ(setsockopt(fd_.get(), SOL_SOCKET, SO_BINDTODEVICE, link.c_str(),
                         static_cast<socklen_t>(link.size())),
              0);
  }
  void Send(uint32_t from, int from_port, uint32_t to, int to_port, uint8_t flags) {
    tcphdr header = {};
    header.th_sport = htons(static_cast<uint16_t>(from_port));
    header.th_dport = htons(static_cast<uint16_t>(to_port));
    header.th_seq = htonl(1000);
    header.th_ack = (flags & TH_ACK) != 0 ? htonl(2000) : 0;
    header.th_off = sizeof(header) / 4;
    header.th_flags = flags;
    header.th_win = htons(1000);
    header.th_sum = Checksum(from, to, header);
    sockaddr_in remote = {};
    remote.sin_family = AF_INET;
    remote.sin_addr.s_addr = htonl(to);
    EXPECT_EQ(sendto(fd_.get(), &header, sizeof(header), 0, reinterpret_cast<sockaddr*>(&remote),
                     sizeof(remote)),
              static_cast<ssize_t>(sizeof(header)))
        << strerror(errno);
  }
  // The next segment that arrives; to_port is 0 when none does.
  Segment Receive() {
    pollfd ready = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
    char packet[2048];
    if (poll(&ready, 1, 2000) != 1) return {};
    ssize_t size = recv(fd_.get(), packet, sizeof(packet), 0);
    if (size < static_cast<ssize_t>(sizeof(iphdr) + sizeof(tcphdr))) return {};
    iphdr ip;
    tcphdr tcp;
    memcpy(&ip, packet, sizeof(ip));
    memcpy(&tcp, packet + ip.ihl * 4, sizeof(tcp));
    return {.from = ntohl(ip.saddr),
            .to_port = ntohs(tcp.th_dport),
            .reset = (tcp.th_flags & TH_RST) != 0};
  }

 private:
  static uint16_t Checksum(uint32_t from, uint32_t to, const tcphdr& header) {
    uint32_t sum =
        (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff) + IPPROTO_TCP + sizeof(header);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&header);
    for (size_t i = 0; i < sizeof(header); i += 2) {
      sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
    }
    while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
    return htons(static_cast<uint16_t>(~sum));
  }
  UniqueFd fd_;
};

class GatewayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    ASSERT_OK_AND_ASSIGN(gateway_, Gateway::Start(fmt::format("test-{}", getpid())));
  }
  struct Actor {
    std::string uid = IdSource::Real()->NewUuid();
    std::shared_ptr<ActorNetwork> network;
    UniqueFd listener;  // in the actor's namespace, port 80
  };
  // Returns an actor that listens.
  Actor MakeActor() {
    Actor actor;
    StatusOr<std::shared_ptr<ActorNetwork>> network = gateway_->Create(actor.uid);
    EXPECT_OK(network);
    actor.network = std::move(network).value();
    EXPECT_OK(InActor(actor, [&] {
      actor.listener = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in local = Address(0, 80);
      if (bind(actor.listener.get(), reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0 ||
          listen(actor.listener.get(), 8) != 0) {
        return ErrnoStatus(errno, "listen");
      }
      return OkStatus();
    }));
    return actor;
  }
  static sockaddr_in Address(uint32_t address, int port) {
    sockaddr_in out = {};
    out.sin_family = AF_INET;
    out.sin_port = htons(static_cast<uint16_t>(port));
    out.sin_addr.s_addr = htonl(address);
    return out;
  }
  static Status InActor(const Actor& actor, const std::function<Status()>& work) {
    ASSIGN_OR_RETURN(os::NetNamespace ns, os::NetNamespace::Open(ActorNetnsName(actor.uid)));
    return ns.Run(work);
  }
  std::unique_ptr<RawTcp> RawIn(const std::string& netns) {
    std::unique_ptr<RawTcp> raw;
    StatusOr<os::NetNamespace> ns = os::NetNamespace::Open(netns);
    EXPECT_OK(ns);
    EXPECT_OK(ns->Run([&] {
      raw = std::make_unique<RawTcp>();
      return OkStatus();
    }));
    return raw;
  }
  // TCP connections of the actor that are half open.
  static int HalfOpen(const Actor& actor) {
    int count = 0;
    EXPECT_OK(InActor(actor, [&] {
      std::ifstream table("/proc/thread-self/net/tcp");
      for (std::string line; std::getline(table, line);) {
        if (line.find(" 03 ") != std::string::npos) ++count;  // SYN_RECV
      }
      return OkStatus();
    }));
    return count;
  }
  // The errno with which a connect from inside the actor ends; 0 = it is connected.
  static int ConnectFrom(const Actor& actor, uint32_t address, int port) {
    int error = -1;
    EXPECT_OK(InActor(actor, [&] {
      UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in remote = Address(address, port);
      error = 0;
      if (connect(fd.get(), reinterpret_cast<sockaddr*>(&remote), sizeof(remote)) != 0) {
        error = errno;
      }
      if (error == EINPROGRESS) error = ResultOf(fd, 300);  // dropped: nothing ever answers
      return OkStatus();
    }));
    return error;
  }
  static int ResultOf(const UniqueFd& fd, int timeout_ms = 10000) {
    pollfd ready = {.fd = fd.get(), .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, timeout_ms) != 1) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTest, ReachesEachActorByItsLink) {
  std::vector<Actor> actors;
  for (int i = 0; i < 3; ++i) actors.push_back(MakeActor());
  for (Actor& actor : actors) {
    for (int i = 0; i < 5; ++i) {
      ASSERT_OK_AND_ASSIGN(UniqueFd client, actor.network->Dial(80));
      ASSERT_EQ(ResultOf(client), 0);
      UniqueFd server(accept4(actor.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ASSERT_TRUE(server.valid());
      ASSERT_EQ(send(client.get(), actor.uid.data(), actor.uid.size(), 0), 36);
      char text[64] = {};
      ASSERT_EQ(recv(server.get(), text, sizeof(text), 0), 36);
      EXPECT_EQ(text, actor.uid);
    }
    ASSERT_OK_AND_ASSIGN(UniqueFd refused, actor.network->Dial(81));
    EXPECT_EQ(ResultOf(refused), ECONNREFUSED);
  }
}

TEST_F(GatewayTest, ActorsReachNothing) {
  Actor actor = MakeActor();
  Actor other = MakeActor();
  UniqueFd trap;  // even a listener in the gateway must not be reachable
  ASSERT_OK_AND_ASSIGN(os::NetNamespace ns, os::NetNamespace::Open(gateway_->netns_name()));
  ASSERT_OK(ns.Run([&] {
    trap = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in local = Address(0, 8080);
    if (bind(trap.get(), reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0 ||
        listen(trap.get(), 8) != 0) {
      return ErrnoStatus(errno, "listen");
    }
    return OkStatus();
  }));
  EXPECT_EQ(ConnectFrom(actor, kGatewayAddress, 8080), ECONNREFUSED);
  EXPECT_EQ(ConnectFrom(actor, kGatewayAddress, 81), ECONNREFUSED);
  // At once, and not after minutes: a guest that is connecting could not be captured.
  EXPECT_EQ(ConnectFrom(actor, kElsewhere, 80), ECONNREFUSED);
  EXPECT_NE(ConnectFrom(actor, os::MakeIpv4(169, 254, 17, 3), 80), 0);
  EXPECT_EQ(ConnectFrom(actor, kActorAddress, 80), 0);  // itself, by its own stack
}

// All actors have one address, so the kernel's routes alone would send each of these resets to the
// first of them.
TEST_F(GatewayTest, ResetsGoBackToWhomTheyAnswer) {
  std::vector<Actor> actors;
  std::vector<std::unique_ptr<RawTcp>> raw;
  for (int i = 0; i < 3; ++i) {
    actors.push_back(MakeActor());
    raw.push_back(RawIn(ActorNetnsName(actors.back().uid)));
  }
  struct Case {
    uint32_t to;
    uint8_t flags;
  };
  // The last actor first: what strays to another one then lies before that one's own reset.
  int port = 20000;
  for (size_t i = actors.size(); i-- > 0;) {
    for (Case c : {Case{kGatewayAddress, TH_SYN | TH_ACK}, Case{kGatewayAddress, TH_ACK},
                   Case{kGatewayAddress, TH_SYN}, Case{kElsewhere, TH_SYN}}) {
      SCOPED_TRACE(fmt::format("actor {} flags {:#x} to {:#x}", i, c.flags, c.to));
      ++port;
      raw[i]->Send(kActorAddress, port, c.to, 30000, c.flags);
      RawTcp::Segment answer = raw[i]->Receive();
      EXPECT_EQ(answer.to_port, port);
      EXPECT_TRUE(answer.reset);
      EXPECT_EQ(answer.from, c.to);
    }
  }
}

TEST_F(GatewayTest, LinksAreNumberedAgain) {
  Actor first = MakeActor();
  std::shared_ptr<ActorNetwork> second = MakeActor().network;
  ASSERT_OK(first.network->Remove());
  EXPECT_THAT(gateway_->netlink().LinkIndex("v0"), HasCode(Code::kNotFound));
  Actor third = MakeActor();
  ASSERT_OK(gateway_->netlink().LinkIndex("v0").status());
  EXPECT_THAT(gateway_->netlink().LinkIndex("v2"), HasCode(Code::kNotFound));
  std::unique_ptr<RawTcp> raw = RawIn(ActorNetnsName(third.uid));
  raw->Send(kActorAddress, 20000, kGatewayAddress, 30000, TH_SYN | TH_ACK);
  EXPECT_TRUE(raw->Receive().reset);
}

// A connection request whose sender has gone leaves nothing half open in the guest.
TEST_F(GatewayTest, SettledGuestsHaveNothingHalfOpen) {
  Actor other = MakeActor();
  Actor actor = MakeActor();
  std::unique_ptr<RawTcp> raw = RawIn(gateway_->netns_name());
  raw->BindToDevice("v1");
  auto dial = [&](int port) { return actor.network->Dial(port); };
  for (int i = 0; i < 20; ++i) {
    raw->Send(kGatewayAddress, 20000 + i, kActorAddress, 80, TH_SYN);
    EXPECT_TRUE(
        WaitUntilSettled(dial, Clock::Real()->Now() + std::chrono::seconds(5), {}, Clock::Real()));
    EXPECT_EQ(HalfOpen(actor), 0);
  }
}

// What was reset before is reset for the guest after it, without the guest's program having run.
TEST_F(GatewayTest, SettledGuestsKnowTheEndOfTheirConnections) {
  Actor actor = MakeActor();
  auto dial = [&](int port) { return actor.network->Dial(port); };
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(UniqueFd client, actor.network->Dial(80));
    ASSERT_EQ(ResultOf(client), 0);
    UniqueFd server(accept4(actor.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(server.valid());
    sockaddr none = {};
    none.sa_family = AF_UNSPEC;
    ASSERT_EQ(connect(client.get(), &none, sizeof(none)), 0);
    ASSERT_TRUE(
        WaitUntilSettled(dial, Clock::Real()->Now() + std::chrono::seconds(5), {}, Clock::Real()));
    char byte;
    EXPECT_EQ(recv(server.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, ECONNRESET);
  }
}

TEST_F(GatewayTest, PrepareRestoresWhatTheRuntimeTook) {
  Actor actor = MakeActor();
  // What runsc does: the addresses, and with them the routes, leave eth0.
  ASSERT_OK(InActor(actor, [] {
    return system("ip addr flush dev eth0") == 0 ? OkStatus()
                                                 : Error(Code::kInternal, "INTERNAL", "ip");
  }));
  ASSERT_OK_AND_ASSIGN(UniqueFd lost, actor.network->Dial(80));
  EXPECT_NE(ResultOf(lost), 0);
  ASSERT_OK(actor.network->Prepare());
  ASSERT_OK(actor.network->Prepare());
  ASSERT_OK_AND_ASSIGN(UniqueFd client, actor.network->Dial(80));
  EXPECT_EQ(ResultOf(client), 0);
}

TEST_F(GatewayTest, LeavesNothingBehind) {
  Actor actor = MakeActor();
  std::string uid = actor.uid;
  ASSERT_OK(actor.network->Remove());
  ASSERT_OK(actor.network->Remove());
  EXPECT_THAT(os::NetNamespace::Open(ActorNetnsName(uid)), HasCode(Code::kNotFound));
  EXPECT_THAT(gateway_->netlink().LinkIndex("v0"), HasCode(Code::kNotFound));
  actor.network.reset();
  // A namespace that an earlier worker left is replaced.
  ASSERT_OK(os::NetNamespace::Create(ActorNetnsName(uid), nullptr).status());
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<ActorNetwork> again, gateway_->Create(uid));
  again.reset();
  EXPECT_THAT(os::NetNamespace::Open(ActorNetnsName(uid)), HasCode(Code::kNotFound));
  std::string name = gateway_->netns_name();
  gateway_.reset();
  EXPECT_THAT(os::NetNamespace::Open(name), HasCode(Code::kNotFound));
}

// ---- Networks made in advance ----

int OpenDescriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

void WaitForSpares(const Gateway& gateway, int count) {
  MonotonicTime deadline = Clock::Real()->Now() + std::chrono::seconds(30);
  while (gateway.spares() != count && Clock::Real()->Now() < deadline) usleep(2000);
  ASSERT_EQ(gateway.spares(), count);
}

TEST_F(GatewayTest, SparesAreUsedOnceAndWork) {
  gateway_.reset();
  const std::string id = fmt::format("test-{}", getpid());
  const std::string prefix = SpareNetnsPrefix(id);
  // What a worker that was killed has left goes.
  ASSERT_OK(os::NetNamespace::Create(prefix + "7", nullptr).status());
  ASSERT_OK_AND_ASSIGN(gateway_, Gateway::Start(id, 2));
  EXPECT_THAT(os::NetNamespace::Open(prefix + "7"), HasCode(Code::kNotFound));
  WaitForSpares(*gateway_, 2);
  std::set<std::string> paths;
  for (int i = 0; i < 5; ++i) {  // also when none is ready
    ASSERT_OK_AND_ASSIGN(std::shared_ptr<ActorNetwork> network,
                         gateway_->Create(IdSource::Real()->NewUuid()));
    EXPECT_TRUE(paths.insert(network->netns_path()).second) << "used twice";
    ASSERT_OK_AND_ASSIGN(UniqueFd client, network->Dial(80));
    EXPECT_EQ(ResultOf(client), ECONNREFUSED) << "the actor's own stack answers";
    ASSERT_OK(network->Remove());
  }
  WaitForSpares(*gateway_, 2);
  gateway_.reset();
  ASSERT_OK_AND_ASSIGN(auto left, os::ListNetNamespaces(prefix));
  EXPECT_TRUE(left.empty());
}

TEST_F(GatewayTest, HundredNetworksLeaveNothing) {
  gateway_.reset();
  const int descriptors = OpenDescriptors();
  const std::string id = fmt::format("test-{}", getpid());
  ASSERT_OK_AND_ASSIGN(gateway_, Gateway::Start(id, 2));
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK_AND_ASSIGN(std::shared_ptr<ActorNetwork> network,
                         gateway_->Create(IdSource::Real()->NewUuid()));
    if (i % 2 == 0) {
      ASSERT_OK(network->Remove());  // else its destructor does
    }
  }
  WaitForSpares(*gateway_, 2);
  // Numbers are given again, so a link that stayed would push them up.
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<ActorNetwork> last,
                       gateway_->Create(IdSource::Real()->NewUuid()));
  for (int number = 4; number < 100; ++number) {
    ASSERT_THAT(gateway_->netlink().LinkIndex(fmt::format("v{}", number)),
                HasCode(Code::kNotFound));
  }
  last.reset();
  gateway_.reset();
  ASSERT_OK_AND_ASSIGN(auto left, os::ListNetNamespaces(SpareNetnsPrefix(id)));
  EXPECT_TRUE(left.empty());
  EXPECT_THAT(os::NetNamespace::Open(GatewayNetnsName(id)), HasCode(Code::kNotFound));
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(GatewayTest, PrintsWhatCreateAndDialCost) {
  std::vector<double> create_ms, dial_us, settle_us;
  auto ms = [](auto begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  for (int i = 0; i < 20; ++i) {
    auto begin = std::chrono::steady_clock::now();
    ASSERT_OK_AND_ASSIGN(std::shared_ptr<ActorNetwork> network,
                         gateway_->Create(IdSource::Real()->NewUuid()));
    create_ms.push_back(ms(begin));
  }
  Actor actor = MakeActor();
  for (int i = 0; i < 100; ++i) {
    auto begin = std::chrono::steady_clock::now();
    ASSERT_OK_AND_ASSIGN(UniqueFd client, actor.network->Dial(80));
    ASSERT_EQ(ResultOf(client), 0);
    dial_us.push_back(ms(begin) * 1000);
    UniqueFd(accept(actor.listener.get(), nullptr, nullptr)).Reset();
    begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(WaitUntilSettled([&](int port) { return actor.network->Dial(port); },
                                 Clock::Real()->Now() + std::chrono::seconds(5), {},
                                 Clock::Real()));
    settle_us.push_back(ms(begin) * 1000);
  }
  std::sort(create_ms.begin(), create_ms.end());
  std::sort(dial_us.begin(), dial_us.end());
  std::sort(settle_us.begin(), settle_us.end());
  fmt::print(
      "network of an actor p50/p95 {:.2f}/{:.2f} ms; dial until connected p50 {:.0f} us; settled "
      "p50 {:.0f} us\n",
      create_ms[10], create_ms[18], dial_us[50], settle_us[50]);
}

}  // namespace
}  // namespace torpor::worker
