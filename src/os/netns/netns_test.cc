// Needs root: makes real network namespaces, all named torpor-test-<pid>-*.
#include "os/netns/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/netns/netlink.h"

namespace torpor::os {
namespace {

constexpr Ipv4 kLeft = MakeIpv4(169, 254, 17, 1);
constexpr Ipv4 kRight = MakeIpv4(169, 254, 17, 2);
constexpr MacAddress kLeftMac = {2, 0, 0, 0, 0, 1};
constexpr MacAddress kRightMac = {2, 0, 0, 0, 0, 2};

class NetnsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  }
  void TearDown() override {
    for (const std::string& name : names_) EXPECT_OK(DeleteNetNamespace(name));
  }
  std::string Name(const std::string& suffix) {
    names_.push_back(fmt::format("torpor-test-{}-{}", getpid(), suffix));
    return names_.back();
  }
  std::vector<std::string> names_;
};

std::string NetnsIdOfThread() {
  struct stat info = {};
  stat("/proc/thread-self/ns/net", &info);
  return fmt::format("{}", info.st_ino);
}

// Addresses of `link` in the calling thread's namespace.
std::vector<std::string> AddressesOf(const std::string& link) {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET || link != a->ifa_name)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof(text));
    found.emplace_back(text);
  }
  freeifaddrs(all);
  return found;
}

uint64_t SentBy(const std::string& link) {
  ifaddrs* all = nullptr;
  uint64_t packets = 0;
  if (getifaddrs(&all) != 0) return 0;
  for (ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_PACKET || link != a->ifa_name)
      continue;
    packets = static_cast<rtnl_link_stats*>(a->ifa_data)->tx_packets;
  }
  freeifaddrs(all);
  return packets;
}

// A namespace `right` joined to the namespace of `left` by link `link`/eth0.
Status Join(Netlink& left, const NetNamespace& right, Netlink& right_netlink,
            const std::string& link) {
  RETURN_IF_ERROR(left.CreateVeth({.name = link,
                                   .mac = kLeftMac,
                                   .peer_name = "eth0",
                                   .peer_mac = kRightMac,
                                   .peer_netns_fd = right.fd()}));
  ASSIGN_OR_RETURN(int left_index, left.LinkIndex(link));
  RETURN_IF_ERROR(left.SetAddress(left_index, kLeft, 30));
  RETURN_IF_ERROR(left.SetNeighbour(left_index, kRight, kRightMac));
  ASSIGN_OR_RETURN(int right_index, right_netlink.LinkIndex("eth0"));
  RETURN_IF_ERROR(right_netlink.SetAddress(right_index, kRight, 30));
  RETURN_IF_ERROR(right_netlink.SetUp(right_index));
  return right_netlink.SetDefaultRoute(right_index, kLeft);
}

// `ip netns add` mounts /run/netns over itself unless it is a mount point already.
TEST_F(NetnsTest, IpNetnsBesideItHidesNothing) {
  const std::string ours = Name("ours"), theirs = Name("theirs");
  std::thread([&] {  // with mounts of its own, as after a boot
    ASSERT_EQ(unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(mount("", "/", "none", MS_PRIVATE | MS_REC, nullptr), 0);
    while (umount2("/run/netns", MNT_DETACH) == 0) {
    }
    ASSERT_OK(NetNamespace::Create(ours, nullptr));
    EXPECT_EQ(system(("ip netns add " + theirs).c_str()), 0);
    EXPECT_OK(NetNamespace::Open(ours));
    EXPECT_OK(DeleteNetNamespace(ours));
    EXPECT_EQ(system(("ip netns del " + theirs).c_str()), 0);
  })
      .join();
}

TEST_F(NetnsTest, CreateListOpenDelete) {
  std::string name = Name("a");
  ASSERT_OK_AND_ASSIGN(NetNamespace ns, NetNamespace::Create(name, nullptr));
  EXPECT_EQ(ns.path(), "/run/netns/" + name);
  EXPECT_THAT(NetNamespace::Create(name, nullptr), HasCode(Code::kAlreadyExists));
  std::string prefix = fmt::format("torpor-test-{}-", getpid());
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> listed, ListNetNamespaces(prefix));
  EXPECT_EQ(listed, std::vector<std::string>{name});
  std::string inside, again;
  ASSERT_OK(ns.Run([&] {
    inside = NetnsIdOfThread();
    return OkStatus();
  }));
  ASSERT_OK_AND_ASSIGN(NetNamespace opened, NetNamespace::Open(name));
  ASSERT_OK(opened.Run([&] {
    again = NetnsIdOfThread();
    return OkStatus();
  }));
  EXPECT_EQ(inside, again);
  EXPECT_NE(inside, NetnsIdOfThread());
  ASSERT_OK(DeleteNetNamespace(name));
  ASSERT_OK(DeleteNetNamespace(name));
  EXPECT_THAT(NetNamespace::Open(name), HasCode(Code::kNotFound));
}

