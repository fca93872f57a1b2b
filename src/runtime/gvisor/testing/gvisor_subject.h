#pragma once
// Real sandboxes for the contract suite: of one container `app`, or of `app`, `second` and `third`.
// Needs root, runsc and ip(8).

#include <netinet/tcp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "os/cgroup/cgroup_tree.h"
#include "runtime/contract/netns_fixture.h"
#include "runtime/contract/subject.h"
#include "runtime/gvisor/gvisor_runtime.h"

namespace torpor::runtime {

inline constexpr char kGuestConfig[] = R"({"ociVersion":"1.0.2",
  "process":{"user":{"uid":0,"gid":0},"args":["/guest"],"env":["PATH=/"],"cwd":"/"},
  "root":{"path":"rootfs"},"hostname":"app",
  "mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
  "linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},
                         {"type":"mount"}]}})";

// The probe with its smoke test is made once for each way.
inline Runtime* TheRuntime(bool control_socket, const std::string& work_dir, Status* why) {
  static os::Reaper* reaper = os::Reaper::Start().value().release();
  static std::map<bool, StatusOr<std::unique_ptr<Runtime>>> runtimes;
  auto it = runtimes.find(control_socket);
  if (it == runtimes.end()) {
    RuntimeConfig config;
    config.helper = TORPOR_ENTER;
    config.work_dir = work_dir;
    config.control_socket = control_socket;
    config.reaper = reaper;
    it = runtimes.emplace(control_socket, gvisor::GvisorRuntime::Create(config)).first;
  }
  if (!it->second.ok()) *why = it->second.status();
  return it->second.ok() ? it->second->get() : nullptr;
}

class GvisorSubject : public ContractSubject {
 public:
  using tcp = boost::asio::ip::tcp;
  static constexpr int kPort = 8080;  // of `app`; the others have the next ones

  explicit GvisorSubject(bool control_socket = true, std::vector<std::string> more = {})
      : control_socket_(control_socket),
        more_(std::move(more)),
        directory_("/tmp/torpor-contract-" + RandomHex(6)) {
    MakeBundle("app", kPort);
    for (size_t i = 0; i < more_.size(); ++i) MakeBundle(more_[i], kPort + 1 + static_cast<int>(i));
  }
  ~GvisorSubject() override {
    held_.reset();
    std::filesystem::remove_all(directory_);
    if (cgroups_ == nullptr) return;
    EXPECT_OK(
        cgroups_->KillAll("app", std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    EXPECT_OK(cgroups_->Remove("app"));
    EXPECT_OK(cgroups_->RemoveParent());
  }

  Status Prepare() override {
    if (geteuid() != 0) return Error(Code::kNotFound, "INTERNAL", "needs root");
    Status why;
    runtime_ = TheRuntime(control_socket_, directory_, &why);
    RETURN_IF_ERROR(why);
    ASSIGN_OR_RETURN(netns_, NetnsFixture::Create(getpid() % 16384));
    ASSIGN_OR_RETURN(cgroups_, os::CgroupTree::Open("torpor-contract-" + std::to_string(getpid())));
    return cgroups_->Create("app", os::LimitsForSandbox(int64_t{128} << 20, 1000));
  }
  Runtime& runtime() override { return *runtime_; }
  const std::string& directory() const override { return directory_; }
  os::CgroupTree& cgroups() { return *cgroups_; }
  void Surround(StartArgs* args) override {
    for (const std::string& name : more_) args->spec.add_containers()->set_name(name);
    args->netns_path = netns_->path();
    args->cgroups = cgroups_.get();
    args->cgroup_leaf = "app";
    args->cgroup_procs_files = cgroups_->ProcsFiles("app");
    args->prepare_network = [this] { return netns_->Prepare(); };
  }
  StatusOr<std::string> Ask(const std::string& line) override { return Ask(line, kPort); }
  StatusOr<std::string> Ask(const std::string& line, int port) {
    boost::system::error_code error;
    auto socket = Connect(port, error);
    if (!error) boost::asio::write(*socket, boost::asio::buffer(line + "\n"), error);
    boost::asio::streambuf buffer;
    if (!error) boost::asio::read_until(*socket, buffer, '\n', error);
    if (error) return Error(Code::kUnavailable, "INTERNAL", error.message());
    std::istream in(&buffer);
    std::string answer;
    std::getline(in, answer);
    return answer;
  }
  bool HoldConnection() override {
    boost::system::error_code error;
    held_ = Connect(kPort, error);
    return !error;
  }

 private:
  void MakeBundle(const std::string& name, int port) const {
    const std::string bundle = directory_ + "/bundles/" + name;
    std::filesystem::create_directories(bundle + "/rootfs/tmp");
    auto config = nlohmann::json::parse(kGuestConfig);
    config["process"]["args"].push_back(std::to_string(port));
    std::ofstream(bundle + "/config.json") << config;
    std::filesystem::copy_file(CONTRACT_GUEST, bundle + "/rootfs/guest");
  }
  // The guest may not listen yet, so a refused connection is tried again. A connection that is only
  // half open at a capture would crash the sentry: each one is completed or refused.
  std::unique_ptr<tcp::socket> Connect(int port, boost::system::error_code& error) {
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (;;) {
      auto socket = std::make_unique<tcp::socket>(io_, tcp::v4());
      const int repeats = 1;  // of the SYN: some tests ask guests that are dead
      setsockopt(socket->native_handle(), IPPROTO_TCP, TCP_SYNCNT, &repeats, sizeof repeats);
      socket->connect({boost::asio::ip::make_address(netns_->guest_address()),
                       static_cast<unsigned short>(port)},
                      error);
      if (error != boost::asio::error::connection_refused ||
          std::chrono::steady_clock::now() > until) {
        return socket;
      }
      usleep(2000);
    }
  }

  const bool control_socket_;
  const std::vector<std::string> more_;  // containers
  boost::asio::io_context io_;
  std::string directory_;
  Runtime* runtime_ = nullptr;
  std::unique_ptr<NetnsFixture> netns_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::unique_ptr<tcp::socket> held_;
};

}  // namespace torpor::runtime
