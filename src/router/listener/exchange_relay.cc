// Moving the bytes of a request and its answer.

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "router/h1/rewrite.h"
#include "router/listener/doors.h"
#include "router/listener/exchange.h"

namespace torpor::router {
namespace {

constexpr size_t kRelayBytes = 64 << 10;  // Per direction.
constexpr int kInterimsMax = 32;

// Whole seconds up to a day; below 0: not a wish.
Duration ParseKeepAwake(std::string_view text) {
  int64_t seconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return Duration(-1);
  return std::chrono::seconds(std::min<int64_t>(seconds, 86'400));
}

net::const_buffer BufferOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

Reply BadAnswer(std::string message) {
  Reply reply;
  reply.status = 502;
  reply.reason = "ACTOR_BAD_RESPONSE";
  reply.message = std::move(message);
  return reply;
}

}  // namespace

void Exchange::OnClientBytes() {
  last_byte_ = Now();
  switch (step_) {
    case Step::kSent:
    case Step::kReport:
    case Step::kAnswer:
    case Step::kTunnel:
      if (!request_body_.done()) return PumpRequest();
      // The next request came early. It waits in the buffer.
      return client_->WantRead(kRelayBytes);
    case Step::kDone:
      return;
    default:
      return client_->WantRead(options().park_body_bytes);
  }
}

void Exchange::PumpRequest() {
  if (actor_->write_pending() || actor_write_failed_ || request_sent_) return;
  ReadBuffer& in = client_->in();
  BodyReader::Piece piece;
  bool tunnel = step_ == Step::kTunnel;
  if (!request_body_.done() && !in.empty()) piece = request_body_.Take(in.data(), in.size());
  if (piece.rule != Rule::kNone) {
    shard_->shared->metrics.BadRequest(piece.rule);
    if (answer_started()) return Cut("bad_request_body");
    keep_alive_ = false;
    Reply reply = ReplyForRule(piece.rule);
    return Answer(std::move(reply));
  }
  int64_t max = route_->http.max_body_bytes;
  if (max > 0 && !tunnel && request_body_.total() > static_cast<uint64_t>(max)) {
    if (answer_started()) return Cut("BODY_TOO_LARGE");
    keep_alive_ = false;
    Reply reply;
    reply.status = 413;
    reply.reason = "BODY_TOO_LARGE";
    reply.message = fmt::format("the actor's template allows bodies of at most {} bytes", max);
    return Answer(std::move(reply));
  }
  Framing framing = tunnel ? Framing::kUntilClose : request_framing_;
  bool ends = piece.done && !tunnel;
  FramePiece(framing, piece.size, ends, request_body_.trailers(), &request_scratch_,
             &request_piece_);
  std::string_view head = head_written_ ? std::string_view() : std::string_view(request_head_);
  std::string_view chunk_head(request_piece_.head, request_piece_.head_size);
  if (head.empty() && piece.size == 0 && request_piece_.tail.empty()) {
    in.Consume(piece.consumed);
    if (!client_ended_) return client_->WantRead(kRelayBytes);
    if (up_closed_) return;
    up_closed_ = true;
    actor_->ShutdownSend();
    return OnTunnelSideEnded();
  }
  if (socket_) WatchFrames(&up_frames_, piece.data, piece.size);
  head_written_ = true;
  request_consumed_ = piece.consumed;
  in.Pin();
  actor_->Write({BufferOf(head), BufferOf(chunk_head), net::const_buffer(piece.data, piece.size),
                 BufferOf(request_piece_.tail)});
}

void Exchange::OnActorWritten(bool ok) {
  client_->in().Unpin();
  client_->in().Consume(request_consumed_);
  request_consumed_ = 0;
  // The actor may have answered before it closed; reading will tell.
  if (!ok) {
    actor_write_failed_ = true;
    return;
  }
  last_byte_ = Now();
  if (request_body_.done() && step_ != Step::kTunnel) {
    request_sent_ = true;
    passed_on_ = last_byte_;
    if (step_ == Step::kSent) client_->ArmTimer();
    return client_->WantRead(kRelayBytes);
  }
  PumpRequest();
}

void Exchange::WatchFrames(FrameWatcher* frames, const char* data, size_t size) {
  if (size == 0 || !frames->Pass(data, size)) return;
  last_data_ = last_byte_;
  if (activity_ != nullptr) activity_->Touch(shard_->shared->clock->WallNow());
}

void Exchange::OnActorBytes() {
  last_byte_ = Now();
  // On a WebSocket only data counts, and that is seen when the frames are.
  if (activity_ != nullptr && !socket_) activity_->Touch(shard_->shared->clock->WallNow());
  if (step_ == Step::kSent) return ReadAnswer();
  if (answer_started()) PumpAnswer();
}

void Exchange::ReadAnswer() {
  while (!interim_pending_) {
    std::string_view bytes = actor_->in().view();
    switch (scanner_.Scan(bytes)) {
      case HeadScanner::State::kBad:
        return Answer(BadAnswer("the actor's answer is not HTTP/1.1"));
      case HeadScanner::State::kMore:
        if (bytes.size() > kResponseLimits.head_bytes) {
          return Answer(BadAnswer("the head of the actor's answer is too large"));
        }
        return actor_->WantRead(kResponseLimits.head_bytes + 1);
      case HeadScanner::State::kComplete:
        break;
    }
    size_t size = scanner_.size();
    ResponseHead& head = shard_->response_head;
    Rule rule = ParseResponseHead(bytes.substr(0, size), kResponseLimits, method_ == "HEAD", &head);
    if (rule != Rule::kNone) {
      return Answer(
          BadAnswer(fmt::format("the actor's answer breaks HTTP/1.1 (rule {})", RuleName(rule))));
    }
    if (head.status == 101 && upgrade_) return StartTunnel(head, size);
    if (head.status == 101) return Answer(BadAnswer("the actor changed the protocol unasked"));
    if (head.status >= 200) {
      if (WaitForReport()) return;
      return SendAnswerHead(head, size);
    }
    scanner_.Reset();
    if (!OnInterim(head, size)) return;
  }
}

bool Exchange::OnInterim(const ResponseHead& head, size_t head_size) {
  if (++interims_ > kInterimsMax) {
    Answer(BadAnswer("the actor sends interim answers without end"));
    return false;
  }
  bool wanted = http11_ && (head.status != 100 || expect_continue_);
  if (wanted) {
    WriteInterimHead(head, &answer_head_);
    interim_pending_ = client_write_pending_ = true;
    client_->Write({net::buffer(answer_head_), {}, {}, {}});
  }
  actor_->in().Consume(head_size);
  return true;
}

bool Exchange::WaitForReport() {
  if (answer_at_ == MonotonicTime{}) answer_at_ = Now();
  if (!options().server_timing || report_ == nullptr || report_waited_ || report_->ready()) {
    return false;
  }
  step_ = Step::kReport;
  report_waited_ = true;
  scanner_.Reset();  // the head is read once more when the report is there
  client_->ArmTimer();
  report_->WhenReady([self = shared_from_this()] {
    net::post(self->shard_->io, [self] {
      if (self->step_ == Step::kReport) self->OnDeadline();
    });
  });
  return true;
}

std::string Exchange::TimingField() {
  MonotonicTime now = Now();
  own_ = (sent_at_ - started_ - parked_ - connecting_) + (now - answer_at_ - reporting_);
  if (!options().server_timing) return {};
  Timing timing;
  timing.wake = wake_;
  if (parked_ > Duration::zero()) timing.park = parked_;
  if (!reused_) timing.connect = connecting_;
  timing.actor = answer_at_ - sent_at_;
  timing.router = own_;
  return ServerTiming(timing, report_ ? report_->phases() : std::vector<torpor::v1::Phase>());
}

void Exchange::SendAnswerHead(const ResponseHead& head, size_t head_size) {
  ResponseRewrite rewrite;
  rewrite.client_http11 = http11_;
  rewrite.request_id = request_id_;
  rewrite.framing = head.framing;
  bool open_ended = head.framing == Framing::kChunked || head.framing == Framing::kUntilClose;
  if (open_ended) rewrite.framing = http11_ ? Framing::kChunked : Framing::kUntilClose;
  close_client_ = !keep_alive_ || rewrite.framing == Framing::kUntilClose ||
                  !request_body_.done() || shard_->shared->draining.load(std::memory_order_relaxed);
  rewrite.close = close_client_;
  const Field* wish = head.Find(FieldId::kHibernate);
  if (wish != nullptr && wish->value == "pause") wish_ = Wish::kPause;
  if (wish != nullptr && wish->value == "suspend") wish_ = Wish::kSuspend;
  const Field* awake = head.Find(FieldId::kKeepAwake);
  if (awake != nullptr) keep_awake_ = ParseKeepAwake(awake->value);
  const Field* trailer = head.Find(FieldId::kTrailer);
  answer_body_.Reset(head.framing, head.length, trailer ? trailer->value : std::string_view());
  answer_framing_ = rewrite.framing;
  answer_status_ = head.status;
  actor_keeps_alive_ = head.keep_alive && head.http11;
  std::string timing = TimingField();
  rewrite.server_timing = timing;
  WriteResponseHead(head, rewrite, &answer_head_);
  actor_->in().Consume(head_size);
  CountAnswer();
  step_ = Step::kAnswer;
  client_->ArmTimer();
  PumpAnswer();
}

void Exchange::CountAnswer() {
  if (activity_ == nullptr || answer_counted_) return;
  answer_counted_ = true;
  activity_->AnswerBegan();
  if (!activity_->serving()) shard_->shared->doors->Changed(activity_);
}

void Exchange::StartTunnel(const ResponseHead& head, size_t head_size) {
  answer_at_ = Now();
  ResponseRewrite rewrite;
  rewrite.request_id = request_id_;
  rewrite.upgrade = true;
  std::string timing = TimingField();
  rewrite.server_timing = timing;
  WriteResponseHead(head, rewrite, &answer_head_);
  actor_->in().Consume(head_size);
  answer_status_ = 101;
  close_client_ = true;
  answer_body_.Reset(Framing::kUntilClose, 0);
  answer_framing_ = Framing::kUntilClose;
  request_body_.Reset(Framing::kUntilClose, 0);
  request_sent_ = false;
  CountAnswer();
  const Field* upgrade = head.Find(FieldId::kUpgrade);
  if (upgrade != nullptr && EqualsIgnoreCase(upgrade->value, "websocket")) {
    socket_ = activity_ != nullptr;
    last_data_ = answer_at_;
    if (socket_) activity_->BecameSocket();
  }
  step_ = Step::kTunnel;
  client_->ArmTimer();
  PumpAnswer();
  if (step_ == Step::kTunnel) PumpRequest();
}

void Exchange::PumpAnswer() {
  if (client_write_pending_) return;
  ReadBuffer& in = actor_->in();
  BodyReader::Piece piece;
  piece.done = answer_body_.done();
  if (!answer_body_.done() && !in.empty()) piece = answer_body_.Take(in.data(), in.size());
  if (piece.rule != Rule::kNone) return Cut("actor_bad_body");
  bool until_close = answer_body_.framing() == Framing::kUntilClose;
  if (until_close) piece.done = actor_ended_;
  // The end was framed already if nothing is left to say and the head is out.
  bool ends = piece.done && step_ != Step::kTunnel && answer_framing_ != Framing::kNone;
  FramePiece(answer_framing_, piece.size, ends, answer_body_.trailers(), &answer_scratch_,
             &answer_piece_);
  std::string_view head = answer_head_;
  std::string_view chunk_head(answer_piece_.head, answer_piece_.head_size);
  if (head.empty() && piece.size == 0 && answer_piece_.tail.empty()) {
    in.Consume(piece.consumed);
    if (!piece.done) return actor_->WantRead(kRelayBytes);
    if (step_ != Step::kTunnel) return Finish();
    if (!down_closed_) {
      down_closed_ = true;
      client_->ShutdownSend();
      OnTunnelSideEnded();
    }
    return;
  }
  if (socket_) WatchFrames(&down_frames_, piece.data, piece.size);
  answer_consumed_ = piece.consumed;
  in.Pin();
  client_write_pending_ = true;
  client_->Write({BufferOf(head), BufferOf(chunk_head), net::const_buffer(piece.data, piece.size),
                  BufferOf(answer_piece_.tail)});
}

void Exchange::OnClientWritten(bool ok) {
  client_write_pending_ = false;
  if (step_ == Step::kDone) return;
  if (!ok) return OnClientGone(false);
  last_byte_ = Now();
  if (interim_pending_) {
    interim_pending_ = false;
    answer_head_.clear();
    if (step_ == Step::kSent) return ReadAnswer();
    return;
  }
  answer_head_.clear();
  if (!last_frame_.empty()) {
    std::string frame = std::move(last_frame_);
    return EndWithFrame(std::move(frame));
  }
  actor_->in().Unpin();
  actor_->in().Consume(answer_consumed_);
  answer_consumed_ = 0;
  bool ended =
      answer_body_.done() ||
      (actor_ended_ && answer_body_.framing() == Framing::kUntilClose && actor_->in().empty());
  if (ended && step_ == Step::kAnswer) return Finish();
  PumpAnswer();
}

void Exchange::OnTunnelSideEnded() {
  if (up_closed_ && down_closed_) Finish();
}

void Exchange::OnActorEnd(bool clean) {
  actor_ended_ = true;
  if (route_ != nullptr && Pausing()) route_->activity->set_was_cut(true);
  switch (step_) {
    case Step::kSent: {
      // Closed by the door for a pause. It may have reached the actor, so it is not sent again.
      if (Pausing()) return Answer(PausingReply());
      if (actor_->in().empty() && interims_ == 0 && reused_ && replayable_ && !replayed_) {
        // It was closed while it lay idle; an idempotent request may be sent once more.
        replayed_ = true;
        actor_ended_ = actor_write_failed_ = false;
        actor_->Close();
        client_->in().Unpin();
        return Dial();
      }
      Reply reply;
      reply.status = 502;
      reply.reason = "ACTOR_CONNECTION_LOST";
      reply.message = "the connection to the actor ended before its answer";
      return Answer(std::move(reply));
    }
    case Step::kAnswer:
    case Step::kTunnel: {
      // The door ends connections like the actor does, so during a drain the end of an answer
      // without a length is believed only while the door closes nothing.
      bool by_door = Pausing() && Now() >= route_->activity->cut_after();
      bool may_end = answer_body_.framing() == Framing::kUntilClose && clean && !by_door;
      if (may_end) return PumpAnswer();
      if (socket_ && Pausing()) return CloseSocket(1012, "the actor was put to sleep");
      return Cut(Pausing() ? "ACTOR_PAUSING" : "actor_lost");
    }
    default:
      return;
  }
}

}  // namespace torpor::router
