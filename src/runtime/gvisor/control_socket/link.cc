#include "runtime/gvisor/control_socket/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <bit>
#include <fstream>
#include <sstream>
#include <thread>

namespace torpor::gvisor {
namespace {

constexpr char kLink[] = "eth0";
constexpr int kBufferBytes = 4 << 20;  // as runsc sets them

std::string Text(in_addr_t address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// Answers of interface requests (netdevice(7)).
class Interface {
 public:
  explicit Interface(const char* name) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    strncpy(request_.ifr_name, name, IFNAMSIZ - 1);
  }
  Status Ask(unsigned long what) {
    if (ioctl(fd_.get(), what, &request_) == 0) return OkStatus();
    return ErrnoStatus(errno, std::string("interface ") + request_.ifr_name);
  }
  in_addr_t address() const {
    sockaddr_in address;
    memcpy(&address, &request_.ifr_addr, sizeof address);
    return address.sin_addr.s_addr;
  }
  Status RemoveAddress() {
    sockaddr_in none = {};
    none.sin_family = AF_INET;
    memcpy(&request_.ifr_addr, &none, sizeof none);
    return Ask(SIOCSIFADDR);
  }
  const ifreq& request() const { return request_; }

 private:
  UniqueFd fd_;
  ifreq request_ = {};
};

Status ReadLink(GuestLink* link) {
  Interface interface(kLink);
  link->name = kLink;
  RETURN_IF_ERROR(interface.Ask(SIOCGIFHWADDR));
  memcpy(link->mac.data(), interface.request().ifr_hwaddr.sa_data, link->mac.size());
  RETURN_IF_ERROR(interface.Ask(SIOCGIFMTU));
  link->mtu = interface.request().ifr_mtu;
  RETURN_IF_ERROR(interface.Ask(SIOCGIFADDR));
  in_addr_t address = interface.address();
  RETURN_IF_ERROR(interface.Ask(SIOCGIFNETMASK));
  in_addr_t mask = interface.address();
  link->address = Text(address);
  link->network = Text(address & mask);
  link->prefix_bits = std::popcount(mask);
  std::ifstream file("/proc/thread-self/net/route");
  std::ostringstream routes;
  routes << file.rdbuf();
  link->gateway = DefaultGateway(routes.str(), kLink);
  return OkStatus();
}

StatusOr<UniqueFd> OpenPackets(unsigned index) {
  UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "packet socket");
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind packet socket");
  }
  const int one = 1;
  if (setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBufferBytes, sizeof kBufferBytes) != 0 ||
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kBufferBytes, sizeof kBufferBytes) != 0) {
    return ErrnoStatus(errno, "options of a packet socket");
  }
  return fd;
}

// In the namespace.
Status Take(TakenLink* taken) {
  unsigned index = if_nametoindex(kLink);
  if (index == 0) return OkStatus();
  RETURN_IF_ERROR(ReadLink(&taken->link));
  ASSIGN_OR_RETURN(taken->packets, OpenPackets(index));
  return Interface(kLink).RemoveAddress();
}

}  // namespace

StatusOr<TakenLink> TakeLink(const std::string& netns_path) {
  UniqueFd netns(open(netns_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!netns.valid()) return ErrnoStatus(errno, "open " + netns_path);
  TakenLink taken;
  Status status;
  std::thread([&] {
    status = setns(netns.get(), CLONE_NEWNET) == 0 ? Take(&taken)
                                                   : ErrnoStatus(errno, "enter " + netns_path);
  }).join();
  if (!status.ok()) return status;
  return taken;
}

std::string DefaultGateway(const std::string& routes, const std::string& name) {
  std::istringstream lines(routes);
  for (std::string line; std::getline(lines, line);) {
    // Iface Destination Gateway Flags ..., addresses as hexadecimal words in network order.
    std::istringstream fields(line);
    std::string iface;
    std::string destination;
    std::string gateway;
    if (!(fields >> iface >> destination >> gateway)) continue;
    if (iface != name || destination != "00000000" || gateway == "00000000") continue;
    if (gateway.size() != 8 ||
        gateway.find_first_not_of("0123456789ABCDEFabcdef") != gateway.npos) {
      continue;
    }
    return Text(static_cast<in_addr_t>(std::stoul(gateway, nullptr, 16)));
  }
  return "";
}

}  // namespace torpor::gvisor
