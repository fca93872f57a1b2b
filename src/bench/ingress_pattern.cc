// Open-loop load on the router: the highest rate within an objective, and what a request costs the
// router and the door against nginx as a plain proxy.
#include "bench/http_client.h"
#include "bench/machine.h"
#include "bench/nginx.h"
#include "bench/open_loop.h"
#include "bench/pattern.h"

namespace torpor::bench {
namespace {

using std::chrono::seconds;

constexpr int64_t kConnections = 32;
constexpr double kFirstRate = 250;
constexpr auto kProbe = seconds(4);
constexpr auto kSaturation = seconds(6);

struct Cost {
  LoadResult load;
  double router_us = 0, door_us = 0, nginx_us = 0;  // processor time per request
};

class IngressPattern : public Pattern {
 public:
  explicit IngressPattern(PatternContext context)
      : context_(std::move(context)), scenario_(context_.world->scenario) {}

  Status SetUp(const WhileRunning& running) override {
    ASSIGN_OR_RETURN(actors_, StartActors(context_, scenario_.total_actors));
    if (actors_.empty()) return Error(Code::kInvalidArgument, "FIELD_INVALID", "no actors");
    if (running != nullptr && scenario_.sandbox_class == "gvisor") running(actors_[0].second);
    if (!scenario_.nginx) return OkStatus();
    ASSIGN_OR_RETURN(nginx_, Nginx::Start(context_.world->stack->dir() + "/nginx"));
    return OkStatus();
  }
  Status Run() override;

 private:
  Cost Load(const LoadPlan& plan, bool through_nginx);
  void Compare(const std::string& what, const Cost& router, const Cost& nginx, bool bounded);

  const PatternContext context_;
  const Scenario& scenario_;
  std::vector<std::pair<std::string, ActorView>> actors_;
  std::unique_ptr<Nginx> nginx_;
};

Cost IngressPattern::Load(const LoadPlan& plan, bool through_nginx) {
  const World& world = *context_.world;
  const std::string address = through_nginx ? nginx_->address() : world.stack->router_address();
  std::vector<std::unique_ptr<HttpConnection>> connections;
  for (int64_t i = 0; i < plan.connections; ++i) {
    connections.push_back(std::make_unique<HttpConnection>(DialTcp(address)));
  }
  auto send = [&](int64_t connection, int64_t number) {
    const std::string& actor = actors_[static_cast<size_t>(number) % actors_.size()].first;
    Outcome outcome;
    PostTo(
        [&](const std::string& path, const std::string& body) {
          return connections[static_cast<size_t>(connection)]->Exchange(
              {"POST", path, world.HostOf(actor), "application/x-protobuf", body},
              Clock::Real()->Now() + scenario_.actor_deadline);
        },
        "/ping", "", &outcome);
    return outcome;
  };
  std::map<std::string, pid_t> roles = world.stack->RolePids();
  // Guests of the fake class are threads of the worker; their time is not the door's.
  auto door = [&] { return CpuNs(roles["worker"], runtime::kFakeGuestThread); };
  const int64_t router_before = CpuNs(roles["router"]), door_before = door();
  const int64_t nginx_before = nginx_ == nullptr ? 0 : CpuNs(nginx_->pid());
  Cost cost;
  cost.load = RunLoad(plan, send, context_.stopped);
  const double requests = static_cast<double>(std::max<int64_t>(1, cost.load.sent));
  auto per_request = [&](int64_t ns) { return static_cast<double>(ns) / 1000 / requests; };
  cost.router_us = per_request(CpuNs(roles["router"]) - router_before);
  cost.door_us = per_request(door() - door_before);
  if (nginx_ != nullptr) cost.nginx_us = per_request(CpuNs(nginx_->pid()) - nginx_before);
  return cost;
}

void IngressPattern::Compare(const std::string& what, const Cost& router, const Cost& nginx,
                             bool bounded) {
  auto add = [&](const std::string& name, double value, const std::string& unit,
                 const std::string& relation = "", double bound = 0) {
    context_.recorder->AddFigure({what + ": " + name, unit, value, bounded ? relation : "", bound});
  };
  auto rate = [](const Cost& cost) {
    return static_cast<double>(cost.load.ms.size()) / std::max(cost.load.seconds, 1e-3);
  };
  add("answers through the router", rate(router), "/s");
  add("router, processor time of a request", router.router_us, "us");
  add("door, processor time of a request", router.door_us, "us");
  if (nginx_ == nullptr || nginx.nginx_us <= 0) return;
  add("answers through nginx", rate(nginx), "/s");
  add("nginx, processor time of a request", nginx.nginx_us, "us");
  // What one thread that does nothing else could serve.
  add("requests/s of one router thread against one nginx process",
      nginx.nginx_us / router.router_us, "x", ">=", 0.7);
  add("router and door against nginx, processor time",
      (router.router_us + router.door_us) / nginx.nginx_us, "x", "<=", 2.2);
}

Status IngressPattern::Run() {
  Recorder* recorder = context_.recorder;
  const Objective objective{ToMs(scenario_.slo), 0.999, 0.9};
  double rate = static_cast<double>(scenario_.rate);
  if (scenario_.rate == 0) {
    rate = SearchRate(kFirstRate, [&](double candidate) {
      const LoadResult load = Load({candidate, kProbe, kConnections}, false).load;
      const bool met = !context_.stopped() && Meets(load, objective);
      context_.say(fmt::format("{:.0f}/s: p95 {} ms, {} of {} sent, {} failed: {}", candidate,
                               FormatMs(Summarize(load.ms).p95), load.sent, load.due, load.failed,
                               met ? "within" : "beyond"));
      return met;
    });
    if (rate == 0) {
      return Status(Code::kFailedPrecondition,
                    fmt::format("not even {} requests/s are within the objective", kFirstRate));
    }
    recorder->AddFigure({"highest rate within the objective", "/s", rate, "", 0});
  }
  recorder->BeginWindow(scenario_.duration);
  const Cost router = Load({rate, scenario_.duration, kConnections}, false);
  recorder->EndWindow();
  recorder->AddAll("RouterPing", router.load.ms, router.load.failed, router.load.unexplained,
                   router.load.first_failure);
  recorder->SetDriverLate(static_cast<double>(router.load.late) /
                          static_cast<double>(std::max<int64_t>(1, router.load.sent)));
  Cost nginx;
  if (nginx_ != nullptr) nginx = Load({rate, scenario_.duration, kConnections}, true);
  Compare("at that rate", router, nginx, false);
  // At full load both proxies find several requests at each look, as they would on a busy machine.
  const LoadPlan full{0, kSaturation, kConnections};
  const Cost router_full = Load(full, false);
  if (nginx_ != nullptr) nginx = Load(full, true);
  Compare("at full load", router_full, nginx, true);
  return OkStatus();
}

}  // namespace

std::unique_ptr<Pattern> MakeIngressPattern(PatternContext context) {
  return std::make_unique<IngressPattern>(std::move(context));
}

}  // namespace torpor::bench
