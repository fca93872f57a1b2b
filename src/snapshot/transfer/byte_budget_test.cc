#include "snapshot/transfer/byte_budget.h"

#include <random>
#include <thread>

#include "base/testing/matchers.h"

namespace torpor::snapshot {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr auto kDown = Urgency::kDownload;
constexpr auto kUp = Urgency::kUpload;

std::vector<BudgetLedger::Ticket> Tickets(const std::vector<BudgetLedger::Admitted>& admitted) {
  std::vector<BudgetLedger::Ticket> out;
  for (const auto& a : admitted) out.push_back(a.ticket);
  return out;
}

TEST(BudgetLedgerTest, Order) {
  struct Ask {
    Urgency urgency;
    int64_t minimum;
    int seconds;  // of arrival
  };
  struct Case {
    const char* what;
    int64_t total;
    std::vector<Ask> asks;                      // tickets 1, 2, ...
    std::vector<BudgetLedger::Ticket> at_once;  // admitted at first
    std::vector<BudgetLedger::Ticket> later;    // one after another, when all before gave back
  };
  const Case cases[] = {
      {"what fits enters", 10, {{kUp, 4, 0}, {kUp, 6, 0}}, {1, 2}, {}},
      {"first come, first served", 10, {{kUp, 8, 0}, {kUp, 8, 0}, {kUp, 8, 0}}, {1}, {2, 3}},
      {"a large one is not overtaken", 10, {{kUp, 8, 0}, {kUp, 9, 0}, {kUp, 1, 0}}, {1}, {2, 3}},
      {"nothing is nothing", 10, {{kUp, 10, 0}, {kUp, 0, 0}}, {1, 2}, {}},
      {"downloads first", 10, {{kUp, 10, 0}, {kUp, 10, 1}, {kDown, 10, 9}}, {1}, {3, 2}},
      {"but not for ever", 10, {{kUp, 10, 0}, {kUp, 10, 1}, {kDown, 10, 12}}, {1}, {2, 3}},
      {"what ends an upload first",
       10,
       {{kUp, 10, 0}, {kUp, 10, 1}, {Urgency::kCommit, 10, 9}},
       {1},
       {3, 2}},
      {"more than all is all", 10, {{kUp, 99, 0}, {kUp, 1, 0}}, {1}, {2}},
      {"alone also when others are there",
       10,
       {{kUp, 1, 0}, {kUp, 99, 0}, {kUp, 1, 0}},
       {1},
       {2, 3}},
  };
  for (const Case& c : cases) {
    BudgetLedger ledger(c.total, kPatience);
    std::vector<BudgetLedger::Ticket> at_once;
    std::vector<BudgetLedger::Ticket> later;
    int64_t held = 0;
    // The first comes alone; the others arrive while it holds.
    for (size_t i = 0; i < c.asks.size(); ++i) {
      const Ask& ask = c.asks[i];
      ledger.Ask(ask.urgency, ask.minimum, MonotonicTime(std::chrono::seconds(100 + ask.seconds)));
      if (i == 0 || c.at_once.size() > 1) {
        for (const auto& a : ledger.Admit()) at_once.push_back(a.ticket), held += a.amount;
      }
    }
    EXPECT_EQ(at_once, c.at_once) << c.what;
    while (ledger.waiting() > 0) {
      ledger.Give(held);
      held = 0;
      for (const auto& a : ledger.Admit()) later.push_back(a.ticket), held += a.amount;
      EXPECT_LE(ledger.reserved(), c.total) << c.what;
    }
    EXPECT_EQ(later, c.later) << c.what;
  }
}

TEST(BudgetLedgerTest, MoreOnlyWhileNobodyWaits) {
  BudgetLedger ledger(10, kPatience);
  ledger.Ask(kUp, 4, {});
  EXPECT_EQ(Tickets(ledger.Admit()), std::vector<BudgetLedger::Ticket>{1});
  EXPECT_TRUE(ledger.TryTake(4));
  EXPECT_FALSE(ledger.TryTake(3));
  ledger.Ask(kUp, 4, {});
  EXPECT_TRUE(ledger.Admit().empty());
  EXPECT_FALSE(ledger.TryTake(1));
  ledger.Withdraw(2);
  EXPECT_TRUE(ledger.TryTake(1));
  ledger.Give(9);
  EXPECT_EQ(ledger.reserved(), 0);
}

// Work that was admitted with its minimum, tries for more, gives some back and ends, in every order
// that a seed makes of it.
struct Worker {
  BudgetLedger::Ticket ticket = 0;
  int64_t minimum = 0;
  int64_t held = -1;  // -1 = waits
  int steps = 0;      // until it ends
};

TEST(BudgetLedgerTest, F9_AdmittedWorkNeverWaitsForMore) {
  for (uint64_t seed = 1; seed <= 10000; ++seed) {
    std::mt19937_64 random(seed);
    auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const int64_t total = 20 + below(40);  // one to three times the largest minimum
    BudgetLedger ledger(total, std::chrono::milliseconds(below(50)));
    std::map<BudgetLedger::Ticket, Worker> workers;
    MonotonicTime now{};
    int to_come = 20;
    int ended = 0;
    int64_t held = 0;
    for (int step = 0; to_come > 0 || !workers.empty(); ++step) {
      ASSERT_LT(step, 10000) << "seed " << seed << " makes no progress";
      now += std::chrono::milliseconds(below(3));
      if (to_come > 0 && below(3) == 0) {
        Worker worker;
        worker.minimum = below(20) == 0 ? total + 1 : 1 + below(20);
        worker.steps = 1 + static_cast<int>(below(6));
        worker.ticket = ledger.Ask(below(2) == 0 ? kUp : kDown, worker.minimum, now);
        workers.emplace(worker.ticket, worker);
        --to_come;
      }
      for (const auto& a : ledger.Admit()) {
        workers[a.ticket].held = a.amount;
        held += a.amount;
      }
      if (workers.empty()) continue;
      auto it = std::next(workers.begin(), below(static_cast<int64_t>(workers.size())));
      Worker& worker = it->second;
      if (worker.held < 0) {
        if (below(30) > 0) continue;
        ledger.Withdraw(worker.ticket);  // cancelled
        workers.erase(it);
        ++ended;
      } else if (--worker.steps > 0) {
        const int64_t more = below(8);
        if (ledger.TryTake(more)) worker.held += more, held += more;
      } else {
        ledger.Give(worker.held);
        held -= worker.held;
        workers.erase(it);
        ++ended;
      }
      ASSERT_LE(ledger.reserved(), total) << seed;
      ASSERT_EQ(ledger.reserved(), held) << seed;
    }
    ASSERT_EQ(ended, 20) << seed;
    ASSERT_EQ(ledger.reserved(), 0) << seed;
  }
}

MonotonicTime Later() { return Clock::Real()->Now() + std::chrono::minutes(1); }

TEST(ByteBudgetTest, F8_MoreThanTheWholeBudgetRunsAlone) {
  ByteBudget budget(64, Clock::Real());
  Transfer transfer(Clock::Real(), Later());
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold small, budget.Admit(kUp, 10, transfer));
  std::vector<std::string> order;
  Mutex mu;
  auto enter = [&](const char* name, int64_t bytes) {
    auto hold = budget.Admit(kUp, bytes, transfer);
    ASSERT_OK(hold);
    EXPECT_LE(budget.reserved(), 64);
    MutexLock lock(&mu);
    order.push_back(fmt::format("{} {}", name, hold->bytes()));
  };
  std::thread large([&] { enter("large", 80); });
  while (budget.waiting() < 1) std::this_thread::yield();
  std::thread next([&] { enter("next", 10); });
  while (budget.waiting() < 2) std::this_thread::yield();
  EXPECT_FALSE(small.TryGrow(1));
  small.Reset();
  large.join();
  next.join();
  EXPECT_EQ(order, (std::vector<std::string>{"large 64", "next 10"}));
  EXPECT_EQ(budget.reserved(), 0);
}

