// Starts the real counter binary on a loopback port and checks its protocol and its HTTP server.

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "workloads/base/digest.h"
#include "workloads/base/io.h"
#include "workloads/http/websocket.h"
#include "workloads/testing/child.h"
#include "workloads/testing/client.h"

namespace torpor::workloads {
namespace {

using testing::Answer;
using testing::Child;
using testing::Client;

class CounterTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }

  void Start(const std::string& ready_delay_ms = "0") {
    child_.reset();
    child_ = std::make_unique<Child>(std::vector<std::string>{
        COUNTER_BINARY, "--host=127.0.0.1", "--port=0", "--home-dir", dir_.path(),
        "--random-file=" + dir_.path() + "/random", "--system-info-dir=" + dir_.path(),
        "--ready-delay-ms=" + ready_delay_ms});
    port_ = child_->WaitForPort("listening on ");
    ASSERT_NE(port_, 0) << child_->log();
  }

  std::string CountLine(int memory, int file) {
    return "hello from: 127.0.0.1 | preserved memory count: " + std::to_string(memory) +
           " | preserved file counter: " + std::to_string(file) + "\n";
  }

  // The text of a field of a flat JSON object.
  static std::string Field(const std::string& json, const std::string& name) {
    const size_t start = json.find("\"" + name + "\":");
    if (start == std::string::npos) return "missing";
    const size_t value = start + name.size() + 3;
    return json.substr(value, json.find_first_of(",}", value) - value);
  }

  testing::TempDir dir_;
  std::unique_ptr<Child> child_;
  uint16_t port_ = 0;
};

TEST_F(CounterTest, CountsInMemoryAndInFile) {
  Client client(port_);
  EXPECT_EQ(client.Get("/").body, CountLine(1, 1));
  EXPECT_EQ(client.Do("POST", "/anything?x=1", "body").body, CountLine(2, 2));
  for (const char* path : {"/readyz", "/state", "/slow?ms=1", "/sse?n=1&ms=1", "/echo"}) {
    EXPECT_NE(client.Get(path).status, 0) << path;
  }
  EXPECT_EQ(client.Get("/readyzz").body, CountLine(3, 3));
  EXPECT_EQ(*ReadSmallFile(dir_.path() + "/a.txt"), "3\n");
}

TEST_F(CounterTest, FileCountSurvivesRestartAndMemoryCountDoesNot) {
  EXPECT_EQ(Client(port_).Get("/").body, CountLine(1, 1));
  Start();
  EXPECT_EQ(Client(port_).Get("/").body, CountLine(1, 2));
}

TEST_F(CounterTest, IsReadyOnceTheRandomFileIsWritten) {
  Start("300");
  Client client(port_);
  const Answer before = client.Get("/readyz");
  EXPECT_EQ(before.status, 503);
  ASSERT_TRUE(child_->WaitForText("counter: ready"));
  const Answer after = client.Get("/readyz");
  EXPECT_EQ(after.status, 200);
  EXPECT_EQ(after.body, "ok");
  EXPECT_EQ(ReadSmallFile(dir_.path() + "/random", 2 << 20)->size(), size_t{1} << 20);
}

TEST_F(CounterTest, StateTellsWhatIsSharedAndWhatIsFresh) {
  std::ofstream(dir_.path() + "/name") << "counter-1\n";
  Client client(port_);
  client.Get("/");
  const Answer first = client.Get("/state");
  const Answer second = client.Get("/state");
  EXPECT_EQ(first.headers.at("content-type"), "application/json");
  EXPECT_EQ(Field(first.body, "memory"), "1");
  EXPECT_EQ(Field(first.body, "file"), "1");
  EXPECT_EQ(Field(first.body, "actor_name"), "\"counter-1\"");
  EXPECT_EQ(Field(first.body, "boot_uuid"), Field(second.body, "boot_uuid"));
  EXPECT_EQ(Field(first.body, "boot_uuid").size(), 38u);
  for (const char* name : {"fresh_uuid", "random", "monotonic_ns", "wall_ns"}) {
    EXPECT_NE(Field(first.body, name), Field(second.body, name)) << name;
    EXPECT_NE(Field(first.body, name), "missing") << name;
  }
  EXPECT_EQ(Field(first.body, "random").size(), 34u);
  EXPECT_NE(Field(first.body, "hostname"), "\"\"");
}

