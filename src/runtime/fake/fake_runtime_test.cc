// The contract suite over the fake runtime, and what only the fake has.

#include "runtime/fake/fake_runtime.h"

#include "runtime/fake/fake_guest.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/uuid.h"
#include "runtime/contract/runtime_contract.h"

namespace torpor::runtime {
namespace {

class FakeSubject : public ContractSubject {
 public:
  FakeSubject() : directory_(testing::TempDir() + "torpor-fake-" + RandomHex(6)) {
    std::filesystem::create_directories(directory_ + "/bundles");
  }
  ~FakeSubject() override { std::filesystem::remove_all(directory_); }
  Runtime& runtime() override { return runtime_; }
  const std::string& directory() const override { return directory_; }
  void Surround(StartArgs* args) override { id_ = args->sandbox_id; }
  StatusOr<std::string> Ask(const std::string& line) override { return runtime_.Ask(id_, line); }
  bool HoldConnection() override { return false; }

 private:
  FakeRuntime runtime_;
  std::string directory_;
  std::string id_;
};

INSTANTIATE_TEST_SUITE_P(Fake, RuntimeContract,
                         testing::Values(SubjectFactory{"Fake",
                                                        []() -> std::unique_ptr<ContractSubject> {
                                                          return std::make_unique<FakeSubject>();
                                                        }}),
                         [](const auto& info) { return info.param.name; });

class FakeRuntimeTest : public testing::Test {
 protected:
  FakeRuntimeTest() : directory_(testing::TempDir() + "torpor-fake-" + RandomHex(6)) {
    std::filesystem::create_directories(directory_ + "/state");
    std::filesystem::create_directories(directory_ + "/image");
    args_.sandbox_id = "a";
    args_.state_dir = directory_ + "/state";
    capture_.capture_dir = directory_ + "/image";
  }
  ~FakeRuntimeTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  StartArgs args_;
  CaptureArgs capture_;
};

TEST_F(FakeRuntimeTest, InjectedFailuresHappenOnce) {
  FakeRuntime runtime;
  bool ran = true;
  runtime.FailNextStart(Error(Code::kInternal, "RUNTIME_FAILED", "as asked"));
  EXPECT_THAT(runtime.Start(args_, nullptr, &ran), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_FALSE(ran);
  ASSERT_OK_AND_ASSIGN(auto sandbox, runtime.Start(args_, nullptr, &ran));
  EXPECT_TRUE(ran);

  CaptureFailure failure;
  runtime.FailNextCapture(Error(Code::kInternal, "RUNTIME_FAILED", "as asked"), true);
  EXPECT_THAT(sandbox->Capture(capture_, &failure), testing::Not(IsOk()));
  EXPECT_TRUE(failure.guest_alive);
  EXPECT_OK(runtime.Ask("a", "next"));
  runtime.FailNextCapture(Error(Code::kInternal, "RUNTIME_FAILED", "as asked"), false);
  EXPECT_THAT(sandbox->Capture(capture_, &failure), testing::Not(IsOk()));
  EXPECT_FALSE(failure.guest_alive);
  EXPECT_THAT(runtime.Ask("a", "next"), HasCode(Code::kUnavailable));
  runtime.FailNextStop(Error(Code::kInternal, "RUNTIME_FAILED", "as asked"));
  EXPECT_THAT(sandbox->Stop(Duration::zero()), testing::Not(IsOk()));
  EXPECT_OK(sandbox->Stop(Duration::zero()));
}

TEST_F(FakeRuntimeTest, CrashIsReported) {
  FakeRuntime runtime;
  SandboxExit exit;
  bool ran = false;
  ASSERT_OK_AND_ASSIGN(auto sandbox, runtime.Start(args_, [&](SandboxExit e) { exit = e; }, &ran));
  EXPECT_EQ(runtime.running(), 1u);
  EXPECT_OK(runtime.Crash("a", {139, 11}));
  EXPECT_EQ(exit.exit_code, 139);
  EXPECT_EQ(exit.signal, 11);
  EXPECT_EQ(runtime.running(), 0u);
  EXPECT_THAT(runtime.Crash("a", {139, 11}), HasCode(Code::kNotFound));
}

TEST_F(FakeRuntimeTest, LeavesRunningWhenAsked) {
  FakeRuntime runtime;
  bool ran = false;
  ASSERT_OK_AND_ASSIGN(auto sandbox, runtime.Start(args_, nullptr, &ran));
  capture_.leave_running = true;
  ASSERT_OK(sandbox->Capture(capture_, nullptr));
  ASSERT_OK_AND_ASSIGN(std::string answer, runtime.Ask("a", "next"));
  EXPECT_EQ(answer, "1");
}

TEST_F(FakeRuntimeTest, ServesHttp) {
  FakeRuntime runtime({.serve_http = true});
  bool ran = false;
  ASSERT_OK_AND_ASSIGN(auto sandbox, runtime.Start(args_, nullptr, &ran));
  ASSERT_OK_AND_ASSIGN(int port, runtime.HttpPort("a"));
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  // Two requests in one piece on one connection.
  std::string requests = "GET /readyz HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_EQ(write(fd.get(), requests.data(), requests.size()),
            static_cast<ssize_t>(requests.size()));
  std::string answers;
  char buffer[1024];
  while (answers.find("\r\n\r\n1\n") == std::string::npos) {
    ssize_t n = read(fd.get(), buffer, sizeof buffer);
    ASSERT_GT(n, 0) << answers;
    answers.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_NE(answers.find("\r\n\r\nok\n"), std::string::npos);
  EXPECT_OK(sandbox->Stop(Duration::zero()));
  EXPECT_EQ(read(fd.get(), buffer, sizeof buffer), 0) << "the connection ends with the guest";
}

// What `torpor bench` proves with it: nothing is executed twice, and nothing executed is forgotten.
TEST(RequestLogTest, KeepsAccountOfNumbers) {
  RequestLog log;
  for (int64_t number : {1, 2, 5, 3}) log.Execute(number);
  EXPECT_EQ(log.ToString(), "executed 4 twice 0 skipped 1");
  EXPECT_EQ(RequestLog::Load(log.Save()).ToString(), log.ToString());
  log.Execute(3);  // it came late before; this is a second time
  log.Execute(5);
  EXPECT_EQ(log.ToString(), "executed 6 twice 2 skipped 1");
  log.Execute(4);
  EXPECT_EQ(log.ToString(), "executed 7 twice 2 skipped 0");
}

TEST_F(FakeRuntimeTest, AccountOfRequestsIsPartOfTheMemory) {
  FakeGuest guest(nullptr, -1);
  ASSERT_OK(guest.ServeHttp("", 0));
  auto ask = [](int port, const std::string& path) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string request = "POST " + path + " HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    EXPECT_EQ(write(fd.get(), request.data(), request.size()),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[1024];
    while (answer.find("executed") == std::string::npos || answer.back() != '\n') {
      ssize_t n = read(fd.get(), buffer, sizeof buffer);
      if (n <= 0) break;
      answer.append(buffer, static_cast<size_t>(n));
    }
    return answer.substr(answer.find("\r\n\r\n") + 4);
  };
  EXPECT_EQ(ask(guest.http_port(), "/once?client=3&number=1&ms=0"),
            "executed 1 twice 0 skipped 0\n");
  EXPECT_EQ(ask(guest.http_port(), "/once?client=3&number=1&ms=1"),
            "executed 2 twice 1 skipped 0\n");
  EXPECT_EQ(ask(guest.http_port(), "/executed?client=4"), "executed 0 twice 0 skipped 0\n");
  FakeGuest again(nullptr, -1);
  ASSERT_OK(again.Load(guest.Save()));
  ASSERT_OK(again.ServeHttp("", 0));
  EXPECT_EQ(ask(again.http_port(), "/executed?client=3"), "executed 2 twice 1 skipped 0\n");
}

}  // namespace
}  // namespace torpor::runtime
