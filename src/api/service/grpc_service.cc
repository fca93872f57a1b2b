#include "api/service/grpc_service.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <fmt/format.h>

#include "base/trace.h"
#include "model/reasons.h"
#include "rpc/channel.h"
#include "rpc/runtime.h"
#include "rpc/status.h"

namespace torpor::api {
namespace {

grpc::ByteBuffer Serialize(const Message& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

Status Parse(grpc::ByteBuffer* buffer, Message* message) {
  grpc::ProtoBufferReader reader(buffer);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return OkStatus();
  return Fail(reasons::kFieldInvalid,
              fmt::format("the request is no valid {}", message->GetDescriptor()->full_name()));
}

// One call. gRPC owns it until OnDone; answers come through a Line, which knows when it is gone.
class CallReactor : public grpc::ServerGenericBidiReactor {
 public:
  // What the answering side holds. The first of answer and cancellation ends the call; the reactor
  // lives until then.
  class Line {
   public:
    explicit Line(CallReactor* reactor) : reactor_(reactor) {}
    // The reactor, to the one who may end the call; null to everybody else.
    CallReactor* TakeEnd() { return ended_.exchange(true) ? nullptr : reactor_; }

   private:
    CallReactor* const reactor_;
    std::atomic<bool> ended_ = false;
  };

  CallReactor(grpc::GenericCallbackServerContext* context, Dispatcher* dispatcher,
              const TokenAuthenticator* token, Clock* clock)
      : context_(context),
        dispatcher_(dispatcher),
        clock_(clock),
        start_(clock->Now()),
        method_(dispatcher->Find(context->method())),
        line_(std::make_shared<Line>(this)) {
    Status status = Admit(token);
    if (status.ok()) {
      StartRead(&request_);
    } else {
      End(std::move(status));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return End(Fail(reasons::kFieldInvalid, "the call carries no request"));
    }
    std::unique_ptr<Message> message = Dispatcher::NewRequest(*method_);
    if (Status parsed = Parse(&request_, message.get()); !parsed.ok()) {
      return End(std::move(parsed));
    }
    Call call;
    if (auto left = rpc::TimeLeft(*context_)) call.deadline = AnswerBefore(start_, *left);
    auto trace = context_->client_metadata().find("traceparent");
    if (trace != context_->client_metadata().end()) {
      std::string_view text(trace->second.data(), trace->second.size());
      if (IsTraceparent(text)) call.traceparent = text;
    }
    if (method_->descriptor->server_streaming()) {
      auto stream = std::make_shared<Stream>(this);
      bool left = false;
      {
        MutexLock lock(&mu_);
        stream_ = stream;
        left = cancelled_;
      }
      if (left) stream->Gone();
      return dispatcher_->Stream(*method_, std::move(message), call, stream);
    }
    dispatcher_->Unary(*method_, std::move(message), call,
                       [line = line_](StatusOr<std::shared_ptr<const Message>> result) {
                         CallReactor* reactor = line->TakeEnd();
                         if (reactor != nullptr) reactor->Answer(std::move(result));
                       });
  }

  void OnWriteDone(bool ok) override {
    if (auto written = std::exchange(written_, nullptr)) written(ok);
  }

  // The caller left: its operation goes on, its place here does not.
  void OnCancel() override {
    std::shared_ptr<Stream> stream;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      stream = stream_;
    }
    if (stream != nullptr) return stream->Gone();
    if (method_ != nullptr && method_->descriptor->server_streaming()) return;
    End(Fail(reasons::kCancelled, "the caller left"));
  }

  void OnDone() override { delete this; }

 private:
  // A server stream. Its producer finishes it, also after the reader left, so the reactor lives as
  // long as the producer may call.
  class Stream : public ResponseStream {
   public:
    explicit Stream(CallReactor* reactor) : reactor_(reactor) {}
    void Write(const Message& message, std::function<void(bool)> written) override {
      reactor_->written_ = std::move(written);
      reactor_->response_ = Serialize(message);
      reactor_->StartWrite(&reactor_->response_);
    }
    void Finish(Status status) override {
      {
        MutexLock lock(&mu_);
        finished_ = true;
        gone_callback_ = nullptr;
      }
      reactor_->End(std::move(status));
    }
    void OnGone(std::function<void()> gone) override {
      {
        MutexLock lock(&mu_);
        if (finished_) return;
        if (!gone_) {
          gone_callback_ = std::move(gone);
          return;
        }
      }
      gone();
    }
    void Gone() {
      std::function<void()> gone;
      {
        MutexLock lock(&mu_);
        gone_ = true;
        gone = std::exchange(gone_callback_, nullptr);
      }
      if (gone) gone();
    }

   private:
    CallReactor* const reactor_;
    Mutex mu_;
    bool gone_ GUARDED_BY(mu_) = false;
    bool finished_ GUARDED_BY(mu_) = false;
    std::function<void()> gone_callback_ GUARDED_BY(mu_);
  };

  Status Admit(const TokenAuthenticator* token) const {
    if (token != nullptr) {
      auto header = context_->client_metadata().find("authorization");
      std::optional<std::string_view> value;
      if (header != context_->client_metadata().end()) {
        value = std::string_view(header->second.data(), header->second.size());
      }
      RETURN_IF_ERROR(token->Check(value));
    }
    if (method_ != nullptr) return OkStatus();
    return Fail(reasons::kNotImplemented, fmt::format("there is no method {}", context_->method()));
  }

  void End(Status status) {
    if (line_->TakeEnd() != nullptr) Answer(std::move(status));
  }

  void Answer(StatusOr<std::shared_ptr<const Message>> result) {
    context_->AddTrailingMetadata(
        "x-server-elapsed-us",
        fmt::to_string(
            std::chrono::duration_cast<std::chrono::microseconds>(clock_->Now() - start_).count()));
    if (!result.ok()) return Finish(rpc::ToGrpc(result.status()));
    if (*result == nullptr) return Finish(grpc::Status::OK);  // the end of a stream
    response_ = Serialize(**result);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  // A status that may be OK: the end of a stream.
  void Answer(Status status) {
    if (status.ok()) return Answer(std::shared_ptr<const Message>());
    Answer(StatusOr<std::shared_ptr<const Message>>(std::move(status)));
  }

  grpc::GenericCallbackServerContext* const context_;
  Dispatcher* const dispatcher_;
  Clock* const clock_;
  const MonotonicTime start_;
  const Dispatcher::Method* const method_;
  const std::shared_ptr<Line> line_;

  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;          // of the write under way
  std::function<void(bool)> written_;  // likewise
  Mutex mu_;
  bool cancelled_ GUARDED_BY(mu_) = false;
  std::shared_ptr<Stream> stream_ GUARDED_BY(mu_);
};

class Generic : public grpc::CallbackGenericService {
 public:
  Generic(Dispatcher* dispatcher, const TokenAuthenticator* token, Clock* clock)
      : dispatcher_(dispatcher), token_(token), clock_(clock) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new CallReactor(context, dispatcher_, token_, clock_);
  }

 private:
  Dispatcher* const dispatcher_;
  const TokenAuthenticator* const token_;
  Clock* const clock_;
};

}  // namespace

GrpcService::GrpcService(Dispatcher* dispatcher, const TokenAuthenticator* token, Clock* clock)
    : dispatcher_(dispatcher), token_(token), clock_(clock) {}

GrpcService::~GrpcService() = default;

void GrpcService::AddTo(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(rpc::kPublicMessageBytesMax);
  builder->SetMaxSendMessageSize(rpc::kPublicMessageBytesMax);
  generic_.push_back(std::make_unique<Generic>(dispatcher_, token_, clock_));
  builder->RegisterCallbackGenericService(generic_.back().get());
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, int port)
    : server_(std::move(server)), port_(port) {}

GrpcServer::~GrpcServer() { Stop(); }

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& listen,
                                                        GrpcService* service) {
  rpc::KeepCallbackThreads();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  // Two servers on one port would share the calls instead of telling that the port is taken.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, rpc::kMetadataBytesMax);
  service->AddTo(&builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Fail(reasons::kAlreadyExists,
                fmt::format("cannot listen on {}; the port may be taken, or the address is not "
                            "ADDRESS:PORT",
                            listen));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), port));
}

void GrpcServer::Stop(Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  server_->Wait();
  server_.reset();
}

}  // namespace torpor::api