TEST(ByteBudgetTest, F11_ADownloadDoesNotWaitBehindUploads) {
  ByteBudget budget(40, Clock::Real());
  Transfer transfer(Clock::Real(), Later());
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold first, budget.Admit(kUp, 20, transfer));
  ASSERT_TRUE(first.TryGrow(20));
  std::atomic<int> uploads{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      auto hold = budget.Admit(kUp, 20, transfer);
      ASSERT_OK(hold);
      ++uploads;
    });
  }
  while (budget.waiting() < 32) std::this_thread::yield();
  std::atomic<bool> inside{false};
  std::atomic<bool> go{false};
  threads.emplace_back([&] {
    auto hold = budget.Admit(kDown, 20, transfer);
    ASSERT_OK(hold);
    EXPECT_EQ(uploads, 0);
    inside = true;
    while (!go) std::this_thread::yield();
  });
  while (budget.waiting() < 33) std::this_thread::yield();
  first.Shrink(20);  // one block ended
  while (!inside) std::this_thread::yield();
  go = true;
  first.Reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(uploads, 32);
  EXPECT_EQ(budget.reserved(), 0);
}

TEST(ByteBudgetTest, ACancelledOneLeavesTheQueue) {
  ByteBudget budget(10, Clock::Real());
  Transfer transfer(Clock::Real(), Later());
  Transfer cancelled(Clock::Real(), Later());
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold hold, budget.Admit(kUp, 5, transfer));
  std::thread gone([&] {
    EXPECT_THAT(budget.Admit(kUp, 10, cancelled).status(),
                HasReason(Code::kCancelled, "CANCELLED"));
  });
  while (budget.waiting() < 1) std::this_thread::yield();
  std::thread behind([&] { EXPECT_OK(budget.Admit(kUp, 5, transfer)); });
  while (budget.waiting() < 2) std::this_thread::yield();
  cancelled.Cancel();
  gone.join();
  behind.join();  // without `hold` giving anything back
  EXPECT_THAT(budget.Admit(kDown, 1, cancelled).status(), HasCode(Code::kCancelled));
  FakeClock clock;
  Transfer late(&clock, clock.Now());
  EXPECT_THAT(budget.Admit(kDown, 1, late).status(), HasCode(Code::kDeadlineExceeded));
}

