// From a parsed request to a connection of its actor.

#include <algorithm>

#include <fmt/format.h>
#include "base/trace.h"

#include "router/admit/client_address.h"
#include "router/h1/rewrite.h"
#include "router/listener/doors.h"
#include "router/listener/exchange.h"
#include "router/park/retry.h"

namespace torpor::router {
namespace {

constexpr size_t kReadAhead = 64 << 10;
constexpr size_t kLogPathMax = 256;
constexpr Duration kConnectPause = std::chrono::milliseconds(100);
constexpr int kConnectTries = 10;
// How long after a wake a program may still be about to listen.
constexpr Duration kJustWoken = std::chrono::seconds(5);

bool IsIdempotent(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "PUT" ||
         method == "DELETE";
}

// Whole seconds or a duration with unit.
std::optional<Duration> ParseParkTimeout(std::string_view text) {
  bool digits = !text.empty() && text.size() <= 6 &&
                std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  StatusOr<Duration> parsed = ParseDuration(digits ? std::string(text) + "s" : std::string(text));
  if (!parsed.ok() || *parsed < Duration::zero()) return std::nullopt;
  return *parsed;
}

}  // namespace

Exchange::Exchange(Shard* shard, std::shared_ptr<ClientConnection> client)
    : shard_(shard), client_(std::move(client)), started_(shard->shared->clock->Now()) {}

void Exchange::Start(const RequestHead& head, size_t head_size) {
  last_byte_ = started_;
  ReadRequest(head);
  std::variant<Target, TargetError> resolved = ResolveTarget(head, shard_->shared->rules);
  if (auto* error = std::get_if<TargetError>(&resolved)) {
    client_->in().Consume(head_size);
    Reply reply;
    reply.status = error->status;
    reply.reason = error->reason;
    reply.message = error->message;
    // After a 400 nothing of this connection is trusted any more.
    if (error->status == 400) keep_alive_ = false;
    return Answer(std::move(reply));
  }
  Target& target = std::get<Target>(resolved);
  key_ = std::move(target.key);
  target_port_ = target.port;
  std::string_view path = target.path;
  log_path_ = path.substr(0, std::min(path.find('?'), kLogPathMax));

  const Field* trace = head.Find(FieldId::kTraceparent);
  if (trace != nullptr && IsTraceparent(trace->value)) {
    traceparent_ = trace->value;
  } else {
    traceparent_ = "00-" + shard_->random.Hex(2) + "-" + shard_->random.Hex(1) + "-01";
  }
  if (std::optional<Reply> refusal = Refusal(head)) {
    client_->in().Consume(head_size);
    return Answer(*std::move(refusal));
  }
  std::string actor = key_.ToString();
  RequestRewrite rewrite;
  rewrite.target = path;
  rewrite.actor = actor;
  rewrite.client = client_->address();
  rewrite.request_id = request_id_;
  rewrite.traceparent = traceparent_;
  rewrite.trusted_client = client_->trusted();
  WriteRequestHead(head, rewrite, &request_head_);
  SetBudget(head);
  client_->in().Consume(head_size);
  FindRoute();
}

void Exchange::ReadRequest(const RequestHead& head) {
  method_ = head.method;
  http11_ = head.http11;
  keep_alive_ = head.keep_alive;
  expect_continue_ = head.expect_continue;
  upgrade_ = head.wants_upgrade;
  request_framing_ = head.framing;
  request_length_ = head.length;
  const Field* trailer = head.Find(FieldId::kTrailer);
  request_body_.Reset(head.framing, head.length, trailer ? trailer->value : std::string_view());
  replayable_ = request_body_.done() && IsIdempotent(method_) && !upgrade_;
  const Field* id = head.Find(FieldId::kRequestId);
  request_id_ = id != nullptr && IsUsableRequestId(id->value) ? std::string(id->value)
                                                              : shard_->random.Hex(2);
}

std::optional<Reply> Exchange::Refusal(const RequestHead& head) const {
  SharedState& shared = *shard_->shared;
  auto over = [&](RateLimit* rate, std::string_view key, std::string_view of) {
    std::optional<Duration> wait = rate->Take(key, started_);
    if (wait) shared.metrics.RateLimited(of);
    return wait;
  };
  if (shared.address_rate.on()) {
    std::string_view client = client_->address();
    if (client_->trusted()) client = ClientAddress(head, client, shared.proxies);
    if (auto wait = over(&shared.address_rate, ClientKey(client), "address")) {
      return ReplyForRate("client address", options().rate_per_address, *wait);
    }
  }
  if (shared.authorizer != nullptr) {
    auto denial = shared.authorizer->Authorize(head, key_);
    if (denial) return ReplyForDenial(*denial);
  }
  // Counted last, so that nobody can use up what belongs to an atespace that is not theirs.
  if (shared.atespace_rate.on()) {
    if (auto wait = over(&shared.atespace_rate, key_.atespace, "atespace")) {
      return ReplyForRate("atespace", options().rate_per_atespace, *wait);
    }
  }
  return std::nullopt;
}

void Exchange::SetBudget(const RequestHead& head) {
  HttpSettings settings = shard_->shared->cache.LastSettings(key_);
  Duration budget = settings.park_budget.value_or(options().park_budget);
  bool chosen = settings.park_budget.has_value();
  const Field* asked = head.Find(FieldId::kParkTimeout);
  if (asked != nullptr) {
    std::optional<Duration> shorter = ParseParkTimeout(asked->value);
    chosen |= shorter.has_value();
    if (shorter) budget = std::min(budget, *shorter);
  }
  budget_end_ = started_ + budget;
  budget_end_max_ = chosen ? budget_end_ : started_ + options().park_budget_max;
}

void Exchange::FindRoute() {
  route_ = shard_->shared->cache.Find(key_, Now());
  // What drains or is gone is asked for anew: the answer comes when it runs again.
  if (route_ != nullptr && Serving()) {
    Connect();
  } else {
    Park(Duration::zero());
  }
}

void Exchange::Park(Duration pause) {
  step_ = Step::kParked;
  park_began_ = Now();
  client_->ArmTimer();
  ParkingLot::Request request;
  request.key = key_;
  request.traceparent = traceparent_;
  request.deadline = budget_end_;
  request.extend_until = budget_end_max_;
  request.bytes = request_head_.size() + (request_body_.done() ? 0 : options().park_body_bytes);
  if (pause > Duration::zero()) request.not_before = park_began_ + pause;
  // A little of the body may come in, which also shows when the client leaves.
  client_->WantRead(options().park_body_bytes);
  ticket_ = shard_->shared->lot->Park(
      std::move(request), [self = shared_from_this()](ParkOutcome outcome) {
        net::post(self->shard_->io, [self, outcome = std::move(outcome)]() mutable {
          self->OnParked(std::move(outcome));
        });
      });
}

void Exchange::OnParked(ParkOutcome outcome) {
  if (step_ != Step::kParked) return;
  ticket_ = 0;
  Duration waited = Now() - park_began_;
  parked_ += waited;
  if (outcome.kind != ParkOutcome::Kind::kRoute) {
    Metrics& metrics = shard_->shared->metrics;
    if (outcome.kind == ParkOutcome::Kind::kFull) metrics.ParkRejected(outcome.cap);
    metrics.Parked(
        outcome.kind == ParkOutcome::Kind::kBudget ? ParkResult::kBudget : ParkResult::kError,
        waited);
    return Answer(ReplyForPark(outcome));
  }
  if (outcome.role == WakeRole::kTriggered) report_ = std::move(outcome.report);
  if (outcome.role != WakeRole::kNone) {
    wake_ = outcome.role;
    shard_->shared->metrics.Parked(ParkResult::kServed, waited);
  }
  route_ = std::move(outcome.route);
  budget_end_ = std::max(budget_end_, outcome.deadline);
  Connect();
}

std::optional<Reply> Exchange::CheckAgainstRoute() const {
  Reply reply;
  if (target_port_) {
    const auto& ports = route_->ports;
    if (std::find(ports.begin(), ports.end(), *target_port_) == ports.end()) {
      reply.status = 400;
      reply.reason = "BAD_PORT";
      reply.message = fmt::format("port {} is not declared by the actor's template", *target_port_);
      return reply;
    }
  }
  int64_t max = route_->http.max_body_bytes;
  if (max > 0 && request_framing_ == Framing::kLength &&
      request_length_ > static_cast<uint64_t>(max)) {
    reply.status = 413;
    reply.reason = "BODY_TOO_LARGE";
    reply.message = fmt::format("the actor's template allows bodies of at most {} bytes", max);
    return reply;
  }
  return std::nullopt;
}

void Exchange::Connect() {
  if (std::optional<Reply> refused = CheckAgainstRoute()) return Answer(*std::move(refused));
  if (!slot_held_) {
    if (!shard_->pool.Reserve(route_->uid)) {
      step_ = Step::kSlot;
      client_->ArmTimer();
      client_->WantRead(options().park_body_bytes);
      shard_->pool.Wait(route_->uid, [weak = weak_from_this()] {
        auto self = weak.lock();
        if (!self || self->step_ != Step::kSlot) return false;
        net::post(self->shard_->io, [self] {
          if (self->step_ == Step::kSlot) self->Connect();
        });
        return true;
      });
      return;
    }
    slot_held_ = true;
  }
  // If the activation drains as far as we know, only the door can tell that it goes on.
  if (Serving()) {
    actor_ = shard_->pool.TakeIdle(*route_, target_port_.value_or(route_->http_port));
  }
  if (actor_ == nullptr) return Dial();
  actor_->Attach(shared_from_this());
  SendRequest();
}

void Exchange::Dial() {
  step_ = Step::kDialing;
  dial_began_ = Now();
  if (route_->activity != nullptr) dial_phase_ = route_->activity->phase();
  client_->ArmTimer();
  client_->WantRead(options().park_body_bytes);
  actor_ = std::make_shared<ActorConnection>(shard_->io, route_,
                                             target_port_.value_or(route_->http_port));
  actor_->Attach(shared_from_this());
  actor_->Dial(options().router_id);
}

void Exchange::OnDoor(std::optional<DoorAnswer> answer) {
  if (step_ != Step::kDialing) return;
  connecting_ += Now() - dial_began_;
  if (!answer) return OnRefused(DoorAnswer{false, "DOOR_UNREACHABLE", 0});
  if (!answer->open) return OnRefused(*answer);
  if (!Serving()) {
    // Admitted although we knew of a drain: it was called off. Else the drain began meanwhile, and
    // this connection will not live long.
    route_->activity->ServesAgain(dial_phase_);
    if (!Serving()) return OnRefused(DoorAnswer{false, "DRAINING", 0});
  }
  if (!actor_->in().empty()) {
    // Nothing was asked yet: whatever this is, it would be taken for the answer.
    Reply reply;
    reply.status = 502;
    reply.reason = "ACTOR_BAD_RESPONSE";
    reply.message = "the actor sent bytes before the request";
    return Answer(std::move(reply));
  }
  SendRequest();
}

void Exchange::OnRefused(const DoorAnswer& answer) {
  actor_->Close();
  actor_.reset();
  Reply reply;
  if (answer.reason == "NO_SUCH_PORT") {
    reply.status = 400;
    reply.reason = "BAD_PORT";
    reply.message = "the actor's sandbox does not serve this port";
    return Answer(std::move(reply));
  }
  if (answer.reason == "CONNECT_REFUSED") {
    bool just_woken = wake_ != WakeRole::kNone || Now() - route_->woke_at < kJustWoken;
    if (just_woken && ++connect_refused_ < kConnectTries) {
      step_ = Step::kRefused;
      retry_at_ = Now() + kConnectPause;
      return client_->ArmTimer();
    }
    reply.status = 502;
    reply.reason = "ACTOR_NOT_LISTENING";
    reply.message = fmt::format("nothing in the actor listens on port {}",
                                target_port_.value_or(route_->http_port));
    return Answer(std::move(reply));
  }
  // No byte was sent: the request can go wherever the actor is next.
  shard_->shared->cache.Drop(key_, route_);
  ReleaseActor(false);
  if (answer.generation > 0) shard_->pool.GenerationSeen(route_->uid, answer.generation);
  // The first refusal is news; from the second on the control plane needs a moment.
  Duration pause =
      refusals_ == 0
          ? Duration::zero()
          : std::max<Duration>(std::chrono::milliseconds(10),
                               RetryDelay(refusals_ - 1, shard_->random.Unit(), OkStatus()));
  ++refusals_;
  Park(pause);
}

void Exchange::ReleaseActor(bool reusable) {
  if (activity_ != nullptr) {
    std::shared_ptr<ActivityCell> cell = std::move(activity_);
    activity_.reset();
    bool last = cell->End(shard_->shared->clock->WallNow(), answer_counted_, socket_);
    answer_counted_ = false;
    if (!cell->serving()) shard_->shared->doors->Changed(cell);
    ActivityReporter* reporter = shard_->shared->reporter;
    if (reporter != nullptr && keep_awake_ >= Duration::zero()) {
      reporter->WishAwake(cell->uid(), cell->generation(), keep_awake_);
    }
    // An actor that asked to sleep does so once nobody else is using it.
    if (reporter != nullptr && wish_ != Wish::kNone && last) {
      reporter->WishIdle(cell->uid(), cell->generation(), wish_ == Wish::kSuspend);
    }
  }
  if (!slot_held_) return;
  slot_held_ = false;
  shard_->pool.Release(route_->uid, std::move(actor_), reusable, Now());
  actor_.reset();
}

void Exchange::SendRequest() {
  step_ = Step::kSent;
  sent_at_ = last_byte_ = Now();
  actor_->CountExchange();
  reused_ = actor_->reused();
  reached_ = true;
  head_written_ = false;
  request_sent_ = false;
  scanner_.Reset();
  if (activity_ == nullptr && route_->activity != nullptr) {
    activity_ = route_->activity;
    activity_->Begin(shard_->shared->clock->WallNow());
  }
  client_->ArmTimer();
  PumpRequest();
  if (step_ != Step::kSent) return;
  actor_->WantRead(kReadAhead);
  client_->WantRead(kReadAhead);
}

}  // namespace torpor::router
