// Pulls from a real registry (docker-registry on loopback) with the real skopeo.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <fstream>

#include "base/testing/matchers.h"
#include "mover/image_puller.h"
#include "mover/oci_layout.h"
#include "mover/testing/image.h"
#include "os/process/process.h"

namespace torpor::mover {
namespace {

namespace fs = std::filesystem;
using snapshot::TempDir;
using snapshot::Transfer;
using snapshot::WriteFileTo;

MonotonicTime In(Duration time) { return std::chrono::steady_clock::now() + time; }

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port that was free a moment ago.
uint16_t FreePort() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  CHECK(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

bool Answers(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(port);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

class RegistryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (system("command -v docker-registry skopeo >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "needs the packages docker-registry and skopeo";
    }
    port_ = FreePort();
    host_ = fmt::format("127.0.0.1:{}", port_);
    WriteFileTo(dir_ / "config.yml",
                fmt::format("version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem:\n"
                            "    rootdirectory: {}/data\nhttp:\n  addr: {}\n",
                            dir_.path(), host_));
    auto process = os::Spawn({"docker-registry", "serve", dir_ / "config.yml"});
    ASSERT_OK(process);
    registry_ = std::move(*process);
    const MonotonicTime until = In(std::chrono::seconds(20));
    while (!Answers(port_)) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "the registry did not start";
      ASSERT_FALSE(os::WaitPidfd(registry_.pidfd(), In(std::chrono::milliseconds(20))));
    }
    fs::create_directories(node_ / "images/blobs");
    options_.node_dir = node_.path();
    options_.registries.insecure = {host_};
  }
  void TearDown() override {
    if (registry_.pid() <= 0) return;
    EXPECT_OK(registry_.Signal(SIGKILL));
    EXPECT_OK(registry_.Wait(In(std::chrono::seconds(10))));
  }

  // Pushes an image and returns its reference.
  std::string Push(const std::string& name, int layers = 2, size_t bytes = 10240) {
    const std::string layout = dir_ / name;
    const std::string digest = MakeTestImage(layout, name, layers, bytes);
    auto result =
        os::RunCommand({"skopeo", "--insecure-policy", "copy", "--preserve-digests",
                        "--dest-tls-verify=false", fmt::format("oci:{}:{}", layout, name),
                        fmt::format("docker://{}/demo/{}:v1", host_, name)},
                       {.deadline = In(std::chrono::seconds(60)), .env = {"HOME=" + dir_.path()}});
    EXPECT_OK(result);
    EXPECT_TRUE(result->status.ok()) << result->err;
    return fmt::format("{}/demo/{}:v1@{}", host_, name, digest);
  }

  Status Pull(const std::string& reference) {
    Transfer transfer(Clock::Real(), In(std::chrono::minutes(1)));
    return ImagePuller(options_).Pull(reference, "amd64", &transfer);
  }

  TempDir dir_;
  TempDir node_;
  uint16_t port_ = 0;
  std::string host_;
  os::Process registry_;
  ImagePullerOptions options_;
};

TEST_F(RegistryTest, PullsByDigestAndSharesTheLayout) {
  const std::string one = Push("one");
  const std::string two = Push("two");
  ASSERT_OK(Pull(one));
  ASSERT_OK(Pull(two));
  ASSERT_OK(Pull(one));
  auto blobs = os::DirFd::OpenPath(node_ / "images/blobs");
  ASSERT_OK(blobs);
  for (const std::string& reference : {one, two}) {
    const std::string digest = reference.substr(reference.find('@') + 1);
    ASSERT_OK_AND_ASSIGN(Descriptor named, FindNamed(*blobs, digest));
    ASSERT_OK_AND_ASSIGN(ImageParts parts, ReadImage(*blobs, named.digest, "amd64"));
    EXPECT_TRUE(IsComplete(*blobs, parts));
    EXPECT_EQ(parts.blobs.size(), 3u);
  }
  for (const auto& entry : fs::directory_iterator(node_ / "images/blobs")) {
    EXPECT_NE(entry.path().filename().string().rfind(".pull-", 0), 0u);
  }
}

// Of this process, in KiB: "VmRSS:", "VmHWM:".
int64_t Memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string name;
  for (std::string rest; status >> name && name != field;) std::getline(status, rest);
  int64_t value = 0;
  status >> value;
  return value;
}

TEST_F(RegistryTest, K2_ABigImageIsStreamed) {
  constexpr int64_t kImageKiB = 256 << 10;
  // skopeo, which is another process, and its peaks in KiB.
  options_.skopeo = dir_ / "skopeo";
  WriteFileTo(options_.skopeo, fmt::format("#!/bin/sh\n/usr/bin/skopeo \"$@\" &\n"
                                           "while p=$(grep VmHWM /proc/$!/status); do\n"
                                           "  echo $p >> {}; sleep 0.02\ndone\nwait $!\n",
                                           dir_ / "peaks"));
  fs::permissions(options_.skopeo, fs::perms::owner_all);
  const std::string big = Push("big", 1, static_cast<size_t>(kImageKiB) << 10);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = Memory("VmRSS:");
  ASSERT_GT(before, 0);
  ASSERT_OK(Pull(big));
  EXPECT_LT(Memory("VmHWM:") - before, kImageKiB / 4);
  std::ifstream peaks(dir_ / "peaks");
  std::string name, unit;
  int64_t peak = 0;
  while (peaks >> name >> peak >> unit) {
  }
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, kImageKiB / 2);
}

TEST_F(RegistryTest, WhatIsNotThereIsNotFound) {
  const std::string one = Push("one");
  std::string missing = one;
  missing.replace(missing.size() - 8, 8, "00000000");
  EXPECT_THAT(Pull(missing), HasReason(Code::kNotFound, "INVALID_CONTAINER_CONFIG"));
  EXPECT_THAT(Pull(fmt::format("{}/demo/none@sha256:{}", host_, std::string(64, 'a'))),
              HasReason(Code::kNotFound, "INVALID_CONTAINER_CONFIG"));
}

TEST_F(RegistryTest, LoopbackNeedsPermissionAndTls) {
  const std::string one = Push("one");
  options_.registries = {};
  EXPECT_THAT(Pull(one), HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
  options_.registries.allowed = {host_};
  Status status = Pull(one);
  EXPECT_THAT(status, HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
  EXPECT_THAT(status, MessageHas("--insecure-registries"));
}

TEST_F(RegistryTest, ADeadRegistryIsUnavailable) {
  const std::string reference = fmt::format("{}/demo/one@sha256:{}", host_, std::string(64, 'a'));
  EXPECT_OK(registry_.Signal(SIGKILL));
  EXPECT_OK(registry_.Wait(In(std::chrono::seconds(10))));
  registry_ = os::Process();
  EXPECT_THAT(Pull(reference), HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
}

}  // namespace
}  // namespace torpor::mover
