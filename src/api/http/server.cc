#include "api/http/server.h"

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <charconv>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "base/sync.h"
#include "model/reasons.h"

namespace torpor::api {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace net = boost::asio;
using tcp = boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kIdleMax = std::chrono::seconds(60);
constexpr auto kBodyTimeMax = std::chrono::seconds(30);
constexpr auto kWriteTimeMax = std::chrono::seconds(60);
constexpr size_t kHeadBytesMax = 32 << 10;
constexpr size_t kConnectionsMax = 4096;
constexpr int kThreads = 2;

class Session;

// The open connections, so that a stop can wait for their answers and then close them.
class Sessions {
 public:
  // False when there are too many, or none is taken any more.
  bool Add(const std::shared_ptr<Session>& session) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (draining_ || sessions_.size() >= kConnectionsMax) return false;
    sessions_[session.get()] = session;
    return true;
  }
  void Remove(Session* session) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    sessions_.erase(session);
    if (sessions_.empty()) empty_.SignalAll();
  }
  bool draining() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return draining_;
  }
  std::vector<std::shared_ptr<Session>> Drain() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    draining_ = true;
    std::vector<std::shared_ptr<Session>> open;
    for (auto& [key, weak] : sessions_) {
      if (auto session = weak.lock()) open.push_back(std::move(session));
    }
    return open;
  }
  void WaitEmpty(MonotonicTime deadline) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (!sessions_.empty() && empty_.WaitUntil(&mu_, deadline)) {
    }
  }

 private:
  Mutex mu_;
  CondVar empty_;
  bool draining_ GUARDED_BY(mu_) = false;
  std::map<Session*, std::weak_ptr<Session>> sessions_ GUARDED_BY(mu_);
};

