// The control socket against a scripted sandbox: what is sent, and every way an answer can be bad.

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "runtime/gvisor/control_socket/answer.h"
#include "runtime/gvisor/control_socket/calls.h"
#include "runtime/gvisor/control_socket/client.h"
#include "runtime/gvisor/control_socket/link.h"

namespace torpor::gvisor {
namespace {

using nlohmann::json;
using State = AnswerReader::State;

MonotonicTime In(std::chrono::milliseconds ms) { return std::chrono::steady_clock::now() + ms; }
MonotonicTime Soon() { return In(std::chrono::seconds(30)); }

// One connection: reads a whole request, then does what the test says.
class ScriptedServer {
 public:
  explicit ScriptedServer(const std::string& path) : listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    // Bound by way of a short link, as the path may be longer than an address.
    std::string directory = path.substr(0, path.rfind('/'));
    UniqueFd at(open(directory.c_str(), O_PATH | O_DIRECTORY));
    std::string shorter =
        "/proc/self/fd/" + std::to_string(at.get()) + path.substr(path.rfind('/'));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, shorter.data(), shorter.size());
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
  }
  ~ScriptedServer() {
    if (thread_.joinable()) thread_.join();
  }
  void Serve(std::function<void(int fd)> script) {
    thread_ = std::thread([this, script = std::move(script)] {
      UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
      ReadRequest(fd.get());
      script(fd.get());
      // The client closes first: until then nothing more comes.
      char byte;
      shutdown(fd.get(), SHUT_WR);
      closed_by_client = read(fd.get(), &byte, 1) <= 0;
    });
  }
  void Join() { thread_.join(); }

  std::string request;
  std::vector<int> fds;  // received
  bool closed_by_client = false;

 private:
  void ReadRequest(int fd) {
    AnswerReader reader;  // a request is one object, too
    while (reader.state() == State::kMore) {
      char buffer[1024];
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
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        fds.resize(count);
        memcpy(fds.data(), CMSG_DATA(c), count * sizeof(int));
      }
      reader.Append({buffer, static_cast<size_t>(n)});
    }
    request = reader.text();
  }

  UniqueFd listener_;
  std::thread thread_;
};

void Say(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

class ControlSocketTest : public testing::Test {
 protected:
  ControlSocketTest()
      : directory_("/tmp/torpor-control-" + RandomHex(6)),
        // Longer than a socket address.
        root_(directory_ + "/" + std::string(120, 'r')) {
    std::filesystem::create_directories(root_);
    server_ = std::make_unique<ScriptedServer>(root_ + "/runsc-abc.sock");
  }
  ~ControlSocketTest() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  CallResult Answered(std::string_view text) {
    server_->Serve([text = std::string(text)](int fd) { Say(fd, text); });
    CallResult result = CallSandbox(root_, "abc", {"a.B", "{}", {}}, Soon());
    server_->Join();
    return result;
  }

  const std::string directory_, root_;
  std::unique_ptr<ScriptedServer> server_;
};

TEST_F(ControlSocketTest, SendsMethodArgumentAndDescriptors) {
  UniqueFd one(open("/dev/null", O_RDONLY | O_CLOEXEC)), two(open("/dev/zero", O_RDONLY));
  server_->Serve(
      [](int fd) { Say(fd, "{\"success\":true,\"err\":\"\",\"result\":{\"n\":[1]}}\n"); });
  CallResult result =
      CallSandbox(root_, "abc", {"a.B", R"({"x":1})", {one.get(), two.get()}}, Soon());
  server_->Join();
  EXPECT_EQ(result.end, CallEnd::kDone);
  EXPECT_OK(result.status);
  EXPECT_EQ(result.result, R"({"n":[1]})");
  EXPECT_EQ(json::parse(server_->request), json::parse(R"({"method":"a.B","arg":{"x":1}})"));
  EXPECT_TRUE(server_->closed_by_client) << "or the sentry would stay for seconds";
  ASSERT_EQ(server_->fds.size(), 2u);
  struct stat sent, received;
  for (auto [mine, theirs] : {std::pair(one.get(), 0u), std::pair(two.get(), 1u)}) {
    ASSERT_EQ(fstat(mine, &sent), 0);
    ASSERT_EQ(fstat(server_->fds[theirs], &received), 0);
    EXPECT_EQ(sent.st_rdev, received.st_rdev);
    close(server_->fds[theirs]);
  }
}

TEST_F(ControlSocketTest, AnAnswerMayComeByteByByte) {
  server_->Serve([](int fd) {
    for (char c : std::string(R"({"success":true,"err":"","result":"}\"{"})")) Say(fd, {&c, 1});
  });
  CallResult result = CallSandbox(root_, "abc", {"a.B", "{}", {}}, Soon());
  EXPECT_EQ(result.end, CallEnd::kDone);
  EXPECT_EQ(result.result, R"("}\"{")");
}

