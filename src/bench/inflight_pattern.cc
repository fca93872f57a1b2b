// Requests are open while their actors hibernate. Every one must end with an answer that explains
// itself, and none may be executed twice: the actor keeps account of the numbers it has seen.
#include <cstdio>

#include "bench/users_pattern.h"

namespace torpor::bench {
namespace {

constexpr int kClientsPerActor = 2;

// What the actor says of one client's numbers; see workloads/counter.
struct Account {
  unsigned long long executed = 0, twice = 0, skipped = 0;
};

class InflightPattern : public UsersPattern {
 public:
  using UsersPattern::UsersPattern;
  Status Run() override;

 private:
  struct Client {
    std::string actor;
    int number = 0;
    Poster poster;  // over one connection that is kept
    uint64_t sent = 0, answered = 0, seen = 0;
  };
  void Ask(Client* client, std::mt19937_64* random);
  void Serve(Client* client);
  void Check(const Client& client);
  Account AccountOf(const Client& client, Outcome* outcome);

  std::atomic<bool> over_{false};
  Mutex mu_;
  std::map<std::string, int64_t> explained_ GUARDED_BY(mu_);  // reason -> answers
  int64_t unexplained_ GUARDED_BY(mu_) = 0;
  int64_t twice_ GUARDED_BY(mu_) = 0;
  int64_t sent_ GUARDED_BY(mu_) = 0;
};

void InflightPattern::Ask(Client* client, std::mt19937_64* random) {
  std::uniform_int_distribution<int64_t> length(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(scenario_.max_request).count());
  const std::string path = fmt::format("/once?client={}&number={}&ms={}", client->number,
                                       ++client->sent, length(*random));
  Outcome outcome;
  HttpAnswer answer = PostTo(client->poster, path, "", &outcome);
  const std::string reason = ReasonOf(outcome.status);
  if (!reason.empty()) {
    // A hibernation that somebody asked for may end a request; then it says so.
    MutexLock lock(&mu_);
    ++explained_[reason];
    return;
  }
  unsigned long long executed = 0;
  if (outcome.ok() && sscanf(answer.body.c_str(), "executed %llu", &executed) != 1) {
    outcome.status = Status(Code::kInternal, "no account: " + answer.body.substr(0, 100));
  } else if (outcome.ok()) {
    ++client->answered;
    if (executed <= client->seen) {
      outcome.status = Status(Code::kDataLoss,
                              fmt::format("{} requests executed after {}", executed, client->seen));
      outcome.corrupt = true;
    }
    client->seen = executed;
  }
  if (!outcome.ok()) {
    outcome.unexplained = true;
    MutexLock lock(&mu_);
    ++unexplained_;
  }
  context_.recorder->Add("OpenRequest", outcome);
}

void InflightPattern::Serve(Client* client) {
  std::mt19937_64 random(static_cast<uint64_t>(scenario_.seed * 1000003 + client->number));
  while (!over_ && !context_.stopped()) Ask(client, &random);
}

Account InflightPattern::AccountOf(const Client& client, Outcome* outcome) {
  Account account;
  HttpAnswer answer =
      PostTo(client.poster, fmt::format("/executed?client={}", client.number), "", outcome);
  if (outcome->ok() && sscanf(answer.body.c_str(), "executed %llu twice %llu skipped %llu",
                              &account.executed, &account.twice, &account.skipped) != 3) {
    outcome->status = Status(Code::kInternal, "no account: " + answer.body.substr(0, 100));
  }
  return account;
}

void InflightPattern::Check(const Client& client) {
  Outcome outcome;
  const Account account = AccountOf(client, &outcome);
  if (outcome.ok() && account.executed < client.answered) {
    outcome.corrupt = true;
    outcome.status = Status(Code::kDataLoss, fmt::format("{} requests executed, {} answered",
                                                         account.executed, client.answered));
  }
  context_.recorder->Add("Account", outcome, true);
  MutexLock lock(&mu_);
  twice_ += static_cast<int64_t>(account.twice);
  sent_ += static_cast<int64_t>(client.sent);
}

Status InflightPattern::Run() {
  Recorder* recorder = context_.recorder;
  std::vector<Client> clients;
  for (auto& user : users_) {
    for (int i = 0; i < kClientsPerActor; ++i) {
      clients.push_back({user->actor(), static_cast<int>(clients.size()),
                         context_.world->PosterOf(user->actor()), 0, 0, 0});
    }
  }
  constexpr auto kForever = std::chrono::hours(24);
  recorder->BeginWindow(scenario_.min_hibernations > 0 ? Duration(kForever) : scenario_.duration);
  hibernations_ = 0;
  std::thread ender([&] {
    while (!context_.stopped() && !recorder->WindowOver()) {
      context_.sleep(std::chrono::milliseconds(50));
      const bool enough = hibernations_ >= scenario_.min_hibernations;
      if (enough && recorder->Elapsed() >= scenario_.duration) recorder->EndWindow();
    }
  });
  std::vector<std::thread> threads;
  for (Client& client : clients) threads.emplace_back([this, &client] { Serve(&client); });
  ForAll([](User& user) { user.Run(); });
  over_ = true;
  for (std::thread& thread : threads) thread.join();
  ender.join();
  NoteThoseWhoGaveUp();
  // An actor that was replaced took its account with it; that shows as a failure already.
  std::set<std::string> present;
  for (auto& user : users_) present.insert(user->actor());
  for (const Client& client : clients) {
    if (present.count(client.actor) != 0) Check(client);
  }
  MutexLock lock(&mu_);
  recorder->AddFigure({"hibernations", "times", static_cast<double>(hibernations_),
                       ">=", static_cast<double>(scenario_.min_hibernations)});
  recorder->AddFigure({"open requests", "times", static_cast<double>(sent_), "", 0});
  recorder->AddFigure({"unexplained answers", "times", static_cast<double>(unexplained_), "<=", 0});
  recorder->AddFigure({"requests executed twice", "times", static_cast<double>(twice_), "<=", 0});
  for (const auto& [reason, count] : explained_) {
    recorder->AddFigure(
        {"answers with reason " + reason, "times", static_cast<double>(count), "", 0});
  }
  return OkStatus();
}

}  // namespace

std::unique_ptr<Pattern> MakeInflightPattern(PatternContext context) {
  return std::make_unique<InflightPattern>(std::move(context));
}

}  // namespace torpor::bench
