#pragma once
// A client's connection: reads heads, hands each request to an Exchange, keeps the connection for
// the next one or closes it. Internal to listener/; belongs to one thread.

#include <array>
#include <memory>
#include <string>

#include "router/answer/reply.h"
#include "router/h1/head.h"
#include "router/listener/shard.h"
#include "router/upstream/net.h"
#include "router/upstream/read_buffer.h"

namespace torpor::router {

class Exchange;

class ClientConnection : public std::enable_shared_from_this<ClientConnection>,
                         public TimerWheel::Entry {
 public:
  ClientConnection(Shard* shard, Socket socket, std::string address, bool trusted);
  ~ClientConnection() override;

  void Start();
  // Runs when the connection is destroyed.
  void set_on_gone(std::function<void()> call) { on_gone_ = std::move(call); }
  // Closes at once if no request is under way; else the answer under way is the last one.
  void Drain();
  void Close();

  // For the exchange. ----
  // Up to `limit` unread bytes are buffered; one read at a time.
  void WantRead(size_t limit);
  // The memory must stay until Exchange::OnClientWritten.
  void Write(const std::array<net::const_buffer, 4>& buffers);
  void ShutdownSend();
  // The exchange is over, its answer was sent.
  void Done(bool keep_alive);
  // The exchange is over; this is the answer.
  void Answer(const Reply& reply, const RenderOptions& options);
  // The exchange is over; these are the last bytes of the connection.
  void SendLast(std::string bytes);
  // Sets the timer for the exchange's next deadline.
  void ArmTimer();

  ReadBuffer& in() { return in_; }
  std::shared_ptr<Exchange> exchange() const { return exchange_; }
  const std::string& address() const { return address_; }
  bool trusted() const { return trusted_; }

 private:
  enum class State { kIdle, kHead, kExchange, kAnswering, kLingering, kClosed };

  void OnTimer(MonotonicTime now) override;
  MonotonicTime Deadline() const;
  void Enter(State state);
  void OnRead(const ErrorCode& error, size_t n);
  void OnHeadBytes();
  void StartExchange();
  void Refuse(Rule rule);
  void OnWritten(bool ok);
  void Linger();

  Shard* const shard_;
  Socket socket_;
  const std::string address_;
  const bool trusted_;
  State state_ = State::kIdle;
  MonotonicTime since_{};  // Of the state.
  bool read_pending_ = false;
  bool close_after_answer_ = false;
  size_t lingered_bytes_ = 0;
  ReadBuffer in_;
  HeadScanner scanner_;
  std::shared_ptr<Exchange> exchange_;
  std::string answer_;
  std::function<void()> on_gone_;
};

}  // namespace torpor::router
