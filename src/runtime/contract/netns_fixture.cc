#include "runtime/contract/netns_fixture.h"

#include <fmt/format.h>

#include "os/process/process.h"

namespace torpor::runtime {
namespace {

Status Ip(const std::string& arguments) {
  std::vector<std::string> command = {"/bin/sh", "-c", "exec ip " + arguments};
  return os::CommandOutput(
             command, {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10)})
      .status();
}

}  // namespace

StatusOr<std::unique_ptr<NetnsFixture>> NetnsFixture::Create(int index) {
  std::unique_ptr<NetnsFixture> netns(new NetnsFixture);
  netns->name_ = fmt::format("torpor-test-{}", index);
  netns->path_ = "/run/netns/" + netns->name_;
  netns->host_link_ = fmt::format("tpt{}", index);
  int base = index * 4;
  netns->host_ = fmt::format("198.18.{}.{}", base / 256, base % 256 + 1);
  netns->guest_ = fmt::format("198.18.{}.{}", base / 256, base % 256 + 2);
  RETURN_IF_ERROR(Ip("netns add " + netns->name_));
  RETURN_IF_ERROR(Ip(fmt::format("link add {} type veth peer name eth0 netns {}", netns->host_link_,
                                 netns->name_)));
  RETURN_IF_ERROR(Ip(fmt::format("addr add {}/30 dev {}", netns->host_, netns->host_link_)));
  RETURN_IF_ERROR(Ip(fmt::format("link set {} up", netns->host_link_)));
  return netns;
}

NetnsFixture::~NetnsFixture() {
  // First and by itself: with the namespace it would go only some time later.
  Status link = Ip("link del " + host_link_);
  if (!link.ok()) fmt::print(stderr, "link {}: {}\n", host_link_, std::string(link.message()));
  Status status = Ip("netns del " + name_);
  if (!status.ok()) fmt::print(stderr, "netns {}: {}\n", name_, std::string(status.message()));
}

Status NetnsFixture::Prepare() const {
  // One process: the netns is entered once and the three lines are read from a batch.
  std::string batch = fmt::format(
      "addr replace {}/30 dev eth0\nlink set lo up\nlink set eth0 up\nroute replace default via "
      "{}\n",
      guest_, host_);
  auto result = os::RunCommand(
      {"ip", "-n", name_, "-batch", "-"},
      {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10), .input = batch});
  if (!result.ok()) return result.status();
  if (!result->status.ok()) return Error(Code::kInternal, "INTERNAL", "ip: " + result->err);
  return OkStatus();
}

}  // namespace torpor::runtime