TEST_F(NetnsTest, FailedSetUpLeavesNoName) {
  std::string name = Name("b");
  EXPECT_THAT(NetNamespace::Create(
                  name, [] { return Error(Code::kInternal, "INTERNAL", "set up failed"); }),
              MessageHas("set up failed"));
  EXPECT_THAT(NetNamespace::Open(name), HasCode(Code::kNotFound));
}

TEST_F(NetnsTest, HostileNamesAreRefused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc", "a\nb", "A", "-a", "a b"}) {
    EXPECT_THAT(NetNamespace::Create(name, nullptr), HasCode(Code::kInvalidArgument)) << name;
    EXPECT_THAT(NetNamespace::Open(name), HasCode(Code::kInvalidArgument)) << name;
    EXPECT_THAT(DeleteNetNamespace(name), HasCode(Code::kInvalidArgument)) << name;
  }
}

TEST_F(NetnsTest, AddressesCanBeSetAgainAfterTheyWereTaken) {
  std::unique_ptr<Netlink> left, right;
  ASSERT_OK_AND_ASSIGN(NetNamespace a, NetNamespace::Create(Name("l"), [&]() -> Status {
                         ASSIGN_OR_RETURN(left, Netlink::Open());
                         return OkStatus();
                       }));
  ASSERT_OK_AND_ASSIGN(NetNamespace b, NetNamespace::Create(Name("r"), [&]() -> Status {
                         ASSIGN_OR_RETURN(right, Netlink::Open());
                         return OkStatus();
                       }));
  ASSERT_OK(Join(*left, b, *right, "v1"));
  EXPECT_THAT(left->CreateVeth({.name = "v1",
                                .mac = kLeftMac,
                                .peer_name = "eth1",
                                .peer_mac = kRightMac,
                                .peer_netns_fd = b.fd()}),
              HasCode(Code::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(int index, right->LinkIndex("eth0"));
  // Twice: a repeated call replaces, and what runsc does (link down, flush) is undone by it.
  ASSERT_OK(right->SetAddress(index, kRight, 30));
  ASSERT_OK(right->SetDefaultRoute(index, kLeft));
  std::vector<std::string> addresses;
  ASSERT_OK(b.Run([&] {
    addresses = AddressesOf("eth0");
    return OkStatus();
  }));
  EXPECT_EQ(addresses, std::vector<std::string>{"169.254.17.2"});
  ASSERT_OK(left->DeleteLink("v1"));
  ASSERT_OK(left->DeleteLink("v1"));
  EXPECT_THAT(right->LinkIndex("eth0"), HasCode(Code::kNotFound));
}

// Two namespaces with equal addresses behind one: the bound device tells them apart.
TEST_F(NetnsTest, EqualAddressesAreToldApartByDevice) {
  std::unique_ptr<Netlink> left;
  ASSERT_OK_AND_ASSIGN(NetNamespace gateway, NetNamespace::Create(Name("gw"), [&]() -> Status {
                         ASSIGN_OR_RETURN(left, Netlink::Open());
                         return OkStatus();
                       }));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<NetnsThread> dialer, NetnsThread::Start(gateway));
  for (int i = 0; i < 2; ++i) {
    std::unique_ptr<Netlink> right;
    ASSERT_OK_AND_ASSIGN(NetNamespace ns,
                         NetNamespace::Create(Name(fmt::format("p{}", i)), [&]() -> Status {
                           ASSIGN_OR_RETURN(right, Netlink::Open());
                           return OkStatus();
                         }));
    std::string link = fmt::format("v{}", i);
    ASSERT_OK(Join(*left, ns, *right, link));
    UniqueFd listener;
    ASSERT_OK(ns.Run([&]() -> Status {
      listener = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in local = {};
      local.sin_family = AF_INET;
      local.sin_port = htons(80);
      if (bind(listener.get(), reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0 ||
          listen(listener.get(), 8) != 0) {
        return ErrnoStatus(errno, "listen");
      }
      return OkStatus();
    }));
    UniqueFd client;
    ASSERT_OK(dialer->Run([&]() -> Status {
      client = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      return OkStatus();
    }));
    // From this thread, which is in neither namespace.
    ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_BINDTODEVICE, link.c_str(),
                         static_cast<socklen_t>(link.size())),
              0);
    sockaddr_in remote = {};
    remote.sin_family = AF_INET;
    remote.sin_port = htons(80);
    remote.sin_addr.s_addr = htonl(kRight);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&remote), sizeof(remote)), 0)
        << strerror(errno);
    pollfd ready = {.fd = listener.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&ready, 1, 2000), 1);
    EXPECT_GE(UniqueFd(accept(listener.get(), nullptr, nullptr)).get(), 0);
  }
}