// One connection. Everything happens on its strand; replies are posted there.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const HttpHandler* handler, Sessions* sessions)
      : stream_(std::move(socket)), handler_(handler), sessions_(sessions) {}
  ~Session() { sessions_->Remove(this); }

  void Start() {
    net::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->ReadHead(); });
  }
  // Closes an idle connection at once, a busy one too if `force`.
  void Close(bool force) {
    net::dispatch(stream_.get_executor(), [self = shared_from_this(), force] {
      if (!self->busy_ || force) self->Hangup();
    });
  }

 private:
  // The reply of one request; calls may come from any thread and, for a slow producer, after the
  // connection is gone.
  class Reply : public HttpReply {
   public:
    explicit Reply(std::shared_ptr<Session> session) : session_(std::move(session)) {}
    void Send(HttpResponse response) override {
      Post([response = std::move(response)](Session* s) mutable {
        s->SendWhole(std::move(response));
      });
    }
    void Begin(HttpResponse head) override {
      Post([head = std::move(head)](Session* s) mutable { s->SendHead(std::move(head)); });
    }
    void Write(std::string chunk, std::function<void(bool)> written) override {
      Post([chunk = std::move(chunk), written = std::move(written)](Session* s) mutable {
        s->SendChunk(std::move(chunk), std::move(written));
      });
    }
    void End() override {
      Post([](Session* s) { s->SendEnd(); });
    }
    void OnGone(std::function<void()> gone) override {
      Post([gone = std::move(gone)](Session* s) mutable { s->WatchForEnd(std::move(gone)); });
    }

   private:
    template <typename F>
    void Post(F work) {
      net::post(session_->stream_.get_executor(),
                [session = session_, work = std::move(work)]() mutable { work(session.get()); });
    }
    const std::shared_ptr<Session> session_;
  };

  void ReadHead() {
    busy_ = false;
    if (sessions_->draining()) return Hangup();
    parser_.emplace();
    parser_->header_limit(kHeadBytesMax);
    parser_->body_limit(kHttpBodyBytesMax);
    stream_.expires_after(kIdleMax);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code ec, size_t) { self->OnHead(ec); });
  }

  void OnHead(error_code ec) {
    if (ec == http::error::body_limit) return RefuseAndClose(HttpHandler::TooLarge());
    if (ec) return Hangup();
    busy_ = true;
    const auto& head = parser_->get();
    HttpRequest& request = request_.emplace();
    request.method = std::string(head.method_string());
    request.target = std::string(head.target());
    for (const auto& field : head) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return tolower(c); });
      request.headers.emplace(std::move(name), std::string(field.value()));
    }
    if (auto refusal = handler_->Refuse(request)) return RefuseAndClose(std::move(*refusal));
    stream_.expires_after(kBodyTimeMax);
    if (beast::iequals(head[http::field::expect], "100-continue")) return SendContinue();
    ReadBody();
  }

  void SendContinue() {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(stream_, net::buffer(kContinue.data(), kContinue.size()),
                     [self = shared_from_this()](error_code ec, size_t) {
                       if (ec) return self->Hangup();
                       self->ReadBody();
                     });
  }

  void ReadBody() {
    http::async_read(
        stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
          if (ec == http::error::body_limit) return self->RefuseAndClose(HttpHandler::TooLarge());
          if (ec) return self->Hangup();
          self->keep_alive_ = self->parser_->keep_alive();
          self->request_->body = std::move(self->parser_->get().body());
          self->stream_.expires_never();  // the call has its own deadline
          self->handler_->Handle(std::move(*self->request_), std::make_shared<Reply>(self));
        });
  }

  // The body was not read, so the connection cannot be used again.
  void RefuseAndClose(HttpResponse response) {
    keep_alive_ = false;
    SendWhole(std::move(response));
  }

  template <typename Body>
  void SetHead(const HttpResponse& from, http::response<Body>* to) {
    to->version(11);
    to->result(static_cast<unsigned>(from.status));
    for (const auto& [name, value] : from.headers) to->set(name, value);
    to->keep_alive(keep_alive_);
  }

  void SendWhole(HttpResponse response) {
    auto message = std::make_shared<http::response<http::string_body>>();
    SetHead(response, message.get());
    message->body() = std::move(response.body);
    message->prepare_payload();
    stream_.expires_after(kWriteTimeMax);
    http::async_write(stream_, *message,
                      [self = shared_from_this(), message](error_code ec, size_t) {
                        if (ec || !self->keep_alive_) return self->Hangup();
                        self->ReadHead();
                      });
  }

  void SendHead(HttpResponse head) {
    keep_alive_ =
        false;  // a stream is read to see its client leave, so its connection ends with it
    auto message = std::make_shared<http::response<http::empty_body>>();
    SetHead(head, message.get());
    message->chunked(true);
    auto serializer = std::make_shared<http::response_serializer<http::empty_body>>(*message);
    stream_.expires_never();
    Enqueue([this, message, serializer](std::function<void(error_code)> done) {
      http::async_write_header(stream_, *serializer,
                               [message, serializer, done](error_code ec, size_t) { done(ec); });
    });
  }

  void SendChunk(std::string chunk, std::function<void(bool)> written) {
    auto data = std::make_shared<std::string>(std::move(chunk));
    Enqueue([this, data, written](std::function<void(error_code)> done) {
      if (gone_) {
        done({});
        return written(false);
      }
      net::async_write(stream_, http::make_chunk(net::buffer(*data)),
                       [self = shared_from_this(), data, done, written](error_code ec, size_t) {
                         if (ec) self->Gone();
                         done(ec);
                         written(!ec);
                       });
    });
  }

  void SendEnd() {
    Enqueue([this](std::function<void(error_code)> done) {
      net::async_write(stream_, http::make_chunk_last(),
                       [self = shared_from_this(), done](error_code ec, size_t) {
                         done(ec);
                         self->Hangup();
                       });
    });
  }

  // Parts of a stream are written one after the other.
  void Enqueue(std::function<void(std::function<void(error_code)>)> write) {
    writes_.push_back(std::move(write));
    if (writes_.size() == 1) NextWrite();
  }
  void NextWrite() {
    auto write = std::move(writes_.front());  // lives through its own answer
    write([self = shared_from_this()](error_code) {
      self->writes_.pop_front();
      if (!self->writes_.empty()) self->NextWrite();
    });
  }

  // Reads on while a stream is sent: an end of the connection is the only way to see its client
  // leave when there is nothing to write.
  void WatchForEnd(std::function<void()> gone) {
    if (gone_) return gone();
    on_gone_ = std::move(gone);
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
      // Data that nobody asked for is no end; it stays unread.
      error_code ignored;
      if (ec || self->stream_.socket().available(ignored) == 0) {
        self->Gone();
      }
    });
  }
  void Gone() {
    gone_ = true;
    if (auto gone = std::exchange(on_gone_, nullptr)) gone();
  }

  void Hangup() {
    Gone();
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  beast::tcp_stream stream_;
  const HttpHandler* const handler_;
  Sessions* const sessions_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<HttpRequest> request_;
  bool busy_ = false;
  bool keep_alive_ = false;
  bool gone_ = false;
  std::function<void()> on_gone_;
  std::deque<std::function<void(std::function<void(error_code)>)>> writes_;
};

