// The fast way over a scripted runsc and a scripted control socket that fail in every way we know.

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/sync.h"
#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "runtime/gvisor/control_socket/answer.h"
#include "runtime/gvisor/control_socket/calls.h"
#include "runtime/gvisor/gvisor_runtime.h"
#include "runtime/gvisor/leftovers.h"

namespace torpor::gvisor {
namespace {

// Writes the verb into `verbs`; the sentry is a shell that blocks.
constexpr char kScript[] = R"sh(#!/bin/sh
here=$(dirname "$0")
for a; do
  case $a in
    --root=*) root=$a ;;
    -pid-file=*) pid_file=${a#-pid-file=} ;;
    -image-path=*) image=${a#-image-path=} ;;
    create|run|restore|checkpoint|ps) verb=$a ;;
  esac
done
echo $verb >> "$here/verbs"
case $verb in
  create|run|restore)
    rm -f "$here/started"
    "$here/runsc-sandbox" -c ': > "$0/started"; read x < "$0/fifo"; exit 5' "$here" $root &
    echo $! > "$pid_file"
    while [ ! -e "$here/started" ]; do sleep 0.01; done ;;
  checkpoint) printf 'gVisorSFx' > "$image/checkpoint.img"; kill -9 $(cat "$here/../state/pid") ;;
esac
)sh";
constexpr char kHelper[] =
    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
constexpr char kOk[] = R"({"success":true,"err":"","result":null})";
constexpr char kRefused[] = R"({"success":false,"err":"as asked","result":null})";
constexpr char kLives[] = R"({"success":true,"err":"","result":[{"pid":1}]})";

MonotonicTime In(std::chrono::milliseconds ms) { return std::chrono::steady_clock::now() + ms; }

// Answers calls by method until it is destroyed.
class FakeControl {
 public:
  // What to say, given the descriptors of the call; empty = hang up without an answer.
  using Answer = std::function<std::string(const std::vector<UniqueFd>& fds)>;
  static constexpr char kSilence[] = "silence";  // until the client hangs up

  explicit FakeControl(const std::string& path)
      : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeControl() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  void On(const std::string& method, Answer answer) {
    MutexLock lock(&mu_);
    answers_[method] = std::move(answer);
  }
  void On(const std::string& method, const std::string& text) {
    On(method, [text](const std::vector<UniqueFd>&) { return text; });
  }
  std::string methods() const {
    MutexLock lock(&mu_);
    return methods_;
  }

 private:
  void Run() {
    for (;;) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) return;
      Serve(fd.get());
    }
  }
  void Serve(int fd) {
    AnswerReader reader;
    std::vector<UniqueFd> fds;
    while (reader.state() == AnswerReader::State::kMore) {
      char buffer[4096];
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)];
      iovec part{buffer, sizeof buffer};
      msghdr message = {};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
      if (n <= 0) return;
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
          int received;
          memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
          fds.emplace_back(received);
        }
      }
      reader.Append({buffer, static_cast<size_t>(n)});
    }
    std::string method = nlohmann::json::parse(reader.text())["method"];
    Answer answer;
    {
      MutexLock lock(&mu_);
      methods_ += method.substr(method.find('.') + 1) + " ";
      answer = answers_[method];
    }
    std::string text = answer ? answer(fds) : kOk;
    if (text == kSilence) {
      char byte;
      (void)!read(fd, &byte, 1);
      return;
    }
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }

  const UniqueFd listener_;
  mutable Mutex mu_;
  std::map<std::string, Answer> answers_ GUARDED_BY(mu_);
  std::string methods_ GUARDED_BY(mu_);
  std::thread thread_;
};

