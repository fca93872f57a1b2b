// What the public load drivers need from a Torpor: one cold and one warm turn of their loop, over
// the API and the router as they use them. Needs root and runsc.
#include <gtest/gtest.h>
#include <unistd.h>

#include "ateapi/ateapi.grpc.pb.h"
#include "base/uuid.h"
#include "bench/bare.h"
#include "bench/http_client.h"
#include "bench/world.h"
#include "glutton/glutton.pb.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::bench {
namespace {

constexpr char kPublicDomain[] = "actors.resources.substrate.ate.dev";
constexpr auto kLimit = std::chrono::minutes(2);

class DriverContract : public ::testing::Test {
 protected:
  // One unary call; every one must carry the server's time, whatever its outcome.
  template <typename Request, typename Response>
  Status Call(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
              const Request& request, Response* response) {
    grpc::ClientContext context;
    rpc::SetDeadline(&context, kLimit);
    grpc::Status status = (control_.get()->*method)(&context, request, response);
    EXPECT_EQ(context.GetServerTrailingMetadata().count("x-server-elapsed-us"), 1u);
    return rpc::FromGrpc(status);
  }
  template <typename Request, typename Response>
  Response Lifecycle(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*)) {
    Request request;
    request.mutable_actor()->set_atespace(kAtespace);
    request.mutable_actor()->set_name(actor_);
    Response response;
    Status status = Call(method, request, &response);
    EXPECT_TRUE(status.ok()) << status;
    return response;
  }
  // By host name, or by the header that names the actor.
  void Ping(const std::string& message, bool by_header) {
    ::glutton::PingRequest request;
    request.set_message(message);
    HttpRequest http{"POST",
                     "/ping",
                     fmt::format("{}.{}.{}", actor_, kAtespace, kPublicDomain),
                     "application/x-protobuf",
                     request.SerializeAsString(),
                     {}};
    if (by_header) {
      http.host = world_->stack->router_address();
      http.fields = {{"ate-target-actor", fmt::format("{}/{}", kAtespace, actor_)}};
    }
    HttpConnection connection(DialTcp(world_->stack->router_address()));
    auto answer = connection.Exchange(http, Clock::Real()->Now() + kLimit);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->status, 200) << answer->body;
    EXPECT_NE(answer->Header("x-server-elapsed-us"), "");
    ::glutton::PingResponse response;
    ASSERT_TRUE(response.ParseFromString(answer->body));
    EXPECT_EQ(response.message(), message);
  }

  std::unique_ptr<World> world_;
  std::unique_ptr<ateapi::Control::Stub> control_;
  const std::string actor_ = "sb-" + IdSource::Real()->NewUuid();
};

TEST_F(DriverContract, OneColdAndOneWarmTurn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  auto runtime = FindBareRuntime("", "");
  if (runtime.status().code() == Code::kNotFound) GTEST_SKIP() << runtime.status();
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  WorldOptions options;
  options.image_layout_dir = options.stack.image_layout_dir = TORPOR_IMAGES;
  options.stack.binary = TORPOR_BINARY;
  options.stack.runsc = runtime->target.binary;
  options.stack.platform = runtime->target.platform;
  options.stack.flags = {"--actor-domain", "actors.localhost", "--actor-domain", kPublicDomain};
  auto world = StartWorld(options, Scenario());
  ASSERT_TRUE(world.ok()) << world.status();
  world_ = std::move(*world);
  control_ = ateapi::Control::NewStub(rpc::Connect(world_->stack->endpoint(), {}));

  ateapi::CreateAtespaceRequest atespace;
  atespace.mutable_atespace()->mutable_metadata()->set_name(kAtespace);
  ateapi::Atespace made;
  EXPECT_EQ(Call(&ateapi::Control::Stub::CreateAtespace, atespace, &made).code(),
            Code::kAlreadyExists);
  ASSERT_TRUE(world_->control->Create(actor_).ok());
  for (const char* turn : {"cold", "warm"}) {
    EXPECT_TRUE((Lifecycle<ateapi::ResumeActorRequest, ateapi::ResumeActorResponse>(
                     &ateapi::Control::Stub::ResumeActor))
                    .resumed())
        << turn;
    Ping(turn, false);
    Ping(turn, true);
    auto paused = Lifecycle<ateapi::PauseActorRequest, ateapi::PauseActorResponse>(
        &ateapi::Control::Stub::PauseActor);
    EXPECT_EQ(paused.actor().status().state(), ateapi::ACTOR_STATE_PAUSED) << turn;
  }
  ateapi::DeleteActorRequest deletion;
  deletion.mutable_actor()->set_atespace(kAtespace);
  deletion.mutable_actor()->set_name(actor_);
  deletion.set_any_state(true);
  ateapi::Actor deleted;
  Status status = Call(&ateapi::Control::Stub::DeleteActor, deletion, &deleted);
  EXPECT_TRUE(status.ok()) << status;
  status = world_->stack->Stop();
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace torpor::bench