// The rule decides by the mark which of two equal addresses is meant; without a table it drops.
TEST_F(NetnsTest, MarksChooseTheTable) {
  std::unique_ptr<Netlink> left;
  ASSERT_OK_AND_ASSIGN(NetNamespace gateway, NetNamespace::Create(Name("gw"), [&]() -> Status {
                         ASSIGN_OR_RETURN(left, Netlink::Open());
                         return OkStatus();
                       }));
  std::vector<int> index;
  for (int i = 0; i < 2; ++i) {
    std::unique_ptr<Netlink> right;
    ASSERT_OK_AND_ASSIGN(NetNamespace ns,
                         NetNamespace::Create(Name(fmt::format("p{}", i)), [&]() -> Status {
                           ASSIGN_OR_RETURN(right, Netlink::Open());
                           return OkStatus();
                         }));
    std::string link = fmt::format("v{}", i);
    ASSERT_OK(Join(*left, ns, *right, link));
    ASSERT_OK_AND_ASSIGN(int number, left->LinkIndex(link));
    index.push_back(number);
    // So that what is sent below is all that is sent.
    ASSERT_OK_AND_ASSIGN(int right_number, right->LinkIndex("eth0"));
    ASSERT_OK(right->SetNeighbour(right_number, kLeft, kLeftMac));
  }
  // How many packets leave by each link when one with `mark` is sent, or the error.
  auto route = [&](int mark) {
    std::string sent;
    EXPECT_OK(gateway.Run([&]() -> Status {
      UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (setsockopt(fd.get(), SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) != 0) {
        return ErrnoStatus(errno, "SO_MARK");
      }
      sockaddr_in remote = {};
      remote.sin_family = AF_INET;
      remote.sin_port = htons(9);
      remote.sin_addr.s_addr = htonl(kRight);
      if (connect(fd.get(), reinterpret_cast<sockaddr*>(&remote), sizeof(remote)) != 0) {
        sent = strerrorname_np(errno);
        return OkStatus();
      }
      uint64_t before[] = {SentBy("v0"), SentBy("v1")};
      EXPECT_EQ(send(fd.get(), "x", 1, 0), 1);
      sent = fmt::format("{}{}", SentBy("v0") - before[0], SentBy("v1") - before[1]);
      return OkStatus();
    }));
    return sent;
  };
  MarkRule second = {.mark = 7, .table = 1007, .priority = 100};
  ASSERT_OK(left->SetHostRoute(index[1], kRight, 1007));
  ASSERT_OK(left->SetHostRoute(index[1], kRight, 1007));
  EXPECT_EQ(route(7), "10");
  ASSERT_OK(left->AddRule(second));
  ASSERT_OK(left->AddRule(second));
  EXPECT_EQ(route(7), "01");
  EXPECT_EQ(route(6), "10");
  MarkRule nowhere = {.mark = 4, .mask = 4, .table = 0, .priority = 200};
  ASSERT_OK(left->AddRule(nowhere));
  EXPECT_EQ(route(7), "01");
  EXPECT_EQ(route(6), "EINVAL");
  ASSERT_OK(left->DeleteRule(nowhere));
  ASSERT_OK(left->DeleteRule(nowhere));
  ASSERT_OK(left->DeleteRule(second));
  EXPECT_EQ(route(7), "10");
}

TEST_F(NetnsTest, CreationIsCheap) {
  std::unique_ptr<Netlink> left;
  ASSERT_OK_AND_ASSIGN(NetNamespace gateway, NetNamespace::Create(Name("gw"), [&]() -> Status {
                         ASSIGN_OR_RETURN(left, Netlink::Open());
                         return OkStatus();
                       }));
  std::vector<double> create_ms, delete_ms;
  for (int i = 0; i < 20; ++i) {
    auto begin = std::chrono::steady_clock::now();
    std::unique_ptr<Netlink> right;
    std::string name = Name(fmt::format("n{}", i));
    ASSERT_OK_AND_ASSIGN(NetNamespace ns, NetNamespace::Create(name, [&]() -> Status {
                           RETURN_IF_ERROR(SetNetSysctl("net/ipv6/conf/default/disable_ipv6", "1"));
                           ASSIGN_OR_RETURN(right, Netlink::Open());
                           return right->SetUp(1);
                         }));
    ASSERT_OK(Join(*left, ns, *right, fmt::format("v{}", i)));
    auto middle = std::chrono::steady_clock::now();
    ASSERT_OK(left->DeleteLink(fmt::format("v{}", i)));
    ASSERT_OK(DeleteNetNamespace(name));
    create_ms.push_back(std::chrono::duration<double, std::milli>(middle - begin).count());
    delete_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - middle)
            .count());
  }
  std::sort(create_ms.begin(), create_ms.end());
  std::sort(delete_ms.begin(), delete_ms.end());
  fmt::print(
      "netns with veth and addresses: create p50 {:.2f} ms, p95 {:.2f} ms; delete p50 {:.2f} "
      "ms\n",
      create_ms[10], create_ms[18], delete_ms[10]);
}

}  // namespace
}  // namespace torpor::os