class SocketFaultsTest : public testing::Test {
 protected:
  SocketFaultsTest() : directory_("/tmp/torpor-socket-" + RandomHex(6)) {
    for (const char* part : {"bin", "state/runsc", "image", "capture", "bundles/app"}) {
      std::filesystem::create_directories(directory_ + "/" + part);
    }
    Program("runsc", kScript);
    Program("helper", kHelper);
    std::filesystem::create_symlink("/bin/sh", directory_ + "/bin/runsc-sandbox");
    EXPECT_EQ(mkfifo((directory_ + "/bin/fifo").c_str(), 0600), 0);
    std::ofstream(directory_ + "/bundles/app/config.json") << R"({"root": {"path": "rootfs"}})";
    args_.sandbox_id = "a";
    args_.spec.add_containers()->set_name("app");
    args_.bundles_dir = directory_ + "/bundles";
    args_.state_dir = directory_ + "/state";
    args_.deadline = In(std::chrono::seconds(30));
    args_.restore_dir = directory_ + "/image";
    args_.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
    for (const char* name : {"checkpoint.img", "pages.img", "pages_meta.img"}) {
      std::ofstream(args_.restore_dir + "/" + name) << "gVisorSFx";
      args_.files.emplace_back().set_name(name);
      args_.files.back().set_logical_bytes(9);
    }
    capture_.capture_dir = directory_ + "/capture";
    capture_.deadline = args_.deadline;
    auto reaper = os::Reaper::Start();
    EXPECT_OK(reaper);
    reaper_ = std::move(*reaper);
    GvisorRuntime::Settings settings;
    settings.target.binary = directory_ + "/bin/runsc";
    settings.target.platform = "systrap";
    settings.target.control = ControlCallsOf("20240729");
    settings.helper = directory_ + "/bin/helper";
    runtime_ = std::make_unique<GvisorRuntime>(settings, reaper_.get());
    Listen();
  }
  ~SocketFaultsTest() override {
    if (prepared_ != nullptr) {
      EXPECT_OK(prepared_->Discard());
    }
    if (sandbox_ != nullptr) {
      EXPECT_OK(sandbox_->Stop(Duration::zero()));
    }
    control_.reset();
    EXPECT_THAT(FindByRoot(directory_ + "/state/runsc"), testing::IsEmpty());
    EXPECT_TRUE(std::filesystem::is_empty(args_.state_dir));
    sandbox_.reset();
    prepared_.reset();
    runtime_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Program(const std::string& name, const std::string& text) {
    std::string path = directory_ + "/bin/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0755);
  }
  void Listen() {
    control_ = std::make_unique<FakeControl>(directory_ + "/state/runsc/runsc-a.sock");
  }
  std::string Verbs() {
    std::ifstream file(directory_ + "/bin/verbs");
    std::string all;
    for (std::string verb; file >> verb;) all += verb + " ";
    return all;
  }
  Status Prepare() {
    auto prepared = runtime_->Prepare(args_);
    if (!prepared.ok()) return prepared.status();
    prepared_ = std::move(*prepared);
    return OkStatus();
  }
  std::function<void(runtime::SandboxExit)> OnExit() {
    return [this](runtime::SandboxExit exit) { exit_.set_value(exit); };
  }
  Status Restore() {
    auto sandbox = prepared_->Restore(args_, OnExit(), &guest_ran_);
    prepared_.reset();
    if (!sandbox.ok()) return sandbox.status();
    sandbox_ = std::move(*sandbox);
    return OkStatus();
  }
  Status Start() {
    auto sandbox = runtime_->Start(args_, OnExit(), &guest_ran_);
    if (!sandbox.ok()) return sandbox.status();
    sandbox_ = std::move(*sandbox);
    return OkStatus();
  }
  // A running guest to be captured.
  void Boot() {
    args_.restore_fidelity = torpor::v1::FIDELITY_UNSPECIFIED;
    ASSERT_OK(Start());
    control_->On("containerManager.Processes", kLives);
  }
  Status Capture() { return sandbox_->Capture(capture_, &failure_).status(); }

  const std::string directory_;
  runtime::StartArgs args_;
  runtime::CaptureArgs capture_;
  std::unique_ptr<os::Reaper> reaper_;
  std::unique_ptr<GvisorRuntime> runtime_;
  std::unique_ptr<FakeControl> control_;
  std::unique_ptr<runtime::PreparedSandbox> prepared_;
  std::unique_ptr<runtime::Sandbox> sandbox_;
  std::promise<runtime::SandboxExit> exit_;
  runtime::CaptureFailure failure_;
  bool guest_ran_ = false;
};

TEST_F(SocketFaultsTest, AnImageGoesIntoAPreparedSandbox) {
  size_t descriptors = 0;
  control_->On("containerManager.Restore", [&](const std::vector<UniqueFd>& fds) {
    descriptors = fds.size();
    return kOk;
  });
  ASSERT_OK(Prepare());
  EXPECT_TRUE(prepared_->alive());
  EXPECT_EQ(control_->methods(), "CreateLinksAndRoutes ") << "the network is there in advance";
  ASSERT_OK(Restore());
  EXPECT_TRUE(guest_ran_);
  EXPECT_EQ(descriptors, 3u);
  EXPECT_EQ(Verbs(), "create ");
  EXPECT_EQ(kill(sandbox_->main_pid(), SIGKILL), 0);
  auto exit = exit_.get_future();
  ASSERT_EQ(exit.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(exit.get().signal, SIGKILL);
}

TEST_F(SocketFaultsTest, ARefusedRestoreHasNotRunTheGuest) {
  control_->On("containerManager.Restore", kRefused);
  ASSERT_OK(Prepare());
  EXPECT_THAT(Restore(), MessageHas("as asked"));
  EXPECT_FALSE(guest_ran_);
  EXPECT_THAT(FindByRoot(directory_ + "/state/runsc"), testing::IsEmpty());
}

TEST_F(SocketFaultsTest, ARestoreWithoutAnAnswerMayHaveRunTheGuest) {
  for (const char* answer : {"", "{\"success\":tr", FakeControl::kSilence}) {
    control_->On("containerManager.Restore", answer);
    ASSERT_OK(Prepare());
    if (answer == FakeControl::kSilence) args_.deadline = In(std::chrono::milliseconds(100));
    EXPECT_THAT(Restore(), testing::Not(IsOk())) << answer;
    EXPECT_TRUE(guest_ran_) << answer;
    control_.reset();
    std::filesystem::create_directories(directory_ + "/state/runsc");
    Listen();
  }
  control_.reset();
  std::filesystem::remove_all(directory_ + "/state/runsc");
}

TEST_F(SocketFaultsTest, APreparedSandboxThatDiedIsNoNews) {
  ASSERT_OK(Prepare());
  std::ifstream file(directory_ + "/state/pid");
  pid_t pid = 0;
  file >> pid;
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  MonotonicTime deadline = In(std::chrono::seconds(20));
  while (prepared_->alive() && std::chrono::steady_clock::now() < deadline) usleep(1000);
  EXPECT_FALSE(prepared_->alive());
  EXPECT_THAT(Restore(), MessageHas("has ended"));
  EXPECT_FALSE(guest_ran_);
}

TEST_F(SocketFaultsTest, ACorruptImageIsFoundBeforeTheSandboxIsAsked) {
  ASSERT_OK(Prepare());
  std::ofstream(args_.restore_dir + "/pages.img") << "longer than it should be";
  EXPECT_THAT(Restore(), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_FALSE(guest_ran_);
  EXPECT_EQ(control_->methods(), "CreateLinksAndRoutes ");
}

TEST_F(SocketFaultsTest, ASandboxWithoutItsNetworkIsNotMade) {
  control_->On("Network.CreateLinksAndRoutes", kRefused);
  EXPECT_THAT(Prepare(), MessageHas("as asked"));
  EXPECT_EQ(Verbs(), "create ");
}

TEST_F(SocketFaultsTest, AStartFallsBackToTheCommand) {
  control_->On("containerManager.Restore", kRefused);
  ASSERT_OK(Start());
  EXPECT_EQ(Verbs(), "create restore ");
  EXPECT_TRUE(guest_ran_);
}

TEST_F(SocketFaultsTest, AStartOfAGuestThatMayHaveRunDoesNotFallBack) {
  control_->On("containerManager.Restore", "");
  EXPECT_THAT(Start(), testing::Not(IsOk()));
  EXPECT_TRUE(guest_ran_);
  EXPECT_EQ(Verbs(), "create ");
}

TEST_F(SocketFaultsTest, WhatCannotBePreparedHasNoKey) {
  EXPECT_NE(runtime_->PreparationKey(args_), "");
  runtime::StartArgs boot = args_;
  boot.restore_fidelity = torpor::v1::FIDELITY_UNSPECIFIED;
  EXPECT_EQ(runtime_->PreparationKey(boot), "");
  runtime::StartArgs volumes = args_;
  volumes.spec.mutable_containers(0)->add_volume_mounts();
  EXPECT_EQ(runtime_->PreparationKey(volumes), "");
  runtime::StartArgs single_file = args_;
  single_file.files.resize(1);
  EXPECT_EQ(runtime_->PreparationKey(single_file), "");
  auto key_of = [&](const std::string& config) {
    std::ofstream(directory_ + "/bundles/app/config.json") << config;
    return runtime_->PreparationKey(args_);
  };
  std::string key = key_of(R"({"root":{"path":"r"},"hostname":"a"})");
  EXPECT_EQ(key, key_of(R"({"root":{"path":"r"},"hostname":"b"})")) << "the name is the guest's";
  EXPECT_NE(key, key_of(R"({"root":{"path":"other"},"hostname":"a"})"));
  EXPECT_EQ(key_of(R"({"root":{"path":"r"},"mounts":[{"type":"bind"}]})"), "");
  EXPECT_EQ(key_of(R"({"root":{"path":"r"},"mounts":[7]})"), "");
  EXPECT_EQ(key_of("no json"), "");
  args_.spec.set_cpu_milli(500);
  EXPECT_NE(key, key_of(R"({"root":{"path":"r"},"hostname":"a"})"));
  // Nothing was started that would have taken it along.
  control_.reset();
  std::filesystem::remove_all(directory_ + "/state/runsc");
}

TEST_F(SocketFaultsTest, ACaptureThroughTheSocket) {
  Boot();
  control_->On("containerManager.Checkpoint", [&](const std::vector<UniqueFd>& fds) {
    for (const UniqueFd& fd : fds) EXPECT_EQ(write(fd.get(), "gVisorSFx", 9), 9);
    kill(sandbox_->main_pid(), SIGKILL);
    return fds.size() == 3 ? kOk : kRefused;
  });
  ASSERT_OK_AND_ASSIGN(auto outcome, sandbox_->Capture(capture_, &failure_));
  ASSERT_EQ(outcome.files.size(), 3u);
  for (const auto& file : outcome.files) EXPECT_EQ(file.logical_bytes(), 9) << file.name();
  EXPECT_EQ(Verbs(), "run ");
}

TEST_F(SocketFaultsTest, ARefusedCaptureLeavesTheGuestAsItWas) {
  Boot();
  control_->On("containerManager.Checkpoint", kRefused);
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_TRUE(failure_.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  EXPECT_EQ(kill(sandbox_->main_pid(), 0), 0);
}

TEST_F(SocketFaultsTest, AGuestThatDoesNotAnswerAfterARefusedCaptureIsKilled) {
  Boot();
  control_->On("containerManager.Checkpoint", kRefused);
  control_->On("containerManager.Processes", kOk);  // of nothing
  EXPECT_THAT(Capture(), testing::Not(IsOk()));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_THAT(FindByRoot(directory_ + "/state/runsc"), testing::IsEmpty());
}

// It may end at any later moment, whatever it says now.
TEST_F(SocketFaultsTest, ACaptureWhoseEndNobodyKnowsEndsTheGuest) {
  Boot();
  control_->On("containerManager.Checkpoint", "garbage");
  EXPECT_THAT(Capture(), testing::Not(IsOk()));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  EXPECT_THAT(FindByRoot(directory_ + "/state/runsc"), testing::IsEmpty());
}

TEST_F(SocketFaultsTest, ACaptureIsMadeByCommandWhenNobodyListens) {
  Boot();
  control_.reset();
  ASSERT_OK(Capture());
  EXPECT_EQ(Verbs(), "run checkpoint ");
}

}  // namespace
}  // namespace torpor::gvisor
