// L1 and L2 with the real runsc and the real glutton. Needs root and runsc.
#include "bench/bare.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/uuid.h"
#include "os/netns/netns.h"
#include "runtime/gvisor/leftovers.h"

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;

std::string GluttonConfig(const std::string& rootfs) {
  fs::create_directories(rootfs + "/bin");
  fs::create_directories(rootfs + "/var/lib/glutton");
  fs::copy_file(GLUTTON, rootfs + "/bin/glutton");
  nlohmann::json config = {
      {"ociVersion", "1.0.2"},
      {"process",
       {{"user", {{"uid", 0}, {"gid", 0}}},
        {"args",
         {"/bin/glutton", "--mode=http", "--grpc-listen-addr=:80", "--data-dir=/var/lib/glutton"}},
        {"env", {"PATH=/bin"}},
        {"cwd", "/"}}},
      {"root", {{"path", rootfs}}},
      {"hostname", "bare"},
      {"mounts", {{{"destination", "/proc"}, {"type", "proc"}, {"source", "proc"}}}},
      {"linux",
       {{"namespaces",
         {{{"type", "pid"}},
          {{"type", "ipc"}},
          {{"type", "uts"}},
          {{"type", "mount"}},
          {{"type", "network"}, {"path", "/proc/self/ns/net"}}}}}}};
  return config.dump();
}

TEST(BareTest, CheckpointsAndRestoresWithoutLosingMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  auto runtime = FindBareRuntime("", "");
  if (runtime.status().code() == Code::kNotFound) GTEST_SKIP() << runtime.status();
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const std::string dir = "/var/tmp/bench-test-" + RandomHex(4);
  ASSERT_EQ(mkdir(dir.c_str(), 0755), 0);
  auto reaper = os::Reaper::Start();
  ASSERT_TRUE(reaper.ok());
  Scenario scenario;
  scenario.mem_target = 16 << 20;
  scenario.mem_churn = 1 << 20;
  scenario.min_wait = {};
  BareSamples samples;
  {
    auto bare = BareRuns::Create(*runtime, dir, reaper->get());
    ASSERT_TRUE(bare.ok()) << bare.status();
    Status done =
        (*bare)->Block(GluttonConfig(dir + "/rootfs"), scenario, 2, [] { return false; }, &samples);
    EXPECT_TRUE(done.ok()) << done;
  }
  EXPECT_EQ(samples.checkpoint.size(), 2u);
  EXPECT_EQ(samples.restore.size(), 2u);
  for (size_t i = 0; i < samples.restore.size(); ++i) {
    EXPECT_GT(samples.checkpoint[i], 0);
    EXPECT_GE(samples.gone[i], samples.checkpoint[i]);
    EXPECT_GE(samples.restore[i], samples.restore_run[i]);
  }
  EXPECT_FALSE(fs::exists(dir + "/bare"));
  auto left = os::ListNetNamespaces(worker::ActorNetnsName("bench-" + std::to_string(getpid())));
  ASSERT_TRUE(left.ok());
  EXPECT_TRUE(left->empty());
  fs::remove_all(dir);
}

}  // namespace
}  // namespace torpor::bench
