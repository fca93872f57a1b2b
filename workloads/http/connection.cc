#include "workloads/http/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace torpor::workloads::http {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kInputHigh = 256 * 1024;    // unread input above this stops reading
constexpr size_t kOutputHigh = 1024 * 1024;  // unsent output above this stops reading
constexpr size_t kJoinBytes = 16 * 1024;     // smaller pieces are joined into one write
constexpr std::chrono::milliseconds kDrainTime{1000};

}  // namespace

Connection::Connection(Server* server, App* app, uint64_t id, UniqueFd fd)
    : server_(server), app_(app), id_(id), fd_(std::move(fd)), interest_(EPOLLIN) {}

bool Connection::Answering(uint64_t serial) const {
  return phase_ != Phase::kGone && serial == serial_ && !answer_done_;
}

void Connection::OnEvents(uint32_t events) {
  if ((events & EPOLLERR) != 0) return Gone();
  if ((events & (EPOLLIN | EPOLLHUP)) != 0 && !Read()) return Gone();
  // Nothing can be sent any more, and epoll would report it for ever.
  if ((events & EPOLLHUP) != 0 && peer_closed_) return Gone();
  Advance();
}

// Does everything that is possible without waiting, then tells epoll what to wait for.
void Connection::Advance() {
  if (advancing_ || phase_ == Phase::kGone) return;
  advancing_ = true;
  bool more = true;
  while (more && phase_ != Phase::kGone) {
    more = false;
    if (out_bytes_ <= kOutputHigh && !close_when_sent_) {
      if (phase_ == Phase::kHead)
        more = StepHead();
      else if (phase_ == Phase::kBody)
        more = StepBody();
      else if (phase_ == Phase::kUpgraded)
        more = StepUpgraded();
    }
    if (!more || out_bytes_ > kOutputHigh) {
      const size_t before = out_bytes_;
      if (!Flush()) {
        advancing_ = false;
        return Gone();
      }
      more = more || (before > kOutputHigh && out_bytes_ <= kOutputHigh);
    }
  }
  advancing_ = false;
  if (phase_ == Phase::kGone) return;
  in_.erase(0, in_used_);
  in_used_ = 0;
  if (out_bytes_ == 0 && (close_when_sent_ || (peer_closed_ && phase_ == Phase::kHead))) {
    return CloseAfterFlush();
  }
  UpdateInterest();
}

bool Connection::StepHead() {
  size_t consumed = 0;
  int status = 0;
  const std::string_view input = std::string_view(in_).substr(in_used_);
  if (input.empty()) return false;
  switch (ParseHead(input, &request_, &consumed, &status)) {
    case HeadResult::kIncomplete:
      return false;
    case HeadResult::kBad:
      Refuse(status);
      return true;
    case HeadResult::kDone:
      break;
  }
  in_used_ += consumed;
  OnHeadParsed();
  return true;
}

void Connection::OnHeadParsed() {
  ++serial_;
  answer_started_ = false;
  answer_done_ = false;
  answer_chunked_ = false;
  answer_without_body_ = request_.method == "HEAD";
  decoder_.emplace(request_);
  phase_ = Phase::kBody;
  sink_ = app_->OnHead(request_, Reply(server_, id_, serial_));
  if (!sink_ && request_.content_length.value_or(0) > app_->MaxBodyBytes()) return Refuse(413);
  if (decoder_->done()) return FinishBody();
  if (request_.expect_continue && !answer_started_) Queue("HTTP/1.1 100 Continue\r\n\r\n");
}

bool Connection::StepBody() {
  std::string_view data;
  const size_t taken = decoder_->Take(std::string_view(in_).substr(in_used_), &data);
  in_used_ += taken;
  if (decoder_->bad()) {
    Refuse(400);
    return true;
  }
  if (!data.empty() && sink_) {
    sink_->OnData(data);
  } else if (!data.empty() && !answer_done_) {
    if (request_.body.size() + data.size() > app_->MaxBodyBytes()) {
      Refuse(413);
      return true;
    }
    request_.body += data;
  }
  if (decoder_->done()) FinishBody();
  return taken > 0 || phase_ != Phase::kBody;
}

void Connection::FinishBody() {
  phase_ = Phase::kAnswer;
  // The sink is taken out first, because ending the answer inside OnEnd frees what is left here.
  if (const std::unique_ptr<BodySink> sink = std::move(sink_)) {
    sink->OnEnd();
  } else if (!answer_started_) {
    app_->OnRequest(std::move(request_), Reply(server_, id_, serial_));
  }
  if (answer_done_) FinishExchange();
}

void Connection::FinishExchange() {
  if (phase_ != Phase::kAnswer) return;
  sink_.reset();
  phase_ = Phase::kHead;
}

bool Connection::StepUpgraded() {
  if (in_used_ == in_.size()) return false;
  std::string out;
  const bool go_on = upgraded_->OnData(std::string_view(in_).substr(in_used_), &out);
  in_used_ = in_.size();
  Queue(std::move(out));
  if (!go_on) close_when_sent_ = true;
  return true;
}

// Reads until the socket is empty or enough has come for now. False if the connection is broken.
bool Connection::Read() {
  static thread_local char buffer[kReadBytes];
  while (in_.size() < kInputHigh) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) {
      peer_closed_ = true;
      // Without the rest of the request there is nothing to answer.
      return phase_ == Phase::kAnswer || (phase_ != Phase::kDraining && !in_.empty()) ||
             out_bytes_ > 0;
    }
    if (phase_ != Phase::kDraining) in_.append(buffer, static_cast<size_t>(n));
    if (n < static_cast<ssize_t>(kReadBytes)) return true;
  }
  return true;
}

