#include "runtime/gvisor/control_socket/calls.h"

#include <nlohmann/json.hpp>

namespace torpor::gvisor {
namespace {

using nlohmann::json;

// Go writes []byte in base64.
std::string Base64(const uint8_t* data, size_t size) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < size; i += 3) {
    uint32_t bits = static_cast<uint32_t>(data[i]) << 16;
    if (i + 1 < size) bits |= static_cast<uint32_t>(data[i + 1]) << 8;
    if (i + 2 < size) bits |= data[i + 2];
    out += kDigits[bits >> 18];
    out += kDigits[bits >> 12 & 63];
    out += i + 1 < size ? kDigits[bits >> 6 & 63] : '=';
    out += i + 2 < size ? kDigits[bits & 63] : '=';
  }
  return out;
}

std::string Mask(int bits, size_t bytes) {
  std::array<uint8_t, 16> mask = {};
  for (int i = 0; i < bits; ++i) {
    mask[static_cast<size_t>(i / 8)] |= static_cast<uint8_t>(0x80 >> i % 8);
  }
  return Base64(mask.data(), bytes);
}

json Route(const std::string& network, const std::string& mask, const std::string& gateway) {
  return {{"Destination", {{"IP", network}, {"Mask", mask}}}, {"Gateway", gateway}};
}

json NoRoute() { return {{"Destination", {{"IP", ""}, {"Mask", nullptr}}}, {"Gateway", ""}}; }

json Address(const std::string& address, int prefix_bits) {
  return {{"Address", address}, {"PrefixLen", prefix_bits}};
}

json Loopback() {
  return {{"Name", "lo"},
          {"Addresses", json::array({Address("127.0.0.1", 8), Address("::1", 128)})},
          {"Routes",
           json::array({Route("127.0.0.0", Mask(8, 4), ""), Route("::1", Mask(128, 16), "")})},
          {"GVisorGRO", false}};
}

// ---- release 20240729 (runsc/boot/network.go, runsc/boot/controller.go of that tag) ----

// Links of a veth: segmentation is left to the peer, so the descriptors have PACKET_VNET_HDR.
json FdBasedLink(const GuestLink& link) {
  return {{"Name", link.name},
          {"InterfaceIndex", 0},
          {"MTU", link.mtu},
          {"Addresses", json::array({Address(link.address, link.prefix_bits)})},
          {"Routes", json::array({Route(link.network, Mask(link.prefix_bits, 4), "")})},
          {"GSOMaxSize", 65536},
          {"GVisorGSOEnabled", false},
          {"GVisorGRO", false},
          {"TXChecksumOffload", false},
          {"RXChecksumOffload", true},
          {"LinkAddress", Base64(link.mac.data(), link.mac.size())},
          {"QDisc", 1},  // first in, first out
          {"Neighbors", nullptr},
          {"NumChannels", 1},
          {"ProcessorsPerChannel", 0}};
}

ControlCall CreateLinks20240729(const GuestLink* link) {
  json arg = {{"LoopbackLinks", json::array({Loopback()})},
              {"FDBasedLinks", nullptr},
              {"XDPLinks", nullptr},
              {"Defaultv4Gateway", {{"Route", NoRoute()}, {"Name", ""}}},
              {"Defaultv6Gateway", {{"Route", NoRoute()}, {"Name", ""}}},
              {"PCAP", false},
              {"LogPackets", false},
              {"NATBlob", false},
              {"DisconnectOk", true}};
  if (link != nullptr) {
    arg["FDBasedLinks"] = json::array({FdBasedLink(*link)});
    if (!link->gateway.empty()) {
      // Its mask is 0.0.0.0 in the sixteen bytes of Go's net.IPv4zero.
      constexpr uint8_t kZero[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};
      arg["Defaultv4Gateway"] = {
          {"Route", Route("0.0.0.0", Base64(kZero, sizeof kZero), link->gateway)},
          {"Name", link->name}};
    }
  }
  return {"Network.CreateLinksAndRoutes", arg.dump(), {}};
}

ControlCall Restore20240729() {
  return {"containerManager.Restore", R"({"HavePagesFile":true,"HaveDeviceFile":false})", {}};
}

ControlCall Checkpoint20240729() {
  return {"containerManager.Checkpoint",
          R"({"key":null,"metadata":{"compression":"none"},)"
          R"("MemoryFileSaveOpts":{"ExcludeCommittedZeroPages":false},)"
          R"("have_pages_file":true,"Resume":false})",
          {}};
}

ControlCall Processes20240729(const std::string& id) {
  return {"containerManager.Processes", json(id).dump(), {}};
}

constexpr ControlCalls kReleases[] = {
    {"20240729", CreateLinks20240729, Restore20240729, Checkpoint20240729, Processes20240729},
};

}  // namespace

const ControlCalls* ControlCallsOf(std::string_view version) {
  for (const ControlCalls& calls : kReleases) {
    if (version.find(calls.release) != std::string_view::npos) return &calls;
  }
  return nullptr;
}

}  // namespace torpor::gvisor