TEST_F(ControlSocketTest, AnErrorIsRefused) {
  CallResult result = Answered(R"({"success":false,"err":"no such thing","result":null})");
  EXPECT_EQ(result.end, CallEnd::kRefused);
  EXPECT_THAT(result.status, HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_THAT(result.status, MessageHas("a.B: no such thing"));
}

TEST_F(ControlSocketTest, EveryBadAnswerIsUnknown) {
  int n = 0;
  for (std::string_view text :
       {"", "{\"success\":tr", "garbage", "[]", "{\"success\":1,\"err\":\"\"}", "{\"err\":\"x\"}",
        "{\"success\":true,\"err\":7}", "{\"success\":true]", "{\"success\":true}{"}) {
    server_ = std::make_unique<ScriptedServer>(
        (std::filesystem::create_directories(root_ + std::to_string(++n)),
         root_ + std::to_string(n) + "/runsc-abc.sock"));
    server_->Serve([text](int fd) { Say(fd, text); });
    CallResult result = CallSandbox(root_ + std::to_string(n), "abc", {"a.B", "{}", {}}, Soon());
    server_->Join();
    EXPECT_EQ(result.end, CallEnd::kUnknown) << text;
    EXPECT_THAT(result.status, testing::Not(IsOk())) << text;
  }
}

TEST_F(ControlSocketTest, AnEndlessAnswerIsCutOff) {
  server_->Serve([](int fd) {
    // Until the client hangs up.
    std::string more(64 << 10, 'x');
    Say(fd, "{\"success\":true,\"err\":\"");
    while (send(fd, more.data(), more.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  EXPECT_EQ(CallSandbox(root_, "abc", {"a.B", "{}", {}}, Soon()).end, CallEnd::kUnknown);
}

TEST_F(ControlSocketTest, ASilentSandboxEndsAtTheDeadline) {
  server_->Serve([](int fd) {
    char byte;
    EXPECT_EQ(read(fd, &byte, 1), 0) << "the client hangs up";
  });
  CallResult result =
      CallSandbox(root_, "abc", {"a.B", "{}", {}}, In(std::chrono::milliseconds(50)));
  EXPECT_EQ(result.end, CallEnd::kUnknown);
  EXPECT_THAT(result.status, HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
}

TEST_F(ControlSocketTest, NobodyThereMeansNotSent) {
  EXPECT_EQ(CallSandbox(root_, "gone", {"a.B", "{}", {}}, Soon()).end, CallEnd::kNotSent);
  EXPECT_EQ(CallSandbox(directory_ + "/no", "abc", {"a.B", "{}", {}}, Soon()).end,
            CallEnd::kNotSent);
  server_.reset();  // the file stays, as of a sentry that was killed
  EXPECT_EQ(CallSandbox(root_, "abc", {"a.B", "{}", {}}, Soon()).end, CallEnd::kNotSent);
}

TEST(AnswerReader, FindsTheEnd) {
  AnswerReader reader;
  EXPECT_EQ(reader.Append(" \n{\"a\":\"}\\\""), State::kMore);
  EXPECT_EQ(reader.Append("]\",\"b\":[{}]}"), State::kComplete);
  EXPECT_EQ(reader.text(), R"({"a":"}\"]","b":[{}]})");
  EXPECT_EQ(reader.Append("\n"), State::kComplete);
  EXPECT_EQ(reader.Append("x"), State::kBad);
  AnswerReader deep;
  EXPECT_EQ(deep.Append("{" + std::string(kAnswerDepthMax, '[')), State::kBad);
  AnswerReader at_depth;
  EXPECT_EQ(at_depth.Append("{" + std::string(kAnswerDepthMax - 1, '[')), State::kMore);
}

TEST(ControlCalls, ByRelease) {
  EXPECT_NE(ControlCallsOf("0.0~20240729.0"), nullptr);
  EXPECT_NE(ControlCallsOf("release-20240729.0"), nullptr);
  EXPECT_EQ(ControlCallsOf("release-20260622.0"), nullptr);
  EXPECT_EQ(ControlCallsOf(""), nullptr);
}

// What the CLI of that release sends for such a link.
TEST(ControlCalls, Links20240729) {
  const ControlCalls* calls = ControlCallsOf("20240729");
  GuestLink link = {.name = "eth0",
                    .mac = {2, 0x54, 0x6f, 0x72, 0x70, 2},
                    .mtu = 1500,
                    .address = "169.254.17.2",
                    .prefix_bits = 30,
                    .network = "169.254.17.0",
                    .gateway = "169.254.17.1"};
  ControlCall call = calls->create_links(&link);
  EXPECT_EQ(call.method, "Network.CreateLinksAndRoutes");
  json arg = json::parse(call.arg);
  const json& eth0 = arg["FDBasedLinks"][0];
  EXPECT_EQ(eth0["LinkAddress"], "AlRvcnAC");
  EXPECT_EQ(eth0["Addresses"], json::parse(R"([{"Address":"169.254.17.2","PrefixLen":30}])"));
  EXPECT_EQ(eth0["Routes"][0]["Destination"],
            json::parse(R"({"IP":"169.254.17.0","Mask":"/////A=="})"));
  EXPECT_EQ(arg["Defaultv4Gateway"]["Route"]["Gateway"], "169.254.17.1");
  EXPECT_EQ(arg["Defaultv4Gateway"]["Route"]["Destination"]["Mask"], "AAAAAAAAAAAAAP//AAAAAA==");
  EXPECT_EQ(arg["Defaultv4Gateway"]["Name"], "eth0");
  EXPECT_EQ(arg["LoopbackLinks"][0]["Routes"][0]["Destination"]["Mask"], "/wAAAA==");
  EXPECT_EQ(arg["LoopbackLinks"][0]["Routes"][1]["Destination"]["Mask"],
            "/////////////////////w==");
  EXPECT_EQ(arg["LoopbackLinks"][0]["Addresses"].size(), 2u);
  EXPECT_EQ(arg["DisconnectOk"], true);
  json alone = json::parse(calls->create_links(nullptr).arg);
  EXPECT_TRUE(alone["FDBasedLinks"].is_null());
  EXPECT_EQ(calls->processes("a\"b").arg, R"("a\"b")");
}

TEST(Link, DefaultGatewayOfARouteTable) {
  const std::string table =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth0\t0011FEA9\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0\n"
      "eth1\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      "eth0\t00000000\t0111FEA9\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
  EXPECT_EQ(DefaultGateway(table, "eth0"), "169.254.17.1");
  EXPECT_EQ(DefaultGateway(table, "eth1"), "10.0.0.1");
  EXPECT_EQ(DefaultGateway(table, "eth2"), "");
  EXPECT_EQ(DefaultGateway("eth0 00000000 zzzz 0003\neth0 00000000\n", "eth0"), "");
}

}  // namespace
}  // namespace torpor::gvisor
