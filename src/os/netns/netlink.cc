#include "os/netns/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <fmt/format.h>

namespace torpor::os {

// A request under construction: header, fixed part, attributes, nested attributes.
class Netlink::Message {
 public:
  Message(uint16_t type, uint16_t flags) {
    nlmsghdr header = {};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    Append(&header, sizeof(header));
  }
  template <typename T>
  void Fixed(const T& value) {
    Append(&value, sizeof(value));
  }
  void Attribute(uint16_t type, const void* data, size_t size) {
    rtattr header = {};
    header.rta_type = type;
    header.rta_len = static_cast<uint16_t>(RTA_LENGTH(size));
    Append(&header, sizeof(header));
    Append(data, size);
  }
  void Text(uint16_t type, std::string_view text) {
    std::string terminated(text);
    Attribute(type, terminated.c_str(), terminated.size() + 1);
  }
  void Address(uint16_t type, Ipv4 address) {
    uint32_t wire = htonl(address);
    Attribute(type, &wire, sizeof(wire));
  }
  size_t BeginNested(uint16_t type) {
    size_t at = bytes_.size();
    Attribute(type, nullptr, 0);
    return at;
  }
  void EndNested(size_t at) {
    auto size = static_cast<uint16_t>(bytes_.size() - at);
    memcpy(bytes_.data() + at + offsetof(rtattr, rta_len), &size, sizeof(size));
  }
  std::string& Finish(uint32_t sequence) {
    auto* header = reinterpret_cast<nlmsghdr*>(bytes_.data());
    header->nlmsg_len = static_cast<uint32_t>(bytes_.size());
    header->nlmsg_seq = sequence;
    return bytes_;
  }

 private:
  void Append(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  std::string bytes_;
};

StatusOr<std::unique_ptr<Netlink>> Netlink::Open() {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.valid()) return ErrnoStatus(errno, "netlink socket");
  // The kernel answers at once; the bound only keeps a broken kernel from holding a thread.
  timeval timeout = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  sockaddr_nl local = {};
  local.nl_family = AF_NETLINK;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0) {
    return ErrnoStatus(errno, "netlink bind");
  }
  return std::unique_ptr<Netlink>(new Netlink(std::move(fd)));
}

namespace {

Status NetlinkError(int error, std::string_view what) {
  std::string context = fmt::format("netlink {}", what);
  if (error == EEXIST) return Error(Code::kAlreadyExists, "ALREADY_EXISTS", context);
  if (error == ENODEV || error == ESRCH) return Error(Code::kNotFound, "INTERNAL", context);
  return ErrnoStatus(error, context);
}

}  // namespace

Status Netlink::Call(Message& message, std::string_view what, std::string* reply) {
  MutexLock lock(&mu_);
  uint32_t sequence = ++sequence_;
  const std::string& request = message.Finish(sequence);
  if (send(fd_.get(), request.data(), request.size(), 0) < 0) return NetlinkError(errno, what);
  alignas(nlmsghdr) char buffer[16384];
  while (true) {
    ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return NetlinkError(errno, what);
    int left = static_cast<int>(size);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != sequence) continue;  // the late answer of a call that timed out
      if (header->nlmsg_type == NLMSG_ERROR) {
        const auto* error = static_cast<const nlmsgerr*>(NLMSG_DATA(header));
        return error->error == 0 ? OkStatus() : NetlinkError(-error->error, what);
      }
      if (reply != nullptr && reply->empty()) {
        reply->assign(reinterpret_cast<const char*>(header), header->nlmsg_len);
      }
    }
  }
}

Status Netlink::CreateVeth(const VethSpec& spec) {
  if (spec.name.size() >= IFNAMSIZ || spec.peer_name.size() >= IFNAMSIZ) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "link name is too long");
  }
  Message m(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  ifinfomsg up = {};
  up.ifi_family = AF_UNSPEC;
  up.ifi_flags = IFF_UP;
  up.ifi_change = IFF_UP;
  m.Fixed(up);
  m.Text(IFLA_IFNAME, spec.name);
  m.Attribute(IFLA_ADDRESS, spec.mac.data(), spec.mac.size());
  size_t info = m.BeginNested(IFLA_LINKINFO);
  m.Text(IFLA_INFO_KIND, "veth");
  size_t data = m.BeginNested(IFLA_INFO_DATA);
  size_t peer = m.BeginNested(VETH_INFO_PEER);
  // The kernel refuses to bring the peer up before both are linked.
  ifinfomsg down = {};
  down.ifi_family = AF_UNSPEC;
  m.Fixed(down);
  m.Text(IFLA_IFNAME, spec.peer_name);
  m.Attribute(IFLA_ADDRESS, spec.peer_mac.data(), spec.peer_mac.size());
  m.Attribute(IFLA_NET_NS_FD, &spec.peer_netns_fd, sizeof(spec.peer_netns_fd));
  m.EndNested(peer);
  m.EndNested(data);
  m.EndNested(info);
  return Call(m, "create veth " + spec.name);
}

