// Pauses under load through the real router and the real door: every request gets its own answer
// or a reason, and none is executed twice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <fmt/format.h>

#include "pausing_bed.h"

namespace torpor {
namespace {

using router::Peer;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using worker::DrainOptions;

constexpr char kHostLine[] = "Host: a.demo.actors.localhost\r\n";

std::string Request(const std::string& method, const std::string& path,
                    const std::string& more = "") {
  return method + " " + path + " HTTP/1.1\r\n" + kHostLine + more + "\r\n";
}

std::string Ok(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

// A gate that the test opens; waits have a limit so that a failing test ends.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    auto deadline = std::chrono::steady_clock::now() + seconds(20);
    MutexLock lock(&mu_);
    while (!open_ && changed_.WaitUntil(&mu_, deadline)) {
    }
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ GUARDED_BY(mu_) = false;
};

TEST(PauseTest, I4_ARequestInFlightGetsItsAnswerWithinTheGraceAndTheNextOneParks) {
  Gate asked, answer;
  PausingBed s([&](Peer& peer, const std::string& head) {
    if (head.find("/slow") != std::string::npos) {
      asked.Open();
      answer.Wait();
    }
    return peer.Send(Ok("done"));
  });
  Peer warm = s.Client();
  warm.Send(Request("GET", "/warm"));
  warm.ReadAnswer();
  ASSERT_TRUE(s.WaitForControl());
  Peer slow = s.Client();
  slow.Send(Request("POST", "/slow", "Content-Length: 0\r\n"));
  asked.Wait();
  std::thread pause(
      [&] { EXPECT_TRUE(s.control().Pause({.grace = seconds(20), .grace_max = seconds(20)})); });
  // It arrives during the drain or after it: either way it waits for the wake and is answered.
  Peer next = s.Client();
  next.Send(Request("POST", "/next", "Content-Length: 0\r\n"));
  answer.Open();
  EXPECT_THAT(slow.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  pause.join();
  EXPECT_THAT(next.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.actor().executed("/slow"), 1);
  EXPECT_EQ(s.actor().executed("/next"), 1);
}

TEST(PauseTest, I4_ARequestThatOutlivesTheGraceIsToldWhy) {
  Gate asked, end;
  PausingBed s([&](Peer& peer, const std::string&) {
    asked.Open();
    end.Wait();
    return peer.Send(Ok("late"));
  });
  Peer client = s.Client();
  client.Send(Request("GET", "/slow"));
  asked.Wait();
  ASSERT_TRUE(s.WaitForControl());
  EXPECT_TRUE(s.control().Pause({.grace = milliseconds(1)}));
  std::string body;
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_PAUSING\r\n"));
  EXPECT_THAT(head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":true"));
  EXPECT_EQ(s.actor().executed("/slow"), 1) << "GET or not, it is not sent again";
  end.Open();
  EXPECT_THAT(s.Page("/metrics"),
              HasSubstr("torpor_router_drain_seconds_count{outcome=\"cut\"} 1"));
}

TEST(PauseTest, D9_ARequestInFlightCallsAnIdlePauseOff) {
  Gate asked, answer;
  PausingBed s([&](Peer& peer, const std::string& head) {
    if (head.find("/slow") != std::string::npos) {
      asked.Open();
      answer.Wait();
    }
    return peer.Send(Ok("done"));
  });
  Peer client = s.Client();
  client.Send(Request("GET", "/slow"));
  asked.Wait();
  ASSERT_TRUE(s.WaitForControl());
  EXPECT_FALSE(s.control().Pause({.why = "idle", .refuse_if_busy = true}));
  EXPECT_FALSE(s.control().Pause({.why = "pressure", .refuse_if_busy = true}));
  // Traffic goes on beside it, without a wake.
  Peer other = s.Client();
  other.Send(Request("GET", "/other"));
  EXPECT_THAT(other.ReadAnswer(), HasSubstr("wake;desc=\"none\""));
  answer.Open();
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  // Its connection is idle again, and does not hold the next one up. The router may have counted
  // the request a moment longer than its client saw.
  auto deadline = std::chrono::steady_clock::now() + seconds(20);
  bool paused = false;
  while (!paused && std::chrono::steady_clock::now() < deadline) {
    paused = s.control().Pause({.why = "idle", .refuse_if_busy = true});
  }
  EXPECT_TRUE(paused);
  client.Send(Request("GET", "/again"));
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("wake;desc=\"triggered\""));
}

TEST(PauseTest, AnAnswerThatFlowsHoldsThePauseLongerThanTheGrace) {
  Gate flowing, end;
  PausingBed s([&](Peer& peer, const std::string&) {
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    flowing.Open();
    end.Wait();
    return peer.Send("3\r\ndef\r\n0\r\n\r\n");
  });
  Peer client = s.Client();
  client.Send(Request("GET", "/stream"));
  client.ReadHead();
  client.ReadThrough("abc\r\n");
  ASSERT_TRUE(s.WaitForControl());
  std::thread pause([&] {
    EXPECT_TRUE(s.control().Pause({.grace = milliseconds(0), .grace_max = seconds(20)}));
  });
  // The grace is over when the door has heard of the stream, a few turns of the router after this.
  ASSERT_TRUE(s.WaitForStatus("\"drains\":1"));
  for (int turn = 0; turn < 30; ++turn) (void)s.Page("/statusz");
  end.Open();
  EXPECT_THAT(client.ReadThrough("0\r\n\r\n"), HasSubstr("def"));
  pause.join();
}

TEST(PauseTest, AnAnswerThatIsCutHasNoEnd) {
  Gate end;
  PausingBed s([&](Peer& peer, const std::string& head) {
    if (head.find("/until") != std::string::npos) {
      peer.Send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc");
    } else {
      peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    }
    end.Wait();
    return false;
  });
  Peer chunked = s.Client();
  chunked.Send(Request("GET", "/chunked"));
  chunked.ReadHead();
  chunked.ReadThrough("abc\r\n");
  Peer until = s.Client();
  until.Send(Request("GET", "/until"));
  until.ReadHead();
  until.ReadThrough("abc\r\n");
  ASSERT_TRUE(s.WaitForControl());
  EXPECT_TRUE(s.control().Pause({.grace = milliseconds(1), .grace_max = milliseconds(1)}));
  EXPECT_THAT(chunked.ReadToEnd(), Not(HasSubstr("0\r\n\r\n")));
  EXPECT_THAT(until.ReadToEnd(), Not(HasSubstr("0\r\n\r\n")));
  end.Open();
}

TEST(PauseTest, AWebSocketIsClosedWith1012) {
  PausingBed s([&](Peer& peer, const std::string&) {
    peer.Send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    peer.Send(std::string("\x81\x02hi", 4));
    peer.WaitClosed();
    return false;
  });
  Peer client = s.Client();
  client.Send(Request("GET", "/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
  EXPECT_THAT(client.ReadHead(), StartsWith("HTTP/1.1 101"));
  EXPECT_EQ(client.ReadExactly(4), std::string("\x81\x02hi", 4));
  ASSERT_TRUE(s.WaitForControl());
  EXPECT_FALSE(s.control().Pause({.why = "idle", .refuse_if_busy = true})) << "it is open";
  EXPECT_TRUE(s.control().Pause({.grace = seconds(20)})) << "quiet sockets do not hold it up";
  std::string end = client.ReadToEnd();
  EXPECT_EQ(end.substr(0, 1), "\x88");
  EXPECT_EQ(end.substr(2, 2), "\x03\xf4");
}

// ---- Many pauses ----

struct Outcome {
  std::string path;
  int status = 0;  // 0: the connection ended in the middle of an answer.
  bool reached = true;
};

// One client's requests, one after another on a connection that it keeps while it can.
class Load {
 public:
  Load(PausingBed* bed, int number, uint32_t seed) : bed_(bed), number_(number), random_(seed) {}

  void Run(const std::atomic<bool>* stop) {
    std::optional<Peer> peer;
    for (int n = 0; !*stop; ++n) {
      if (!peer) peer.emplace(bed_->Client());
      Outcome outcome;
      outcome.path = fmt::format("/{}/{}-{}", number_, n, random_() % 6);
      bool keep = One(*peer, &outcome);
      outcomes_.push_back(outcome);
      if (!keep) peer.reset();
    }
  }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  bool One(Peer& peer, Outcome* outcome) {
    switch (random_() % 3) {
      case 0:
        peer.Send(Request("GET", outcome->path));
        break;
      case 1:
        peer.Send(Request("POST", outcome->path, "Content-Length: 4\r\n") + "body");
        break;
      default:
        peer.Send(Request("PUT", outcome->path, "Content-Length: 0\r\n"));
    }
    std::string body;
    std::string head = peer.ReadAnswer(&body);
    if (head.size() < 12) {
      ADD_FAILURE() << "no answer to " << outcome->path;
      return false;
    }
    outcome->status = atoi(head.c_str() + 9);
    if (outcome->status == 200) {
      bool chunked = head.find("chunked") != std::string::npos;
      if (chunked && body.find("\r\n0\r\n\r\n") == std::string::npos) {
        outcome->status = 0;
        return false;
      }
      EXPECT_THAT(body, HasSubstr(outcome->path)) << "somebody else's answer";
      return head.find("Connection: close") == std::string::npos;
    }
    EXPECT_EQ(outcome->status, 503) << head << body;
    EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_PAUSING")) << body;
    EXPECT_THAT(head, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(body, HasSubstr("\"reached_actor\":"));
    outcome->reached = body.find("\"reached_actor\":true") != std::string::npos;
    return head.find("Connection: close") == std::string::npos;
  }

  PausingBed* const bed_;
  const int number_;
  std::mt19937 random_;
  std::vector<Outcome> outcomes_;
};

// The last digit of the path says how: at once, after a moment, in two pieces.
bool ServeLoad(Peer& peer, const std::string& head) {
  size_t begin = head.find(' ') + 1;
  std::string path = head.substr(begin, head.find(' ', begin) - begin);
  if (head.find("Content-Length: 4") != std::string::npos && peer.ReadExactly(4) != "body") {
    return false;
  }
  int kind = path.back() - '0';
  if (kind < 3) return peer.Send(Ok(path));
  if (kind < 5) {
    std::this_thread::sleep_for(milliseconds(kind));
    return peer.Send(Ok(path));
  }
  peer.Send(fmt::format("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n",
                        path.size(), path));
  std::this_thread::sleep_for(milliseconds(3));
  return peer.Send("0\r\n\r\n");
}

DrainOptions RandomPause(std::mt19937* random) {
  switch ((*random)() % 5) {
    case 0:
      return {.why = "idle", .refuse_if_busy = true};
    case 1:
      return {.why = "pressure", .refuse_if_busy = true};
    case 2:
      return {.why = "api", .grace = milliseconds(0)};
    case 3:
      return {.why = "api", .grace = milliseconds(2), .grace_max = milliseconds(20)};
    default:
      return {.why = "drain", .grace = seconds(2), .grace_max = seconds(20)};
  }
}

TEST(PauseTest, I3_I12_ManyPausesUnderLoadExplainEverythingAndExecuteNothingTwice) {
  constexpr int kPauses = 300;
  constexpr int kClients = 6;
  PausingBed s(ServeLoad);
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Load>> loads;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    loads.push_back(std::make_unique<Load>(&s, i, 100u + static_cast<uint32_t>(i)));
    threads.emplace_back([load = loads.back().get(), &stop] { load->Run(&stop); });
  }
  std::mt19937 random(1);
  int paused = 0;
  int called_off = 0;
  for (int i = 0; i < kPauses; ++i) {
    std::this_thread::sleep_for(milliseconds(random() % 8));
    ++(s.control().Pause(RandomPause(&random)) ? paused : called_off);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  int served = 0;
  int told = 0;
  int cut = 0;
  for (const auto& load : loads) {
    for (const Outcome& outcome : load->outcomes()) {
      int executed = s.actor().executed(outcome.path);
      ++(outcome.status == 200 ? served : outcome.status == 503 ? told : cut);
      EXPECT_LE(executed, 1) << outcome.path;
      EXPECT_TRUE(outcome.status == 503 || executed == 1) << outcome.path;
      EXPECT_TRUE(outcome.reached || executed == 0) << outcome.path;
    }
  }
  fmt::print("{} paused, {} called off; {} served, {} told why, {} cut\n", paused, called_off,
             served, told, cut);
  EXPECT_GT(paused, 0);
  EXPECT_GT(served, 0);
}

}  // namespace
}  // namespace torpor