TEST_F(CounterTest, SendsEventsInChunks) {
  Client client(port_);
  const int64_t start = MonotonicNs();
  const Answer answer = client.Get("/sse?n=3&ms=50");
  EXPECT_GE(MonotonicNs() - start, 100'000'000);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(answer.body,
            "id: 0\ndata: {\"n\":0,\"memory\":0}\n\nid: 1\ndata: {\"n\":1,\"memory\":0}\n\n"
            "id: 2\ndata: {\"n\":2,\"memory\":0}\n\n");
  EXPECT_EQ(client.Get("/sse?n=x").status, 400);
  EXPECT_EQ(client.Get("/sse?n=0").body, "");
}

TEST_F(CounterTest, SlowAnswerLeavesOthersAlone) {
  Client slow(port_);
  ASSERT_TRUE(slow.SendRaw("GET /slow?ms=300 HTTP/1.1\r\nHost: x\r\n\r\n"));
  const int64_t start = MonotonicNs();
  EXPECT_EQ(Client(port_).Get("/readyz").status, 200);
  EXPECT_LT(MonotonicNs() - start, 250'000'000);
  EXPECT_EQ(slow.ReadAnswer().body, "answered after 300 ms\n");
}

TEST_F(CounterTest, KeepsAccountOfNumberedRequests) {
  Client client(port_);
  EXPECT_EQ(client.Get("/once?client=2&number=1&ms=0").body, "executed 1 twice 0 skipped 0\n");
  EXPECT_EQ(client.Get("/once?client=2&number=3&ms=1").body, "executed 2 twice 0 skipped 1\n");
  EXPECT_EQ(client.Get("/once?client=2&number=3&ms=0").body, "executed 3 twice 1 skipped 1\n");
  EXPECT_EQ(client.Get("/once?client=2&number=2&ms=0").body, "executed 4 twice 1 skipped 0\n");
  EXPECT_EQ(client.Get("/executed?client=2").body, "executed 4 twice 1 skipped 0\n");
  EXPECT_EQ(client.Get("/executed?client=9").body, "executed 0 twice 0 skipped 0\n");
  EXPECT_EQ(client.Get("/once?client=2&ms=0").status, 400);
  EXPECT_EQ(client.Get("/executed?client=x").status, 400);
  EXPECT_EQ(client.Get("/").body, CountLine(1, 1)) << "they do not count";
}

TEST_F(CounterTest, EchoesWhileTheBodyArrives) {
  Client client(port_);
  ASSERT_TRUE(
      client.SendRaw("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/x-test\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"));
  const std::string head = client.ReadBytes(15);
  EXPECT_EQ(head, "HTTP/1.1 200 OK");
  std::string seen;
  while (seen.find("5\r\nhello\r\n") == std::string::npos) {
    const std::string byte = client.ReadBytes(1);
    ASSERT_FALSE(byte.empty());
    seen += byte;
  }
  EXPECT_NE(seen.find("Content-Type: text/x-test\r\n"), std::string::npos);
  ASSERT_TRUE(client.SendRaw("6;ext=1\r\n world\r\n0\r\nTrailer: x\r\n\r\n"));
  EXPECT_EQ(client.ReadBytes(16), "6\r\n world\r\n0\r\n\r\n");
}