StatusOr<int> Netlink::LinkIndex(std::string_view name) {
  Message m(RTM_GETLINK, NLM_F_ACK);
  ifinfomsg any = {};
  any.ifi_family = AF_UNSPEC;
  m.Fixed(any);
  m.Text(IFLA_IFNAME, name);
  std::string reply;
  RETURN_IF_ERROR(Call(m, fmt::format("get link {}", name), &reply));
  if (reply.size() < NLMSG_LENGTH(sizeof(ifinfomsg))) {
    return Error(Code::kInternal, "INTERNAL", "netlink get link: short answer");
  }
  ifinfomsg link;
  memcpy(&link, reply.data() + NLMSG_HDRLEN, sizeof(link));
  return link.ifi_index;
}

Status Netlink::SetUp(int index) {
  Message m(RTM_NEWLINK, NLM_F_ACK);
  ifinfomsg up = {};
  up.ifi_family = AF_UNSPEC;
  up.ifi_index = index;
  up.ifi_flags = IFF_UP;
  up.ifi_change = IFF_UP;
  m.Fixed(up);
  return Call(m, "set link up");
}

Status Netlink::DeleteLink(std::string_view name) {
  Message m(RTM_DELLINK, NLM_F_ACK);
  ifinfomsg link = {};
  link.ifi_family = AF_UNSPEC;
  m.Fixed(link);
  m.Text(IFLA_IFNAME, name);
  Status status = Call(m, fmt::format("delete link {}", name));
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

Status Netlink::SetAddress(int index, Ipv4 address, int prefix_bits) {
  Message m(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  ifaddrmsg fixed = {};
  fixed.ifa_family = AF_INET;
  fixed.ifa_prefixlen = static_cast<uint8_t>(prefix_bits);
  fixed.ifa_index = static_cast<uint32_t>(index);
  m.Fixed(fixed);
  m.Address(IFA_LOCAL, address);
  m.Address(IFA_ADDRESS, address);
  return Call(m, "set address");
}

Status Netlink::SetDefaultRoute(int index, Ipv4 gateway) {
  Message m(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  rtmsg fixed = {};
  fixed.rtm_family = AF_INET;
  fixed.rtm_table = RT_TABLE_MAIN;
  fixed.rtm_protocol = RTPROT_STATIC;
  fixed.rtm_scope = RT_SCOPE_UNIVERSE;
  fixed.rtm_type = RTN_UNICAST;
  m.Fixed(fixed);
  m.Address(RTA_GATEWAY, gateway);
  m.Attribute(RTA_OIF, &index, sizeof(index));
  return Call(m, "set default route");
}

Status Netlink::SetNeighbour(int index, Ipv4 address, const MacAddress& mac) {
  Message m(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  ndmsg fixed = {};
  fixed.ndm_family = AF_INET;
  fixed.ndm_ifindex = index;
  fixed.ndm_state = NUD_PERMANENT;
  fixed.ndm_type = RTN_UNICAST;
  m.Fixed(fixed);
  m.Address(NDA_DST, address);
  m.Attribute(NDA_LLADDR, mac.data(), mac.size());
  return Call(m, "set neighbour");
}

Status Netlink::SetHostRoute(int index, Ipv4 address, uint32_t table) {
  Message m(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  rtmsg fixed = {};
  fixed.rtm_family = AF_INET;
  fixed.rtm_dst_len = 32;
  fixed.rtm_table = RT_TABLE_UNSPEC;  // RTA_TABLE says it
  fixed.rtm_protocol = RTPROT_STATIC;
  fixed.rtm_scope = RT_SCOPE_LINK;
  fixed.rtm_type = RTN_UNICAST;
  m.Fixed(fixed);
  m.Address(RTA_DST, address);
  m.Attribute(RTA_OIF, &index, sizeof(index));
  m.Attribute(RTA_TABLE, &table, sizeof(table));
  return Call(m, "set host route");
}

void Netlink::Append(Message& message, const MarkRule& rule) {
  fib_rule_hdr fixed = {};
  fixed.family = AF_INET;
  fixed.table = RT_TABLE_UNSPEC;  // FRA_TABLE says it
  fixed.action = rule.table == 0 ? FR_ACT_BLACKHOLE : FR_ACT_TO_TBL;
  message.Fixed(fixed);
  message.Attribute(FRA_PRIORITY, &rule.priority, sizeof(rule.priority));
  message.Attribute(FRA_FWMARK, &rule.mark, sizeof(rule.mark));
  message.Attribute(FRA_FWMASK, &rule.mask, sizeof(rule.mask));
  if (rule.table != 0) message.Attribute(FRA_TABLE, &rule.table, sizeof(rule.table));
}

Status Netlink::AddRule(const MarkRule& rule) {
  Message m(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  Append(m, rule);
  Status status = Call(m, "add rule");
  return status.code() == Code::kAlreadyExists ? OkStatus() : status;
}

Status Netlink::DeleteRule(const MarkRule& rule) {
  Message m(RTM_DELRULE, NLM_F_ACK);
  Append(m, rule);
  Status status = Call(m, "delete rule");
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

}  // namespace torpor::os
