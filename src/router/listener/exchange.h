#pragma once
// One request: finding its actor, waiting for it, and passing bytes both ways. Internal to
// listener/; belongs to one thread.
//
// exchange_dispatch.cc brings the request to a connection of the actor, exchange_relay.cc moves the
// bytes, exchange_end.cc ends it in one of three ways: Finish (the answer was passed on), Answer
// (the router answers itself), Cut (an answer under way cannot go on, or the client left).

#include <memory>
#include <string>

#include "router/answer/reply.h"
#include "router/answer/server_timing.h"
#include "router/h1/body.h"
#include "router/h1/websocket.h"
#include "router/idle/activity.h"
#include "router/listener/client_connection.h"
#include "router/listener/shard.h"
#include "router/upstream/actor_connection.h"

namespace torpor::router {

class Exchange : public ActorConnection::User, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Shard* shard, std::shared_ptr<ClientConnection> client);

  // `head` lies in the first `head_size` bytes of the client's buffer, which are consumed.
  void Start(const RequestHead& head, size_t head_size);

  void OnClientBytes();
  void OnClientGone(bool clean);
  void OnClientWritten(bool ok);
  MonotonicTime Deadline() const;
  void OnDeadline();

  // Whether it is one of the requests in flight of this activation.
  bool Counts(const ActivityCell* cell) const { return activity_.get() == cell; }
  MonotonicTime started() const { return started_; }
  // Its activation drains.
  void OnDrain();

 private:
  enum class Step {
    kParked,   // In the parking lot.
    kSlot,     // The actor has its maximum of connections.
    kDialing,  // Waiting for the door.
    kRefused,  // The actor does not listen yet; a new try follows.
    kSent,     // The head was passed on, no answer yet.
    kReport,   // The answer's head is there, the phases of the wake are not.
    kAnswer,   // The answer is being passed on.
    kTunnel,
    kDone,
  };

  void OnDoor(std::optional<DoorAnswer> answer) override;
  void OnActorBytes() override;
  void OnActorEnd(bool clean) override;
  void OnActorWritten(bool ok) override;

  // Dispatch.
  void ReadRequest(const RequestHead& head);
  // Whether the request may go on to its actor, or the answer instead.
  std::optional<Reply> Refusal(const RequestHead& head) const;
  void SetBudget(const RequestHead& head);
  void FindRoute();
  void Park(Duration pause);
  void OnParked(ParkOutcome outcome);
  void Connect();
  std::optional<Reply> CheckAgainstRoute() const;
  void Dial();
  void OnRefused(const DoorAnswer& answer);
  void SendRequest();
  void ReleaseActor(bool reusable);

  // Relay.
  void PumpRequest();
  void ReadAnswer();
  bool OnInterim(const ResponseHead& head, size_t head_size);
  bool WaitForReport();
  void SendAnswerHead(const ResponseHead& head, size_t head_size);
  void StartTunnel(const ResponseHead& head, size_t head_size);
  void PumpAnswer();
  void OnTunnelSideEnded();
  void WatchFrames(FrameWatcher* frames, const char* data, size_t size);
  std::string TimingField();

  // End.
  void Finish();
  void Answer(Reply reply);
  void Cut(std::string_view reason);
  // Ends a WebSocket with a close frame, if one can be put in.
  void CloseSocket(uint16_t code, std::string_view reason);
  void EndWithFrame(std::string frame);
  Reply PausingReply() const;
  void LoseActor();
  void End(int status, std::string_view reason);
  void Log(int status, std::string_view reason, MonotonicTime now);

  MonotonicTime Now() const { return shard_->shared->clock->Now(); }
  const RouterOptions& options() const { return shard_->shared->options; }
  Duration FirstByteTimeout() const;
  Duration StreamIdleTimeout() const;
  MonotonicTime SocketDeadline() const;
  // False: its door said that the activation drains or is gone.
  bool Serving() const { return route_->activity == nullptr || route_->activity->serving(); }
  // Its connections end because it is put to sleep, or was.
  bool Pausing() const { return route_->activity != nullptr && route_->activity->pausing(); }
  void CountAnswer();
  bool answer_started() const { return step_ == Step::kAnswer || step_ == Step::kTunnel; }

  Shard* const shard_;
  const std::shared_ptr<ClientConnection> client_;
  Step step_ = Step::kParked;

  // The request.
  ActorKey key_;
  std::optional<int> target_port_;
  std::string method_;
  std::string log_path_;
  std::string request_id_;
  std::string traceparent_;   // Empty until the request was read.
  std::string request_head_;  // As written to the actor.
  Framing request_framing_ = Framing::kNone;
  uint64_t request_length_ = 0;
  bool http11_ = true;
  bool keep_alive_ = true;
  bool expect_continue_ = false;
  bool upgrade_ = false;
  bool replayable_ = false;  // Idempotent and without a body.
  BodyReader request_body_;

  // The way to the actor.
  MonotonicTime budget_end_{};
  MonotonicTime budget_end_max_{};  // Of a cold wake.
  uint64_t ticket_ = 0;
  int refusals_ = 0;  // Of doors, since the request came.
  int connect_refused_ = 0;
  RoutePtr route_;
  bool slot_held_ = false;
  int64_t dial_phase_ = ActivityCell::kServing;  // What was known when the door was asked.
  std::shared_ptr<ActorConnection> actor_;
  std::shared_ptr<ActivityCell> activity_;  // While the request is counted there.
  bool reached_ = false;                    // A byte of the request can have reached the actor.
  bool replayed_ = false;
  bool reused_ = false;

  // Bytes.
  bool head_written_ = false;
  bool request_sent_ = false;  // To its last byte.
  bool actor_write_failed_ = false;
  bool client_write_pending_ = false;
  bool interim_pending_ = false;
  bool actor_ended_ = false;
  bool client_ended_ = false;  // Of a tunnel.
  bool up_closed_ = false;
  bool down_closed_ = false;
  bool close_client_ = false;
  bool actor_keeps_alive_ = false;
  bool report_waited_ = false;
  int interims_ = 0;
  size_t request_consumed_ = 0;  // Frees after the write under way.
  size_t answer_consumed_ = 0;
  HeadScanner scanner_;
  std::string answer_head_;
  BodyReader answer_body_;
  Framing answer_framing_ = Framing::kNone;  // To the client.
  FramedPiece request_piece_;
  FramedPiece answer_piece_;
  std::string request_scratch_;
  std::string answer_scratch_;
  int answer_status_ = 0;
  bool answer_counted_ = false;  // In activity_.
  enum class Wish { kNone, kPause, kSuspend } wish_ = Wish::kNone;
  Duration keep_awake_{-1};  // Asked for by the actor; below 0: not.

  // Of a WebSocket.
  bool socket_ = false;
  FrameWatcher up_frames_;
  FrameWatcher down_frames_;
  MonotonicTime last_data_{};
  std::string last_frame_;            // To be sent when the write under way is done,
  MonotonicTime last_frame_until_{};  // and by then.

  // Times.
  const MonotonicTime started_;
  MonotonicTime park_began_{};
  MonotonicTime dial_began_{};
  MonotonicTime sent_at_{};
  MonotonicTime passed_on_{};
  MonotonicTime answer_at_{};
  MonotonicTime last_byte_{};
  MonotonicTime retry_at_{};
  Duration parked_{};
  Duration connecting_{};
  Duration reporting_{};
  Duration own_{};
  WakeRole wake_ = WakeRole::kNone;
  std::shared_ptr<WakeReport> report_;
};

}  // namespace torpor::router
