#include "rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>

#include "rpc/runtime.h"
#include "rpc/unix_path.h"

namespace torpor::rpc {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

// Call credentials would need TLS below them, so the header is added by an interceptor.
class BearerInterceptor : public grpc::experimental::Interceptor {
 public:
  explicit BearerInterceptor(const std::string& header) : header_(header) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", header_);
    }
    methods->Proceed();
  }

 private:
  const std::string header_;
};

class BearerFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit BearerFactory(const std::string& token) : header_("Bearer " + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new BearerInterceptor(header_);
  }

 private:
  const std::string header_;
};

grpc::ChannelArguments Arguments(const ConnectOptions& options) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // time that one attempt may take
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Channels of one process must not share connections: their tokens and limits may differ.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  args.SetMaxReceiveMessageSize(options.message_bytes_max);
  args.SetMaxSendMessageSize(options.message_bytes_max);
  return args;
}

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const std::string& target, ConnectOptions options) {
  KeepCallbackThreads();
  std::string address = target;
  UniqueFd directory;
  if (std::string_view(target).substr(0, kUnixPrefix.size()) == kUnixPrefix) {
    auto shorter = ShortenSocketPath(target.substr(kUnixPrefix.size()));
    if (shorter.ok()) {
      address = std::string(kUnixPrefix) + shorter->path;
      directory = std::move(shorter->directory);
    }
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!options.token.empty())
    interceptors.push_back(std::make_unique<BearerFactory>(options.token));
  std::shared_ptr<grpc::Channel> channel = grpc::experimental::CreateCustomChannelWithInterceptors(
      address, grpc::InsecureChannelCredentials(), Arguments(options), std::move(interceptors));
  if (!directory.valid()) return channel;
  // The address names the descriptor of the directory, which therefore lives as long as the
  // channel.
  struct Holder {
    UniqueFd directory;
    std::shared_ptr<grpc::Channel> channel;
  };
  auto holder = std::make_shared<Holder>(Holder{std::move(directory), std::move(channel)});
  return std::shared_ptr<grpc::Channel>(holder, holder->channel.get());
}

void SetDeadline(grpc::ClientContext* context, Duration timeout, bool wait_for_ready) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
  context->set_wait_for_ready(wait_for_ready);
}

std::optional<Duration> TimeLeft(const grpc::ServerContextBase& context) {
  if (context.deadline() == std::chrono::system_clock::time_point::max()) return std::nullopt;
  Duration left = context.deadline() - std::chrono::system_clock::now();
  return std::max(left, Duration(0));
}

}  // namespace torpor::rpc
