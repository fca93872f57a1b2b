// The ways an exchange ends, and its deadlines.

#include "base/trace.h"
#include "router/listener/exchange.h"

namespace torpor::router {
namespace {

// For steps that something else ends.
constexpr Duration kNoDeadline = std::chrono::hours(24 * 365);
constexpr Duration kSocketQuiet = std::chrono::seconds(1);
constexpr Duration kLastFrameTime = std::chrono::seconds(2);
constexpr std::string_view kPausingText = "the actor is being put to sleep";

}  // namespace

Duration Exchange::FirstByteTimeout() const {
  return route_->http.first_byte_timeout.value_or(options().first_byte_timeout);
}

Duration Exchange::StreamIdleTimeout() const {
  return route_->http.stream_idle_timeout.value_or(options().stream_idle_timeout);
}

MonotonicTime Exchange::Deadline() const {
  Duration idle;
  switch (step_) {
    case Step::kSlot:
      return budget_end_;
    case Step::kDialing:
      return dial_began_ + options().door_timeout;
    case Step::kRefused:
      return retry_at_;
    case Step::kReport:
      return answer_at_ + options().report_wait;
    case Step::kSent:
      if (request_sent_) {
        Duration first = FirstByteTimeout();
        return first > Duration::zero() ? passed_on_ + first : started_ + kNoDeadline;
      }
      [[fallthrough]];
    case Step::kAnswer:
    case Step::kTunnel: {
      if (!last_frame_.empty()) return last_frame_until_;
      idle = StreamIdleTimeout();
      MonotonicTime end = idle > Duration::zero() ? last_byte_ + idle : started_ + kNoDeadline;
      return socket_ ? std::min(end, SocketDeadline()) : end;
    }
    default:
      return started_ + kNoDeadline;
  }
}

MonotonicTime Exchange::SocketDeadline() const {
  // A drain waits for answers, but nobody knows when a WebSocket is done: quiet is done.
  bool drains =
      route_->activity->phase() > 0 && route_->activity->cut_after() != MonotonicTime::max();
  if (drains) return last_data_ + kSocketQuiet;
  return route_->idle_limit > Duration::zero() ? last_data_ + route_->idle_limit
                                               : started_ + kNoDeadline;
}

void Exchange::OnDrain() {
  if (socket_) client_->ArmTimer();
}

void Exchange::OnDeadline() {
  Reply reply;
  switch (step_) {
    case Step::kSlot:
      reply.status = 503;
      reply.reason = "PARKING_FULL";
      reply.message = "the actor has its maximum of connections in use";
      reply.retry_after_ms = 2000;
      return Answer(std::move(reply));
    case Step::kDialing:
      return OnDoor(std::nullopt);
    case Step::kRefused:
      return Dial();
    case Step::kReport:
      reporting_ = Now() - answer_at_;
      step_ = Step::kSent;
      // The head is still in the buffer.
      return ReadAnswer();
    case Step::kSent:
      if (request_sent_ || actor_->write_pending()) {
        reply.status = 504;
        reply.reason = "FIRST_BYTE_TIMEOUT";
        reply.message = "the actor did not begin to answer in time";
      } else {
        reply.status = 408;
        reply.reason = "REQUEST_TIMEOUT";
        reply.message = "the rest of the request did not arrive in time";
      }
      keep_alive_ = false;
      return Answer(std::move(reply));
    case Step::kAnswer:
    case Step::kTunnel:
      if (!last_frame_.empty()) return Cut(Pausing() ? "ACTOR_PAUSING" : "idle");
      if (socket_ && Now() >= SocketDeadline()) {
        return Pausing() ? CloseSocket(1012, kPausingText) : CloseSocket(1001, "idle");
      }
      return Cut("STREAM_IDLE");
    default:
      return;
  }
}

void Exchange::OnClientGone(bool clean) {
  if (step_ == Step::kDone) return;
  if (step_ == Step::kTunnel && clean) {
    client_ended_ = true;
    return PumpRequest();
  }
  if (step_ == Step::kParked) {
    shard_->shared->lot->Leave(ticket_);
    shard_->shared->metrics.Parked(ParkResult::kClientGone, Now() - park_began_);
    parked_ += Now() - park_began_;
  }
  End(answer_started() ? answer_status_ : 0, "CLIENT_GONE");
  client_->Close();
}

void Exchange::Finish() {
  bool reusable = actor_keeps_alive_ && request_sent_ && !actor_ended_ &&
                  !actor_->write_pending() && !actor_->read_pending() && actor_->in().empty();
  bool keep = !close_client_ && request_sent_;
  auto self = shared_from_this();
  MonotonicTime now = Now();
  step_ = Step::kDone;
  client_->in().Unpin();
  shard_->shared->metrics.Added(own_);
  Log(answer_status_, {}, now);
  ReleaseActor(reusable);
  client_->Done(keep);
}

void Exchange::Answer(Reply reply) {
  // While something is being written, or part of an answer is out, there is no room for another.
  if (answer_started() || client_write_pending_) return Cut(reply.reason);
  bool body_left = !request_body_.done();
  if (!key_.actor.empty()) reply.actor = key_.ToString();
  reply.trace_id = TraceIdOf(traceparent_);
  reply.reached_actor = reached_;
  std::string timing;
  if (options().server_timing) {
    Timing times;
    times.wake = wake_;
    if (parked_ > Duration::zero()) times.park = parked_;
    timing = ServerTiming(times, {});
  }
  RenderOptions render;
  render.head_request = method_ == "HEAD";
  render.http11 = http11_;
  render.close =
      !keep_alive_ || body_left || shard_->shared->draining.load(std::memory_order_relaxed);
  render.request_id = request_id_;
  render.server_timing = timing;
  auto self = shared_from_this();
  End(reply.status, reply.reason);
  client_->Answer(reply, render);
}

void Exchange::Cut(std::string_view reason) {
  shard_->shared->metrics.CutStream(reason);
  auto self = shared_from_this();
  End(answer_started() ? answer_status_ : 0, reason);
  client_->Close();
}

Reply Exchange::PausingReply() const {
  Reply reply;
  reply.status = 503;
  reply.reason = "ACTOR_PAUSING";
  reply.message = "the actor was put to sleep before it answered";
  reply.retry_after_ms = 1000;
  return reply;
}

void Exchange::CloseSocket(uint16_t code, std::string_view reason) {
  // Bytes of the actor that nobody has seen would be lost in front of the frame.
  bool whole = down_frames_.at_boundary() && !down_frames_.closed() &&
               (client_write_pending_ || actor_->in().empty());
  if (!whole) return Cut(Pausing() ? "ACTOR_PAUSING" : "idle");
  if (client_write_pending_) {
    last_frame_ = CloseFrame(code, reason);
    last_frame_until_ = Now() + kLastFrameTime;
    return client_->ArmTimer();
  }
  EndWithFrame(CloseFrame(code, reason));
}

void Exchange::EndWithFrame(std::string frame) {
  bool idle = !Pausing();
  shard_->shared->metrics.CutStream(idle ? "idle" : "ACTOR_PAUSING");
  auto self = shared_from_this();
  End(answer_status_, idle ? "IDLE" : "ACTOR_PAUSING");
  client_->SendLast(std::move(frame));
}

void Exchange::LoseActor() {
  client_->in().Unpin();
  if (slot_held_ || activity_ != nullptr) {
    ReleaseActor(false);
  } else if (actor_ != nullptr) {
    actor_->Close();
    actor_.reset();
  }
}

void Exchange::End(int status, std::string_view reason) {
  step_ = Step::kDone;
  Log(status, reason, Now());
  LoseActor();
}

void Exchange::Log(int status, std::string_view reason, MonotonicTime now) {
  // A cut stream is counted by its own metric; here the label holds only reasons of answers.
  bool own_answer = !reason.empty() && answer_status_ == 0 && status != 0;
  shard_->shared->metrics.Request(status, own_answer ? reason : std::string_view(), wake_,
                                  now - started_);
  if (!shard_->log.on()) return;
  AccessRecord record;
  const std::string actor = key_.actor.empty() ? std::string() : key_.ToString();
  const std::string trace_id = TraceIdOf(traceparent_);
  record.client = client_->address();
  record.method = method_;
  record.path = log_path_;
  record.actor = actor;
  record.reason = reason;
  record.request_id = request_id_;
  record.trace_id = trace_id;
  record.status = status;
  record.bytes_in = request_body_.total();
  record.bytes_out = answer_body_.total();
  record.total_ms = ToMs(now - started_);
  record.park_ms = ToMs(parked_);
  if (answer_at_ != MonotonicTime{}) record.actor_ms = ToMs(answer_at_ - sent_at_);
  record.generation = reached_ ? route_->generation : 0;
  record.reused = reused_;
  record.wake = wake_;
  shard_->log.Write(record, shard_->shared->clock->WallNow());
}

}  // namespace torpor::router
