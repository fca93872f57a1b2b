#pragma once
// Asynchronous unary calls that can be cancelled together.

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <set>

#include "base/status.h"
#include "base/sync.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::router {

// Thread-safe. The destructor cancels every call and waits for its callback.
class Calls {
 public:
  ~Calls() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    while (!contexts_.empty()) ended_.Wait(&mu_);
  }

  // `start(context, request, response, callback)` begins the call; `done` gets its outcome.
  template <typename Request, typename Response, typename Start>
  void Run(Request request, Duration timeout, Start start,
           std::function<void(StatusOr<Response>)> done) EXCLUDES(mu_) {
    struct Call {
      grpc::ClientContext context;
      Request request;
      Response response;
    };
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    rpc::SetDeadline(&call->context, timeout);
    bool stopping = false;
    {
      MutexLock lock(&mu_);
      stopping = stopping_;
      if (!stopping) contexts_.insert(&call->context);
    }
    if (stopping) return done(Error(Code::kCancelled, "SHUTTING_DOWN", "the router is stopping"));
    start(&call->context, &call->request, &call->response,
          [this, call, done = std::move(done)](grpc::Status status) {
            if (status.ok()) {
              done(std::move(call->response));
            } else {
              done(rpc::FromGrpc(status));
            }
            MutexLock lock(&mu_);
            contexts_.erase(&call->context);
            if (contexts_.empty()) ended_.SignalAll();
          });
  }

 private:
  Mutex mu_;
  CondVar ended_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> contexts_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