bool Connection::Flush() {
  while (!out_.empty()) {
    const std::string& front = out_.front();
    const ssize_t n =
        ::send(fd_.get(), front.data() + out_used_, front.size() - out_used_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    out_used_ += static_cast<size_t>(n);
    out_bytes_ -= static_cast<size_t>(n);
    if (out_used_ == front.size()) {
      out_.pop_front();
      out_used_ = 0;
    }
  }
  return true;
}

void Connection::UpdateInterest() {
  uint32_t wanted = 0;
  const bool may_read = in_.size() < kInputHigh && out_bytes_ <= kOutputHigh;
  if (!peer_closed_ && (phase_ == Phase::kDraining || (may_read && !close_when_sent_))) {
    wanted |= EPOLLIN;
  }
  if (out_bytes_ > 0) wanted |= EPOLLOUT;
  // A half-closed peer that cannot complete its request or has stopped an upgrade is finished.
  const bool needs_input = phase_ == Phase::kBody || phase_ == Phase::kHead ||
                           phase_ == Phase::kUpgraded || phase_ == Phase::kDraining;
  if (peer_closed_ && needs_input && out_bytes_ == 0) return Gone();
  if (wanted == interest_) return;
  interest_ = wanted;
  server_->Watch(fd_.get(), id_, wanted, false);
}

void Connection::Send(Response response) {
  if (answer_started_) return;
  const uint64_t size = response.body.size();
  QueueHead(response, size);
  if (!answer_without_body_) Queue(std::move(response.body));
  End();
}

void Connection::Begin(const Response& head, std::optional<uint64_t> length) {
  if (answer_started_) return;
  QueueHead(head, length);
  Advance();
}

void Connection::Write(std::string_view data) {
  if (!answer_started_ || data.empty() || answer_without_body_) return;
  if (answer_chunked_) {
    char size[16];
    const auto [end, error] = std::to_chars(size, size + sizeof(size), data.size(), 16);
    Queue(std::string(size, end) + "\r\n");
    Queue(std::string(data));
    Queue("\r\n");
  } else {
    Queue(std::string(data));
  }
  Advance();
}

void Connection::End() {
  if (answer_chunked_ && !answer_without_body_) Queue("0\r\n\r\n");
  answer_done_ = true;
  // An answer that came before the end of the body leaves bytes that nobody wants.
  if (!request_.keep_alive || (phase_ == Phase::kBody && !decoder_->done())) {
    close_when_sent_ = true;
  }
  FinishExchange();
  Advance();
}

void Connection::Upgrade(const Headers& headers, std::unique_ptr<Upgraded> upgraded) {
  if (answer_started_ || phase_ != Phase::kAnswer) return;
  std::string head = "HTTP/1.1 101 Switching Protocols\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  Queue(head + "\r\n");
  answer_started_ = true;
  answer_done_ = true;
  upgraded_ = std::move(upgraded);
  phase_ = Phase::kUpgraded;
  Advance();
}

// Answers a request that cannot be served and ends the connection, since what follows is unclear.
void Connection::Refuse(int status) {
  if (answer_started_ && !answer_done_) return Gone();
  if (!answer_started_ || phase_ == Phase::kHead) {
    answer_without_body_ = false;
    request_.keep_alive = false;
    const Response response = TextResponse(status, std::string(ReasonPhrase(status)) + "\n");
    QueueHead(response, response.body.size());
    Queue(response.body);
    answer_done_ = true;
  }
  close_when_sent_ = true;
}

void Connection::Queue(std::string data) {
  if (data.empty()) return;
  out_bytes_ += data.size();
  if (!out_.empty() && out_.back().size() + data.size() <= kJoinBytes) {
    out_.back() += data;
  } else {
    out_.push_back(std::move(data));
  }
}

void Connection::QueueHead(const Response& response, std::optional<uint64_t> length) {
  answer_started_ = true;
  if (!length && request_.minor_version == 0) request_.keep_alive = false;
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     std::string(ReasonPhrase(response.status)) + "\r\n";
  if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  if (length) {
    head += "Content-Length: " + std::to_string(*length) + "\r\n";
  } else if (request_.minor_version == 1) {
    // HTTP/1.0 has no chunks: there the end of the connection ends the body.
    answer_chunked_ = true;
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (!request_.keep_alive) {
    head += "Connection: close\r\n";
  } else if (request_.minor_version == 0) {
    head += "Connection: keep-alive\r\n";
  }
  Queue(head + "\r\n");
}

// Closes our side and lets the peer close its own, because closing at once while it still sends
// would answer with a reset that can overtake the response.
void Connection::CloseAfterFlush() {
  if (phase_ == Phase::kDraining) return UpdateInterest();
  if (peer_closed_) return Gone();
  phase_ = Phase::kDraining;
  ::shutdown(fd_.get(), SHUT_WR);
  server_->After(kDrainTime, [server = server_, id = id_] { server->Drop(id); });
  UpdateInterest();
}

void Connection::Gone() {
  if (phase_ == Phase::kGone) return;
  phase_ = Phase::kGone;
  sink_.reset();
  upgraded_.reset();
  server_->Drop(id_);
}

}  // namespace torpor::workloads::http