TEST(ByteBudgetTest, ManyThreadsStayInside) {
  ByteBudget budget(100, Clock::Real(), {}, std::chrono::milliseconds(5));
  Transfer transfer(Clock::Real(), Later());
  std::atomic<int64_t> held{0};
  EXPECT_OK(RunLegs(300, 16, &transfer, [&](size_t i) -> Status {
    const auto minimum = static_cast<int64_t>(i * 7 % 120);
    ASSIGN_OR_RETURN(ByteBudget::Hold hold,
                     budget.Admit(i % 3 == 0 ? kDown : kUp, minimum, transfer));
    held += hold.bytes();
    EXPECT_LE(held, 100);
    for (int k = 0; k < 3; ++k) {
      if (!hold.TryGrow(10)) continue;
      held += 10;
      EXPECT_LE(held, 100);
    }
    std::this_thread::yield();
    held -= hold.bytes();
    return OkStatus();
  }));
  EXPECT_EQ(budget.reserved(), 0);
}

TEST(ByteBudgetTest, Metrics) {
  MetricRegistry registry;
  ByteBudget budget(10, Clock::Real(), BudgetMetrics(&registry));
  Transfer transfer(Clock::Real(), Later());
  ASSERT_OK_AND_ASSIGN(ByteBudget::Hold hold, budget.Admit(kUp, 99, transfer));
  std::string text = registry.Render();
  for (const char* line : {"torpor_mover_memory_reserved_bytes 10",
                           "torpor_mover_memory_holders{direction=\"upload\"} 1",
                           "torpor_mover_memory_waiting{direction=\"upload\"} 0",
                           "torpor_mover_memory_wait_seconds_count{direction=\"upload\"} 1",
                           "torpor_mover_memory_alone_total{direction=\"upload\"} 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  hold.Reset();
  text = registry.Render();
  EXPECT_NE(text.find("torpor_mover_memory_reserved_bytes 0"), std::string::npos);
  EXPECT_NE(text.find("torpor_mover_memory_holders{direction=\"upload\"} 0"), std::string::npos);
}

}  // namespace
}  // namespace torpor::snapshot
