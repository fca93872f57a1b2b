// The data path from a client's socket to an actor's, with a door, an actor and a control plane
// made by the test.

#include "router/listener/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "router/testing/test_bed.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(RouterTest, PassesARequestAndKeepsBothConnections) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  std::string body;
  client.Send(Get("/one?x=1"));
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("wake;desc=\"none\""));
  EXPECT_THAT(head, HasSubstr("x-request-id: "));
  EXPECT_EQ(body, "1");
  client.Send(Get("/two"));
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "2");
  // A second client gets the idle connection of the first.
  Peer other = s.Client();
  other.Send(Get("/three"));
  other.ReadAnswer(&body);
  EXPECT_EQ(body, "3");
  ASSERT_EQ(s.door.connects().size(), 1u);
  EXPECT_THAT(s.door.connects()[0],
              StartsWith(std::string("CONNECT ") + kUid + ".7.actor.torpor:80 HTTP/1.1\r\n"));
  EXPECT_EQ(s.resolver.calls(), 1);
}

TEST(RouterTest, TellsTheActorWhoAsksAndDropsWhatOnlyTheRouterMaySay) {
  std::string seen;
  TestBed s([&](Peer& peer) {
    seen = peer.ReadHead();
    peer.Send(Ok("x", "torpor-reason: FORGED\r\nConnection: keep-alive\r\nX-App: 1\r\n"));
  });
  Peer client = s.Client();
  client.Send(Get("/",
                  "ate-actor-uid: forged\r\nx-forwarded-for: 6.6.6.6\r\nTE: trailers\r\n"
                  "x_forwarded_for: 6.6.6.6\r\nX-Keep: yes\r\n"));
  std::string head = client.ReadAnswer();
  EXPECT_THAT(seen, HasSubstr("ate-target-actor: demo/a\r\n"));
  EXPECT_THAT(seen, HasSubstr("x-forwarded-for: 127.0.0.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("X-Keep: yes\r\n"));
  EXPECT_THAT(seen, HasSubstr("traceparent: 00-"));
  EXPECT_THAT(seen, Not(HasSubstr("forged")));
  EXPECT_THAT(seen, Not(HasSubstr("6.6.6.6")));
  EXPECT_THAT(seen, Not(HasSubstr("TE:")));
  EXPECT_THAT(head, HasSubstr("X-App: 1"));
  EXPECT_THAT(head, Not(HasSubstr("FORGED")));
}

TEST(RouterTest, PassesBodiesWithLengthAndChunkedBothWays) {
  TestBed s([](Peer& peer) {
    std::string head = peer.ReadHead();
    EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
    EXPECT_EQ(peer.ReadExactly(5), "hello");
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    peer.Send("4;ext=1\r\ndefg\r\n0\r\n\r\n");
    head = peer.ReadHead();
    EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
    std::string chunks = peer.ReadThrough("0\r\n\r\n");
    EXPECT_THAT(chunks, HasSubstr("wi"));
    EXPECT_THAT(chunks, HasSubstr("ki\r\n"));
    peer.Send(Ok("done"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  std::string host = "Host: " + std::string(kHost) + "\r\n";
  client.Send("POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello");
  std::string body;
  client.ReadAnswer(&body);
  std::string payload;
  for (char c : body) {
    if (c >= 'a' && c <= 'g') payload.push_back(c);
  }
  EXPECT_EQ(payload, "abcdefg");
  EXPECT_THAT(body, Not(HasSubstr("ext")));
  client.Send("POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n4\r\nwi");
  client.Send("ki\r\n0\r\n\r\n");
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "done");
  EXPECT_EQ(s.door.connects().size(), 1u);
}

TEST(RouterTest, LargeBodiesArriveWholeWithASlowReader) {
  constexpr size_t kSize = 8 << 20;
  std::string big(kSize, '\0');
  for (size_t i = 0; i < kSize; ++i) big[i] = static_cast<char>('a' + i % 23);
  TestBed s([&](Peer& peer) {
    peer.ReadHead();
    EXPECT_TRUE(peer.ReadExactly(kSize) == big);
    peer.Send(Ok(big));
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send("PUT /big HTTP/1.1\r\nHost: " + std::string(kHost) +
              "\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
  client.Send(big);
  std::string body;
  client.ReadAnswer(&body);
  EXPECT_TRUE(body == big);
}

TEST(RouterTest, FlushesEventsAtOnce) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    peer.Send("data: 1\n\n");
    // The next event is sent only when the client has seen the first: it must not be held back.
    EXPECT_EQ(peer.ReadExactly(0), "");
    char byte;
    recv(peer.fd(), &byte, 1, MSG_PEEK);
  });
  Peer client = s.Client();
  client.Send(Get("/events"));
  std::string head = client.ReadHead();
  EXPECT_THAT(head, HasSubstr("text/event-stream"));
  EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(client.ReadThrough("\n\n"), HasSubstr("data: 1"));
}

TEST(RouterTest, AnAnswerUntilTheEndBecomesChunkedAndEnds) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.0 200 OK\r\n\r\nall of it");
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(body, HasSubstr("all of it"));
  EXPECT_THAT(body, ::testing::EndsWith("0\r\n\r\n"));
}

TEST(RouterTest, SpeaksHttp10ToOldClients) {
  TestBed s([](Peer& peer) {
    EXPECT_THAT(peer.ReadHead(), HasSubstr(" HTTP/1.1\r\n"));
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send("GET / HTTP/1.0\r\nHost: " + std::string(kHost) + "\r\n\r\n");
  std::string all = client.ReadToEnd();
  EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(all, Not(HasSubstr("chunked")));
  EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\nabc"));
}

TEST(RouterTest, HeadHasNoBodyAndKeepsTheLength) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    peer.ReadHead();
    peer.Send(Ok("next"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send("HEAD / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\n\r\n");
  EXPECT_THAT(client.ReadHead(), HasSubstr("Content-Length: 1234\r\n"));
  client.Send(Get("/"));
  std::string body;
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "next");
}

TEST(RouterTest, PassesContinueWhenTheActorSaysSo) {
  TestBed s([](Peer& peer) {
    EXPECT_THAT(peer.ReadHead(), HasSubstr("Expect: 100-continue\r\n"));
    peer.Send("HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_EQ(peer.ReadExactly(4), "body");
    peer.Send(Ok("ok"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) +
              "\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.ReadHead(), StartsWith("HTTP/1.1 100 Continue\r\n"));
  client.Send("body");
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(body, "ok");
}

TEST(RouterTest, TunnelsAnUpgradeBothWays) {
  TestBed s([](Peer& peer) {
    std::string head = peer.ReadHead();
    EXPECT_THAT(head, HasSubstr("Connection: Upgrade\r\n"));
    EXPECT_THAT(head, HasSubstr("Upgrade: websocket\r\n"));
    peer.Send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Accept: x\r\n\r\nhello");
    EXPECT_EQ(peer.ReadExactly(4), "ping");
    peer.Send("pong");
    EXPECT_EQ(peer.ReadToEnd(), "bye");
    peer.Send("end");
  });
  Peer client = s.Client();
  client.Send(Get("/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
  std::string head = client.ReadHead();
  EXPECT_THAT(head, StartsWith("HTTP/1.1 101 "));
  EXPECT_THAT(head, HasSubstr("Sec-WebSocket-Accept: x"));
  EXPECT_EQ(client.ReadExactly(5), "hello");
  client.Send("ping");
  EXPECT_EQ(client.ReadExactly(4), "pong");
  client.Send("bye");
  client.ShutdownSend();
  EXPECT_EQ(client.ReadToEnd(), "end");
}

TEST(RouterTest, AnUnaskedUpgradeIsABadAnswer) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: ACTOR_BAD_RESPONSE"));
}

TEST(RouterTest, AClientThatLeavesTakesItsActorConnectionAlong) {
  std::atomic<bool> asked{false};
  std::atomic<int> left{0};
  TestBed s([&](Peer& peer) {
    std::string head = peer.ReadHead();
    if (head.find("/slow") != std::string::npos) {
      asked = true;
      // Its answer must never reach anybody.
      if (peer.WaitClosed()) ++left;
      return;
    }
    peer.Send(Ok("mine"));
    peer.ReadHead();
  });
  {
    Peer client = s.Client();
    client.Send(Get("/slow"));
    while (!asked) std::this_thread::yield();
  }
  Peer next = s.Client();
  next.Send(Get("/fast"));
  std::string body;
  next.ReadAnswer(&body);
  EXPECT_EQ(body, "mine");
  EXPECT_EQ(s.door.connects().size(), 2u);
  while (left == 0) std::this_thread::yield();
}

TEST(RouterTest, ADoorThatRefusesMakesTheRouterAskAgain) {
  TestBed s(CountingActor, TestOptions(), [](const std::string&, int number) {
    return number == 1   ? FakeDoor::No(409, "STALE_GENERATION")
           : number == 2 ? FakeDoor::No(503, "DRAINING")
                         : std::string(FakeDoor::kOpen);
  });
  Peer client = s.Client();
  client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nContent-Length: 0\r\n\r\n");
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(body, "1");
  EXPECT_EQ(s.resolver.calls(), 3);
}

TEST(RouterTest, AnUnreachableDoorEndsWithTheBudget) {
  TestBed s(CountingActor);
  s.route.door = "unix:/tmp/router-test-no-such-door";
  Peer client = s.Client();
  client.Send(Get("/", "torpor-park-timeout: 100ms\r\n"));
  std::string body;
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(head, HasSubstr("Retry-After: "));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":false"));
}

TEST(RouterTest, ANewGenerationNeverUsesAnOldConnection) {
  RouterOptions options = TestOptions();
  options.route_ttl = milliseconds(0);  // Asks every time.
  TestBed s(CountingActor, options);
  Peer client = s.Client();
  std::string body;
  client.Send(Get("/"));
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "1");
  client.Send(Get("/"));
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "2");
  s.route.generation = 8;
  client.Send(Get("/"));
  client.ReadAnswer(&body);
  EXPECT_EQ(body, "1");
  ASSERT_EQ(s.door.connects().size(), 2u);
  EXPECT_THAT(s.door.connects()[1], HasSubstr(".8.actor.torpor:80"));
}

TEST(RouterTest, AnActorThatDiesMidAnswerIsSeenByTheClient) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string all = client.ReadToEnd();
  EXPECT_THAT(all, HasSubstr("abc"));
  EXPECT_THAT(all, Not(HasSubstr("\r\n0\r\n")));
  EXPECT_THAT(s.Metrics(), HasSubstr("torpor_router_cut_streams_total{reason=\"actor_lost\"} 1"));
}

TEST(RouterTest, ALostConnectionIsNotSentAgain) {
  TestBed s([](Peer& peer) { peer.ReadHead(); });
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string body;
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_CONNECTION_LOST"));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":true"));
  EXPECT_EQ(s.door.connects().size(), 1u);
}

TEST(RouterTest, OnAReusedConnectionOnlyAnIdempotentRequestIsTriedOnceMore) {
  // Each connection serves one request and closes when the second arrives.
  auto actor = [](Peer& peer) {
    peer.ReadHead();
    peer.Send(Ok("x"));
    peer.ReadHead();
  };
  TestBed s(actor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.door.connects().size(), 2u);
  client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("ACTOR_CONNECTION_LOST"));
  EXPECT_EQ(s.door.connects().size(), 2u);
}

TEST(RouterTest, BadAnswersAreNotPassedOn) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\n b\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "SSH-2.0-x\r\n\r\n"}) {
    TestBed s([answer](Peer& peer) {
      peer.ReadHead();
      peer.Send(answer);
      peer.ReadHead();
    });
    Peer client = s.Client();
    client.Send(Get("/"));
    EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: ACTOR_BAD_RESPONSE")) << answer;
  }
}

TEST(RouterTest, I2_AnAbandonedAnswerNeverReachesTheNextCaller) {
  TestBed s([](Peer& peer) {
    while (true) {
      std::string head = peer.ReadHead();
      size_t begin = head.find(' ') + 1;
      if (begin == 0) return;
      std::string path = head.substr(begin, head.find(' ', begin) - begin);
      if (!peer.Send(Ok(path))) return;
    }
  });
  for (int round = 0; round < 200; ++round) {
    {
      Peer leaves = s.Client();
      leaves.Send(Get("/late-" + std::to_string(round)));
      // Sometimes before, sometimes after the request was passed on.
      if (round % 2 == 0) leaves.ReadExactly(1);
    }
    Peer next = s.Client();
    std::string path = "/mine-" + std::to_string(round);
    next.Send(Get(path));
    std::string body;
    EXPECT_THAT(next.ReadAnswer(&body), StartsWith("HTTP/1.1 200"));
    ASSERT_EQ(body, path);
  }
}

TEST(RouterTest, I12_APostIsExecutedAtMostOnceWhereverTheConnectionBreaks) {
  const std::string answer = Ok("done");
  // The actor reads so much of the second request, or sends so much of its answer, and is gone.
  for (bool in_request : {true, false}) {
    for (size_t at = 0; at < (in_request ? 240u : answer.size()); at += in_request ? 20 : 7) {
      std::atomic<int> arrived{0};
      TestBed s([&](Peer& peer) {
        peer.ReadHead();
        peer.Send(Ok("first"));
        if (in_request) {
          if (!peer.ReadExactly(at + 1).empty()) ++arrived;
        } else if (!peer.ReadHead().empty()) {
          ++arrived;
          peer.Send(answer.substr(0, at));
        }
      });
      Peer client = s.Client();
      client.Send(Get("/"));
      client.ReadAnswer();
      client.Send("POST /count HTTP/1.1\r\nHost: " + std::string(kHost) +
                  "\r\nContent-Length: 4\r\n\r\nbody");
      std::string head = client.ReadAnswer();
      EXPECT_LE(arrived, 1) << at;
      EXPECT_EQ(s.door.connects().size(), 1u) << "nothing was sent again";
      bool begun = !in_request && at > answer.find("\r\n\r\n") + 3;
      if (begun) {
        EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
      } else {
        EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_CONNECTION_LOST")) << at;
      }
    }
  }
}

}  // namespace
}  // namespace torpor::router
