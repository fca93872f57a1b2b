// Memory limits around real sandboxes: where they are born, and what a capture charges to whom.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "os/cgroup/cgroup_tree.h"
#include "runtime/contract/netns_fixture.h"
#include "runtime/gvisor/gvisor_runtime.h"
#include "runtime/gvisor/images.h"

namespace torpor::gvisor {
namespace {

using runtime::NetnsFixture;
using runtime::SandboxExit;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kRunsc[] = "/usr/bin/runsc";
constexpr char kConfig[] = R"({"ociVersion":"1.0.2",
  "process":{"user":{"uid":0,"gid":0},"args":["/guest"],"env":["PATH=/"],"cwd":"/"},
  "root":{"path":"rootfs"},"hostname":"app",
  "mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
  "linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},
                         {"type":"mount"}]}})";

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(120); }

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class MemoryTest : public testing::Test {
 protected:
  struct Actor {
    std::string leaf, directory;
    std::unique_ptr<NetnsFixture> netns;
    std::unique_ptr<runtime::Sandbox> sandbox;
    std::promise<SandboxExit> exit;
  };

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    if (access(kRunsc, X_OK) != 0) GTEST_SKIP() << "needs " << kRunsc;
    ASSERT_OK_AND_ASSIGN(reaper_, os::Reaper::Start());
    settings_.target.binary = kRunsc;
    settings_.target.platform = "systrap";
    settings_.helper = TORPOR_ENTER;
    ASSERT_OK_AND_ASSIGN(settings_.target.features, ProbeRunsc(kRunsc, Soon()));
    ASSERT_OK_AND_ASSIGN(auto scratch, ScratchNetns::Create());
    settings_.hide_net_core = scratch->LooksLikeHost();
    directory_ = "/tmp/torpor-memory-" + RandomHex(6);
    std::filesystem::create_directories(directory_ + "/bundles/app/rootfs/tmp");
    std::ofstream(directory_ + "/bundles/app/config.json") << kConfig;
    std::filesystem::copy_file(CONTRACT_GUEST, directory_ + "/bundles/app/rootfs/guest");
    parent_ = "torpor-limits-" + RandomHex(6);
    ASSERT_OK_AND_ASSIGN(cgroups_, os::CgroupTree::Open(parent_));
  }
  void TearDown() override {
    if (cgroups_ == nullptr) return;
    for (auto& actor : actors_) {
      if (actor->sandbox != nullptr) {
        EXPECT_OK(actor->sandbox->Stop(Duration::zero()));
      }
      EXPECT_OK(cgroups_->KillAll(actor->leaf, Soon()));
      EXPECT_OK(cgroups_->Remove(actor->leaf));
    }
    actors_.clear();
    EXPECT_OK(cgroups_->RemoveParent());
    std::filesystem::remove_all(directory_);
  }

  void MakeRuntime() { runtime_ = std::make_unique<GvisorRuntime>(settings_, reaper_.get()); }

  Actor& Add(int64_t memory_bytes) {
    const int index = static_cast<int>(actors_.size());
    Actor& actor = *actors_.emplace_back(std::make_unique<Actor>());
    actor.leaf = fmt::format("actor{}", index);
    actor.directory = directory_ + "/" + actor.leaf;
    std::filesystem::create_directories(actor.directory + "/state");
    auto netns = NetnsFixture::Create((getpid() * 8 + index) % 16384);
    EXPECT_OK(netns);
    actor.netns = std::move(*netns);
    EXPECT_OK(cgroups_->Create(actor.leaf, {memory_bytes, 1000, os::kSandboxProcessesMax}));
    return actor;
  }
  // From the image in `restore`, if that is not empty.
  Status Start(Actor& actor, const std::string& restore = "") {
    runtime::StartArgs args;
    args.sandbox_id = actor.leaf;
    args.spec.add_containers()->set_name("app");
    args.bundles_dir = directory_ + "/bundles";
    args.state_dir = actor.directory + "/state";
    args.netns_path = actor.netns->path();
    args.prepare_network = [&actor] { return actor.netns->Prepare(); };
    args.cgroups = cgroups_.get();
    args.cgroup_leaf = actor.leaf;
    args.cgroup_procs_files = cgroups_->ProcsFiles(actor.leaf);
    args.deadline = Soon();
    if (!restore.empty()) {
      args.restore_dir = restore;
      args.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
      args.preserve_restore = true;
      ASSIGN_OR_RETURN(args.files, ListImage(restore));
    }
    bool guest_ran = false;
    ASSIGN_OR_RETURN(
        actor.sandbox,
        runtime_->Start(
            args, [&actor](SandboxExit exit) { actor.exit.set_value(exit); }, &guest_ran));
    return OkStatus();
  }
  // A request on a new connection. The guest may not listen yet: a refused one is made again.
  UniqueFd Send(const Actor& actor, const std::string& line) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(8080);
    inet_pton(AF_INET, actor.netns->guest_address().c_str(), &address.sin_addr);
    for (const MonotonicTime deadline = Soon(); std::chrono::steady_clock::now() < deadline;) {
      UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        std::string text = line + "\n";
        EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
        return fd;
      }
      if (errno != ECONNREFUSED) break;
      usleep(2000);
    }
    ADD_FAILURE() << "no connection";
    return UniqueFd();
  }
  std::string Ask(const Actor& actor, const std::string& line) {
    UniqueFd fd = Send(actor, line);
    timeval limit{.tv_sec = 120, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string answer;
    char c;
    while (recv(fd.get(), &c, 1, 0) == 1 && c != '\n') answer.push_back(c);
    return answer;
  }
  // The directory of a leaf, or of its sibling, whose memory files count.
  std::filesystem::path MemoryGroup(const std::string& name) {
    for (const std::string& file : cgroups_->ProcsFiles(actors_.front()->leaf)) {
      std::filesystem::path group = std::filesystem::path(file).parent_path();
      for (const char* usage : {"memory.usage_in_bytes", "memory.current"}) {
        if (std::filesystem::exists(group / usage)) return group.parent_path() / name;
      }
    }
    ADD_FAILURE() << "no memory files";
    return {};
  }
  // What a process, or `self`, had the disk read.
  static int64_t DiskReads(const std::string& pid) {
    std::istringstream fields(ReadWhole("/proc/" + pid + "/io"));
    std::string name;
    for (int64_t value = 0; fields >> name >> value;) {
      if (name == "read_bytes:") return value;
    }
    ADD_FAILURE() << "no /proc/" << pid << "/io";
    return 0;
  }
  int64_t Charged(const std::string& name) {
    const std::filesystem::path group = MemoryGroup(name);
    const char* file = cgroups_->version() == 2 ? "memory.current" : "memory.usage_in_bytes";
    return std::stoll("0" + ReadWhole(group / file));
  }

  GvisorRuntime::Settings settings_;
  std::string directory_, parent_;
  std::unique_ptr<os::Reaper> reaper_;
  std::unique_ptr<GvisorRuntime> runtime_;
  std::unique_ptr<os::CgroupTree> cgroups_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

// Buffered, as if the device were slow: here isolation is what keeps the image out of the leaf.
TEST_F(MemoryTest, E1_CaptureOfALargeGuestUnderATightLimit) {
  settings_.target.features.checkpoint_flags.erase("direct");
  settings_.target.features.restore_flags.erase("direct");
  MakeRuntime();
  Actor& actor = Add(600 * kMiB);
  ASSERT_OK(Start(actor));
  ASSERT_EQ(Ask(actor, "fill 500"), "ok");
  ASSERT_EQ(Ask(actor, "next"), "1");
  const int pauses = getenv("TORPOR_LONG_TESTS") != nullptr ? 30 : 2;
  for (int i = 1; i <= pauses; ++i) {
    ASSERT_OK_AND_ASSIGN(os::CgroupUsage before, cgroups_->Usage(actor.leaf));
    EXPECT_GT(before.memory_current_bytes, 500 * kMiB);
    runtime::CaptureArgs args;
    args.capture_dir = actor.directory + "/image" + std::to_string(i);
    args.deadline = Soon();
    std::filesystem::create_directories(args.capture_dir);
    runtime::CaptureFailure failure;
    ASSERT_OK(actor.sandbox->Capture(args, &failure));
    ASSERT_OK_AND_ASSIGN(os::CgroupUsage after, cgroups_->Usage(actor.leaf));
    EXPECT_EQ(after.limit_hits, before.limit_hits) << "the capture does not press on the limit";
    EXPECT_EQ(after.oom_kills, 0);
    EXPECT_GT(Charged(actor.leaf + "_ckpt"), 400 * kMiB) << "the image is charged to the sibling";
    ASSERT_OK(actor.sandbox->Stop(Duration::zero()));
    actor.sandbox.reset();
    EXPECT_FALSE(std::filesystem::exists(MemoryGroup(actor.leaf + "_ckpt")));
    ASSERT_OK(Start(actor, args.capture_dir));
    EXPECT_EQ(Ask(actor, "next"), std::to_string(i + 1));
    std::filesystem::remove_all(args.capture_dir);
  }
}

// Eight at once from one image that is in the page cache: the disk is hardly asked for it again.
TEST_F(MemoryTest, E8_CachedRestoresAtOnceReadNoDisk) {
  constexpr int kActors = 8;
  MakeRuntime();
  Actor& first = Add(256 * kMiB);
  ASSERT_OK(Start(first));
  ASSERT_EQ(Ask(first, "fill 64"), "ok");
  runtime::CaptureArgs args;
  args.capture_dir = directory_ + "/image";
  args.deadline = Soon();
  std::filesystem::create_directories(args.capture_dir);
  runtime::CaptureFailure failure;
  ASSERT_OK(first.sandbox->Capture(args, &failure));
  ASSERT_OK(first.sandbox->Stop(Duration::zero()));
  first.sandbox.reset();
  const auto image_bytes = static_cast<int64_t>(ReadWhole(args.capture_dir + "/pages.img").size());
  ASSERT_GT(image_bytes, 64 * kMiB);
  if (CachedFraction(args.capture_dir + "/pages.img") < 1) GTEST_SKIP() << "no cachestat here";
  std::vector<Actor*> clones;
  for (int i = 0; i < kActors; ++i) clones.push_back(&Add(256 * kMiB));
  const int64_t before = DiskReads("self");  // with the children that have ended
  std::vector<std::future<Status>> started;
  for (Actor* clone : clones) {
    started.push_back(std::async(std::launch::async,
                                 [this, clone, &args] { return Start(*clone, args.capture_dir); }));
  }
  for (auto& result : started) ASSERT_OK(result.get());
  int64_t reads = DiskReads("self") - before;
  for (Actor* clone : clones) {
    reads += DiskReads(std::to_string(clone->sandbox->main_pid()));
    EXPECT_GT(Charged(clone->leaf), 64 * kMiB) << "all of the image is loaded";
  }
  EXPECT_LT(reads, image_bytes / 2) << "of " << kActors << " times " << image_bytes;
}

TEST_F(MemoryTest, E4_EverySandboxIsBornInItsOwnLeaf) {
  MakeRuntime();
  for (int i = 0; i < 5; ++i) ASSERT_OK(Start(Add((128 + i) * kMiB)));
  std::set<std::string> groups;
  for (const auto& actor : actors_) {
    std::istringstream lines(ReadWhole(fmt::format("/proc/{}/cgroup", actor->sandbox->main_pid())));
    const std::string path = "/" + parent_ + "/" + actor->leaf;
    int found = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.size() < path.size() || line.substr(line.size() - path.size()) != path) continue;
      groups.insert(path);
      ++found;
    }
    EXPECT_GE(found, cgroups_->version() == 2 ? 1 : 3) << "memory, cpu and pids";
    ASSERT_OK_AND_ASSIGN(auto processes, cgroups_->Processes(actor->leaf));
    EXPECT_GE(processes.size(), 2u) << "sentry and gofer";
    EXPECT_GT(Charged(actor->leaf), 0);
  }
  EXPECT_EQ(groups.size(), 5u);
  for (const std::string& file : cgroups_->ProcsFiles(actors_.front()->leaf)) {
    std::filesystem::path parent = std::filesystem::path(file).parent_path().parent_path();
    EXPECT_EQ(ReadWhole(parent / "cgroup.procs"), "") << "nothing in the parent";
  }
  const char* limit = cgroups_->version() == 2 ? "memory.max" : "memory.limit_in_bytes";
  for (size_t i = 0; i < actors_.size(); ++i) {
    EXPECT_EQ(ReadWhole(MemoryGroup(actors_[i]->leaf) / limit),
              fmt::format("{}\n", (128 + static_cast<int64_t>(i)) * kMiB));
  }
}

}  // namespace
}  // namespace torpor::gvisor
