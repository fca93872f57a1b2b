#include "router/listener/client_connection.h"

#include <boost/asio/write.hpp>

#include "router/listener/exchange.h"

namespace torpor::router {
namespace {

constexpr size_t kReadAhead = 64 << 10;
constexpr size_t kLingerBytesMax = 1 << 20;
constexpr Duration kLingerTime = std::chrono::seconds(2);
constexpr Duration kAnswerTime = std::chrono::seconds(30);

}  // namespace

ClientConnection::ClientConnection(Shard* shard, Socket socket, std::string address, bool trusted)
    : shard_(shard), socket_(std::move(socket)), address_(std::move(address)), trusted_(trusted) {
  shard_->connections.insert(this);
  shard_->shared->connections.fetch_add(1, std::memory_order_relaxed);
}

ClientConnection::~ClientConnection() {
  shard_->connections.erase(this);
  shard_->shared->connections.fetch_sub(1, std::memory_order_relaxed);
  if (on_gone_) on_gone_();
}

void ClientConnection::Start() {
  Enter(State::kIdle);
  WantRead(kReadAhead);
}

void ClientConnection::Drain() {
  if (state_ == State::kIdle) Close();
}

void ClientConnection::Close() {
  if (state_ == State::kClosed) return;
  auto self = shared_from_this();
  state_ = State::kClosed;
  shard_->wheel.Cancel(this);
  ErrorCode ignored;
  socket_.close(ignored);
  auto exchange = std::move(exchange_);
  if (exchange) exchange->OnClientGone(false);
}

void ClientConnection::Enter(State state) {
  state_ = state;
  since_ = shard_->shared->clock->Now();
  ArmTimer();
}

void ClientConnection::ArmTimer() {
  if (state_ != State::kClosed) shard_->SetTimer(this, Deadline());
}

MonotonicTime ClientConnection::Deadline() const {
  const RouterOptions& options = shard_->shared->options;
  switch (state_) {
    case State::kIdle:
      return since_ + options.keep_alive_timeout;
    case State::kHead:
      return since_ + options.head_timeout;
    case State::kExchange:
      return exchange_->Deadline();
    case State::kLingering:
      return since_ + kLingerTime;
    default:
      return since_ + kAnswerTime;
  }
}

void ClientConnection::OnTimer(MonotonicTime now) {
  if (state_ == State::kClosed) return;
  if (now < Deadline()) return ArmTimer();
  auto self = shared_from_this();
  if (state_ == State::kExchange) {
    auto exchange = exchange_;
    exchange->OnDeadline();
    if (state_ == State::kExchange) ArmTimer();
    return;
  }
  if (state_ != State::kHead) return Close();
  Reply reply;
  reply.status = 408;
  reply.reason = "REQUEST_TIMEOUT";
  reply.message = "the request head did not arrive in time";
  reply.reached_actor = false;
  shard_->shared->metrics.Request(408, reply.reason, WakeRole::kNone, now - since_);
  Answer(reply, RenderOptions{.close = true});
}

void ClientConnection::WantRead(size_t limit) {
  if (read_pending_ || state_ == State::kClosed) return;
  size_t room = in_.Prepare(std::min<size_t>(limit, 4096), limit);
  if (room == 0) return;
  read_pending_ = true;
  socket_.async_read_some(net::buffer(in_.tail(), room),
                          [self = shared_from_this()](const ErrorCode& error, size_t n) {
                            self->read_pending_ = false;
                            self->OnRead(error, n);
                          });
}

void ClientConnection::OnRead(const ErrorCode& error, size_t n) {
  if (state_ == State::kClosed) return;
  if (state_ == State::kLingering) {
    lingered_bytes_ += n;
    if (error || lingered_bytes_ > kLingerBytesMax) return Close();
    in_.Clear();
    return WantRead(kReadAhead);
  }
  auto exchange = exchange_;
  if (error) {
    if (exchange) {
      exchange->OnClientGone(error == net::error::eof);
    } else if (state_ != State::kAnswering) {
      Close();
    }
    return;
  }
  in_.Commit(n);
  if (exchange) {
    exchange->OnClientBytes();
  } else if (state_ != State::kAnswering) {
    OnHeadBytes();
  }
}

void ClientConnection::OnHeadBytes() {
  if (in_.empty()) {
    if (shard_->shared->draining.load(std::memory_order_relaxed)) return Close();
    Enter(State::kIdle);
    if (!read_pending_) in_.Shrink();
    return WantRead(kReadAhead);
  }
  const HeadLimits& limits = shard_->shared->options.head_limits;
  switch (scanner_.Scan(in_.view())) {
    case HeadScanner::State::kBad:
      return Refuse(Rule::kLineBreak);
    case HeadScanner::State::kMore: {
      bool first_line = in_.view().find('\n') == std::string_view::npos;
      if (first_line && in_.size() > limits.uri_bytes + 64) return Refuse(Rule::kUriTooLong);
      if (in_.size() > limits.head_bytes) return Refuse(Rule::kHeadTooLarge);
      if (state_ != State::kHead) Enter(State::kHead);
      return WantRead(limits.head_bytes + 1);
    }
    case HeadScanner::State::kComplete:
      return StartExchange();
  }
}

void ClientConnection::StartExchange() {
  const HeadLimits& limits = shard_->shared->options.head_limits;
  RequestHead& head = shard_->request_head;
  size_t size = scanner_.size();
  scanner_.Reset();
  Rule rule = ParseRequestHead(in_.view().substr(0, size), limits, &head);
  if (rule != Rule::kNone) return Refuse(rule);
  auto exchange = std::make_shared<Exchange>(shard_, shared_from_this());
  exchange_ = exchange;
  state_ = State::kExchange;
  exchange->Start(head, size);
  if (exchange_ == exchange) ArmTimer();
}

void ClientConnection::Refuse(Rule rule) {
  Reply reply = ReplyForRule(rule);
  shard_->shared->metrics.BadRequest(rule);
  shard_->shared->metrics.Request(reply.status, reply.reason, WakeRole::kNone, Duration::zero());
  Answer(reply, RenderOptions{.close = true});
}

void ClientConnection::Write(const std::array<net::const_buffer, 4>& buffers) {
  net::async_write(socket_, buffers, [self = shared_from_this()](const ErrorCode& error, size_t) {
    self->OnWritten(!error);
  });
}

void ClientConnection::OnWritten(bool ok) {
  if (state_ == State::kClosed) return;
  if (auto exchange = exchange_) return exchange->OnClientWritten(ok);
  if (state_ != State::kAnswering) return;
  if (!ok) return Close();
  answer_.clear();
  if (close_after_answer_) return Linger();
  OnHeadBytes();
}

void ClientConnection::ShutdownSend() {
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void ClientConnection::Done(bool keep_alive) {
  exchange_.reset();
  if (state_ == State::kClosed) return;
  if (!keep_alive) return Linger();
  Enter(State::kHead);
  OnHeadBytes();
}

void ClientConnection::Answer(const Reply& reply, const RenderOptions& options) {
  exchange_.reset();
  if (state_ == State::kClosed) return;
  close_after_answer_ = options.close;
  answer_.clear();
  RenderReply(reply, options, &answer_);
  Enter(State::kAnswering);
  Write({net::buffer(answer_), {}, {}, {}});
}

void ClientConnection::SendLast(std::string bytes) {
  exchange_.reset();
  if (state_ == State::kClosed) return;
  close_after_answer_ = true;
  answer_ = std::move(bytes);
  Enter(State::kAnswering);
  Write({net::buffer(answer_), {}, {}, {}});
}

void ClientConnection::Linger() {
  // Closing with unread bytes would reset the connection, and the client might lose the answer.
  ShutdownSend();
  Enter(State::kLingering);
  if (!read_pending_) {
    in_.Clear();
    WantRead(kReadAhead);
  }
}

}  // namespace torpor::router
