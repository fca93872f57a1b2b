#pragma once
// The one way into the public API: gRPC and JSON name a method, hand over its request message and
// get a message or a status back.
//
// The method table is that of the service descriptors. A method without handler answers
// UNIMPLEMENTED NOT_IMPLEMENTED; a request that breaks the syntax rules (validate/validate.h) never
// reaches its handler. Handlers run on the calling thread unless they were added with Blocking,
// which runs them on the dispatcher's threads; nothing holds a thread while it waits for an
// operation.
//
// Threads: handlers are added before the first call; Call, Stream and Find from any thread; Stop
// once. Replies arrive on any thread, possibly before Call returns, exactly once.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "base/metrics.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread_pool.h"
#include "base/time.h"

namespace torpor::api {

using google::protobuf::Message;

struct Call {
  // When the caller gives up; max() when it did not say.
  MonotonicTime deadline = MonotonicTime::max();
  std::string traceparent;  // as it came; empty when the caller sent none that is one
};

// When to give up so that the answer, which names the operation, still reaches a caller that waits
// for `left`.
MonotonicTime AnswerBefore(MonotonicTime now, Duration left);

using Reply = std::function<void(StatusOr<std::shared_ptr<const Message>>)>;

// Where the messages of a server stream go. The producer writes one message at a time and calls
// Finish exactly once, after the last write was answered. Thread-safe.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // `written(false)`: nobody reads any more. Never called before Write returns.
  virtual void Write(const Message& message, std::function<void(bool)> written) = 0;
  virtual void Finish(Status status) = 0;
  // Called once, when the reader left before Finish, at once if it has left already.
  virtual void OnGone(std::function<void()> gone) = 0;
};

class Dispatcher {
 public:
  struct Method {
    std::string path;  // "/ateapi.Control/GetActor"
    const google::protobuf::MethodDescriptor* descriptor;
    bool json = false;  // served as JSON too
    std::function<void(std::shared_ptr<const Message>, const Call&, Reply)> unary;
    std::function<void(std::shared_ptr<const Message>, const Call&,
                       std::shared_ptr<ResponseStream>)>
        stream;
  };

  explicit Dispatcher(size_t threads_max = 32);
  ~Dispatcher();

  // A method that answers at once.
  template <typename Request, typename Response>
  void Quick(std::string_view path, std::function<StatusOr<Response>(const Request&)> handler) {
    Add(path)->unary = [this, handler = std::move(handler)](std::shared_ptr<const Message> request,
                                                            const Call&, Reply reply) {
      Inside([&] { Send<Response>(reply, handler(static_cast<const Request&>(*request))); }, reply);
    };
  }
  // A method that blocks for a bounded time, such as a commit.
  template <typename Request, typename Response>
  void Blocking(std::string_view path, std::function<StatusOr<Response>(const Request&)> handler) {
    Add(path)->unary = [this, handler = std::move(handler)](std::shared_ptr<const Message> request,
                                                            const Call&, Reply reply) {
      if (!Enter()) return reply(ShuttingDown());
      pool_.Run([this, handler, request = std::move(request), reply = std::move(reply)]() mutable {
        Send<Response>(reply, handler(static_cast<const Request&>(*request)));
        reply = nullptr;  // what it holds may end as soon as Stop returns
        Leave();
      });
    };
  }
  // A method that answers later through its last argument.
  template <typename Request, typename Response>
  void Waiting(
      std::string_view path,
      std::function<void(const Request&, const Call&, std::function<void(StatusOr<Response>)>)>
          handler) {
    Add(path)->unary = [this, handler = std::move(handler)](std::shared_ptr<const Message> request,
                                                            const Call& call, Reply reply) {
      auto done = [reply](StatusOr<Response> response) {
        Send<Response>(reply, std::move(response));
      };
      Inside([&] { handler(static_cast<const Request&>(*request), call, done); }, reply);
    };
  }
  template <typename Request>
  void Streaming(
      std::string_view path,
      std::function<void(const Request&, const Call&, std::shared_ptr<ResponseStream>)> handler) {
    Add(path)->stream = [this, handler = std::move(handler)](
                            std::shared_ptr<const Message> request, const Call& call,
                            std::shared_ptr<ResponseStream> stream) {
      Inside([&] { handler(static_cast<const Request&>(*request), call, stream); },
             [&](StatusOr<std::shared_ptr<const Message>> refused) {
               stream->Finish(std::move(refused).status());
             });
    };
  }

  // Counts unary calls by method and code from now on; before the first call.
  void Measure(HistogramFamily requests, Clock* clock) {
    requests_ = std::move(requests);
    clock_ = clock;
  }

  // The method of a request path such as "/ateapi.Control/GetActor"; null when there is none.
  const Method* Find(std::string_view path) const;
  std::vector<std::string> Paths() const;
  static std::unique_ptr<Message> NewRequest(const Method& method);

  // For a unary method. `request` is of the method's input type.
  void Unary(const Method& method, std::unique_ptr<Message> request, const Call& call, Reply reply);
  // For a method that streams its answers.
  void Stream(const Method& method, std::unique_ptr<Message> request, const Call& call,
              std::shared_ptr<ResponseStream> stream);

  // From now on calls answer UNAVAILABLE SHUTTING_DOWN. Returns when every handler that was asked
  // before has run; those that gave their answer to somebody else to finish may still be open.
  void Stop() EXCLUDES(mu_);

 private:
  template <typename Response>
  static void Send(const Reply& reply, StatusOr<Response> response) {
    if (!response.ok()) {
      reply(std::move(response).status());
    } else {
      reply(std::make_shared<const Response>(std::move(response).value()));
    }
  }

  Method* Add(std::string_view path);
  // False once the dispatcher has stopped; else Leave must follow.
  bool Enter() EXCLUDES(mu_);
  void Leave() EXCLUDES(mu_);
  static Status ShuttingDown();
  // Runs `work` unless the dispatcher has stopped, which `reply` then says.
  void Inside(const std::function<void()>& work, const Reply& reply) EXCLUDES(mu_);

  std::map<std::string, Method, std::less<>> methods_;
  HistogramFamily requests_;
  Clock* clock_ = Clock::Real();

  Mutex mu_;
  CondVar left_;
  bool stopping_ GUARDED_BY(mu_) = false;
  int inside_ GUARDED_BY(mu_) = 0;

  ThreadPool pool_;  // last: its destructor runs queued work, which uses the above
};

}  // namespace torpor::api