Status BadAddress(const std::string& listen) {
  return Fail(
      reasons::kFieldInvalid,
      fmt::format("'{}' is no listen address; write ADDRESS:PORT, such as 127.0.0.1:7701", listen));
}

StatusOr<tcp::endpoint> ParseEndpoint(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return BadAddress(listen);
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") host = "127.0.0.1";
  uint16_t port = 0;
  const char* end = listen.data() + listen.size();
  auto parsed = std::from_chars(listen.data() + colon + 1, end, port);
  error_code ec;
  const auto address = net::ip::make_address(host, ec);
  if (ec || parsed.ec != std::errc() || parsed.ptr != end) return BadAddress(listen);
  return tcp::endpoint(address, port);
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpHandler* handler_in) : handler(handler_in) {}

  void Accept() {
    acceptor.async_accept(net::make_strand(io), [this](error_code ec, tcp::socket socket) {
      if (ec == net::error::operation_aborted) return;
      if (ec) {
        // Out of descriptors: try again a little later instead of in a busy loop.
        LogError("cannot accept an HTTP connection", {{"error", ec.message()}});
        retry.expires_after(std::chrono::milliseconds(100));
        return retry.async_wait([this](error_code stopped) {
          if (!stopped) Accept();
        });
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      auto session = std::make_shared<Session>(std::move(socket), handler, &sessions);
      if (sessions.Add(session)) session->Start();
      Accept();
    });
  }

  const HttpHandler* const handler;
  Sessions sessions;
  net::io_context io;
  tcp::acceptor acceptor{io};
  net::steady_timer retry{io};
  std::vector<std::thread> threads;
  bool stopped = false;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { Stop(); }

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                        const HttpHandler* handler) {
  ASSIGN_OR_RETURN(tcp::endpoint endpoint, ParseEndpoint(listen));
  auto impl = std::make_unique<Impl>(handler);
  error_code ec;
  auto failed = [&](const char* what) {
    return ErrnoStatus(ec.value(), fmt::format("{} {}", what, listen));
  };
  if (impl->acceptor.open(endpoint.protocol(), ec)) return failed("socket for");
  impl->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (impl->acceptor.bind(endpoint, ec)) {
    if (ec == net::error::address_in_use) {
      return Fail(
          reasons::kAlreadyExists,
          fmt::format("another process listens on {}; stop it or choose another port", listen));
    }
    return failed("bind");
  }
  if (impl->acceptor.listen(net::socket_base::max_listen_connections, ec))
    return failed("listen on");
  impl->Accept();
  for (int i = 0; i < kThreads; ++i) {
    impl->threads.emplace_back([io = &impl->io] { io->run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  error_code ec;
  return impl_->acceptor.local_endpoint(ec).port();
}

void HttpServer::Stop(Duration grace) {
  if (std::exchange(impl_->stopped, true)) return;
  net::post(impl_->io, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->retry.cancel();
  });
  for (const auto& session : impl_->sessions.Drain()) session->Close(/*force=*/false);
  impl_->sessions.WaitEmpty(Clock::Real()->Now() + grace);
  for (const auto& session : impl_->sessions.Drain()) session->Close(/*force=*/true);
  impl_->sessions.WaitEmpty(Clock::Real()->Now() + std::chrono::seconds(1));
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace torpor::api