TEST_F(CounterTest, EchoesMuchMoreThanItBuffers) {
  const size_t size = 32 << 20;
  const std::string piece(1 << 20, 'x');
  Client client(port_);
  ASSERT_TRUE(client.SendRaw(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n"));
  std::thread sender([&] {
    for (size_t sent = 0; sent < size; sent += piece.size()) client.SendRaw(piece);
  });
  const Answer answer = client.ReadAnswer();
  sender.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, std::string(size, 'x'));
  EXPECT_EQ(client.Get("/").body, CountLine(1, 1));
}

TEST_F(CounterTest, AnswersExpectContinue) {
  Client client(port_);
  ASSERT_TRUE(
      client.SendRaw("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                     "Content-Length: 2\r\n\r\n"));
  EXPECT_EQ(client.ReadAnswer().status, 100);
  ASSERT_TRUE(client.SendRaw("hi"));
  EXPECT_EQ(client.ReadAnswer().body, CountLine(1, 1));
}

TEST_F(CounterTest, AnswersPipelinedRequestsInOrder) {
  Client client(port_);
  const std::string end = " HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(
      client.SendRaw("GET /slow?ms=50" + end + "GET /" + end + "HEAD /" + end + "GET /" + end));
  EXPECT_EQ(client.ReadAnswer().body, "answered after 50 ms\n");
  EXPECT_EQ(client.ReadAnswer().body, CountLine(1, 1));
  EXPECT_EQ(client.ReadAnswer(true).status, 200);
  EXPECT_EQ(client.ReadAnswer().body, CountLine(3, 3));
}

TEST_F(CounterTest, ClosesWhenAskedTo) {
  Client close(port_);
  EXPECT_EQ(close.Do("GET", "/", "", "Connection: close\r\n").status, 200);
  EXPECT_TRUE(close.AtEnd());
  Client stream(port_);
  EXPECT_EQ(stream.Do("GET", "/sse?n=3&ms=10", "", "Connection: close\r\n").body.size(), 96u);
  EXPECT_TRUE(stream.AtEnd());
  Client old(port_);
  ASSERT_TRUE(old.SendRaw("GET /sse?n=2&ms=10 HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.ReadAnswer().body.size(), 64u);
}

TEST_F(CounterTest, RefusesBrokenRequests) {
  const std::pair<const char*, int> cases[] = {
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413}};
  for (const auto& [bytes, status] : cases) {
    Client client(port_);
    ASSERT_TRUE(client.SendRaw(bytes));
    EXPECT_EQ(client.ReadAnswer().status, status) << bytes;
    EXPECT_TRUE(client.AtEnd()) << bytes;
  }
  Client client(port_);
  client.SendRaw("GET / HTTP/1.1\r\nX: " + std::string(64 << 10, 'x'));
  EXPECT_EQ(client.ReadAnswer().status, 431);
  EXPECT_EQ(Client(port_).Get("/").body, CountLine(1, 1));
}

TEST_F(CounterTest, SurvivesClientsThatLeave) {
  for (int i = 0; i < 20; ++i) {
    Client(port_).SendRaw("GET /sse?n=1000&ms=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    Client(port_).SendRaw("GET /slow?ms=20 HTTP/1.1\r\nHost: x\r\n\r\n");
    Client(port_).SendRaw("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc");
    Client(port_).SendRaw("GET /");
  }
  EXPECT_EQ(Client(port_).Get("/").body, CountLine(1, 1));
}

// A masked client frame.
std::string Frame(int first_byte, const std::string& payload) {
  std::string frame(1, static_cast<char>(first_byte));
  const size_t size = payload.size();
  if (size < 126) {
    frame.push_back(static_cast<char>(0x80 | size));
  } else {
    const int bytes = size < 65536 ? 2 : 8;
    frame.push_back(static_cast<char>(0x80 | (bytes == 2 ? 126 : 127)));
    for (int i = bytes - 1; i >= 0; --i) frame.push_back(static_cast<char>(size >> (8 * i)));
  }
  const char mask[4] = {1, 2, 3, 4};
  frame.append(mask, 4);
  for (size_t i = 0; i < size; ++i) frame.push_back(static_cast<char>(payload[i] ^ mask[i % 4]));
  return frame;
}

constexpr char kUpgrade[] =
    "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

TEST_F(CounterTest, EchoesWebSocketFrames) {
  Client client(port_);
  ASSERT_TRUE(client.SendRaw(kUpgrade));
  const Answer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 101);
  // The example of RFC 6455, section 1.3.
  EXPECT_EQ(answer.headers.at("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  client.SendRaw(Frame(0x81, "hello"));
  EXPECT_EQ(client.ReadBytes(7), "\x81\x05hello");
  client.SendRaw(Frame(0x89, "are you there"));
  EXPECT_EQ(client.ReadBytes(15),
            "\x8a\x0d"
            "are you there");
  const std::string big(70'000, '\x7e');
  client.SendRaw(Frame(0x82, big));
  EXPECT_EQ(client.ReadBytes(10), std::string("\x82\x7f\0\0\0\0\0\x01\x11\x70", 10));
  EXPECT_EQ(client.ReadBytes(big.size()), big);
  client.SendRaw(Frame(0x01, "one ") + Frame(0x89, "") + Frame(0x80, "two"));
  EXPECT_EQ(client.ReadBytes(13), std::string("\x01\x04one \x8a\0\x80\x03two", 13));
  client.SendRaw(Frame(0x88, "\x03\xe8"));
  EXPECT_EQ(client.ReadBytes(4), "\x88\x02\x03\xe8");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(CounterTest, RefusesBrokenWebSockets) {
  EXPECT_EQ(Client(port_).Get("/ws").status, 426);
  for (const std::string& frame :
       {std::string("\x81\x05hello"), Frame(0x80, "continuation"), Frame(0x83, "opcode"),
        Frame(0xc1, "reserved bit"), Frame(0x09, "fragmented ping")}) {
    Client client(port_);
    ASSERT_TRUE(client.SendRaw(std::string(kUpgrade) + frame));
    EXPECT_EQ(client.ReadAnswer().status, 101);
    EXPECT_EQ(client.ReadBytes(4), "\x88\x02\x03\xea");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST_F(CounterTest, StopsOnSigterm) {
  child_->Signal(SIGTERM);
  EXPECT_EQ(child_->Wait(), 0);
}

TEST(CounterFlagsTest, RefusesBadFlags) {
  for (const char* flag : {"--port=70000", "--nonsense", "--host=nowhere"}) {
    Child child({COUNTER_BINARY, flag});
    EXPECT_EQ(child.Wait(), 2) << flag;
    EXPECT_NE(child.log().find("counter: "), std::string::npos);
  }
}

TEST(DigestTest, MatchesPublishedVectors) {
  const auto hex = [](const Sha256::Digest& digest) { return Hex(digest.data(), digest.size()); };
  EXPECT_EQ(hex(Sha256::Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(Sha256::Of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(Sha256::Of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const auto sha1 = Sha1("abc");
  EXPECT_EQ(Hex(sha1.data(), sha1.size()), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(Base64("foob", 4), "Zm9vYg==");
}

TEST(DigestTest, PiecesAndPortableRoundsGiveTheSame) {
  std::string data(10'000, '\0');
  KernelRandom(data.data(), data.size());
  for (size_t piece : {1, 55, 63, 64, 65, 1000}) {
    Sha256 hash;
    for (size_t i = 0; i < data.size(); i += piece) {
      hash.Update(data.data() + i, std::min(piece, data.size() - i));
    }
    EXPECT_EQ(hash.Finish(), Sha256::Of(data)) << piece;
  }
  uint32_t fast[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint32_t portable[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  Sha256::Compress(fast, bytes, 100);
  Sha256::CompressPortable(portable, bytes, 100);
  EXPECT_TRUE(std::equal(fast, fast + 8, portable));
}

}  // namespace
}  // namespace torpor::workloads
