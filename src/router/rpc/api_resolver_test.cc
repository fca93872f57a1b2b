// The control plane as the router sees it, over a real socket, with services made by the test.

#include "router/rpc/api_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <future>

#include "ateapi/ateapi.grpc.pb.h"
#include "base/testing/matchers.h"
#include "rpc/channel.h"
#include "rpc/unix_server.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::router {
namespace {

using std::chrono::seconds;

class FakeControl : public ateapi::Control::Service {
 public:
  grpc::Status ResumeActor(grpc::ServerContext*, const ateapi::ResumeActorRequest* request,
                           ateapi::ResumeActorResponse* response) override {
    EXPECT_TRUE(request->require_current());
    ateapi::Actor& actor = *response->mutable_actor();
    actor.mutable_metadata()->set_uid("u-1");
    actor.mutable_actor_template()->set_atespace("demo");
    actor.mutable_actor_template()->set_name("web");
    actor.mutable_status()->set_state(ateapi::ACTOR_STATE_RUNNING);
    actor.mutable_status()->mutable_worker_assignment()->set_address("unix:/door");
    response->set_generation(7);
    response->set_resumed(true);
    response->set_op_id("op-1");
    return grpc::Status::OK;
  }
  grpc::Status GetActorTemplate(grpc::ServerContext*, const ateapi::GetActorTemplateRequest*,
                                ateapi::ActorTemplate* response) override {
    ++template_reads;
    response->set_http_port(8080);
    if (park_budget > Duration::zero()) {
      *response->mutable_http()->mutable_park_budget() = ToProto(park_budget);
    }
    return template_gone ? grpc::Status(grpc::StatusCode::NOT_FOUND, "gone") : grpc::Status::OK;
  }

  Duration park_budget{};
  bool template_gone = false;
  std::atomic<int> template_reads{0};
};

class FakeOps : public torpor::v1::Ops::Service {
 public:
  grpc::Status ExplainActor(grpc::ServerContext*, const torpor::v1::ExplainActorRequest* request,
                            torpor::v1::ExplainActorResponse* response) override {
    if (request->actor().name() != "a") return {grpc::StatusCode::NOT_FOUND, "no actor"};
    response->mutable_actor()->mutable_actor_template()->set_name("web");
    torpor::v1::OperationReport& report = *response->add_reports();
    report.set_verb(torpor::v1::VERB_RESUME);
    report.set_total_ms(1500);
    report.set_step(request->op_id().empty() ? "START" : "");
    report.add_phases()->set_name("restore");
    torpor::v1::Choice& choice = *report.add_choices();
    choice.set_question("source");
    choice.set_answer(source);
    return grpc::Status::OK;
  }

  std::string source = "durable";
};

class ApiResolverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = "/tmp/router-api-" + std::to_string(getpid()) + ".sock";
    ASSERT_OK_AND_ASSIGN(server_, rpc::UnixServer::Start(path_, {&control_, &ops_}));
    resolver_ = MakeApiResolver(rpc::Connect("unix:" + path_), Clock::Real());
  }
  // What a call answers by its callback.
  template <typename T>
  StatusOr<T> Wait(const std::function<void(std::function<void(StatusOr<T>)>)>& call) {
    auto answer = std::make_shared<std::promise<StatusOr<T>>>();
    call([answer](StatusOr<T> value) { answer->set_value(std::move(value)); });
    return answer->get_future().get();
  }
  StatusOr<std::optional<WakeProgress>> Progress(const std::string& actor = "a") {
    return Wait<std::optional<WakeProgress>>(
        [&](auto done) { resolver_->Progress({"demo", actor}, std::move(done)); });
  }
  StatusOr<ActorResolver::Answer> Resume() {
    return Wait<ActorResolver::Answer>([&](auto done) {
      resolver_->Resume({"demo", "a"}, Duration::zero(), "", std::move(done));
    });
  }

  std::string path_;
  FakeControl control_;
  FakeOps ops_;
  std::unique_ptr<rpc::UnixServer> server_;
  std::unique_ptr<ActorResolver> resolver_;
};

TEST_F(ApiResolverTest, ResumesWithTheTemplatesSettings) {
  control_.park_budget = seconds(7);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(ActorResolver::Answer answer, Resume());
    EXPECT_TRUE(answer.woke);
    EXPECT_EQ(answer.op_id, "op-1");
    EXPECT_EQ(answer.route->uid, "u-1");
    EXPECT_EQ(answer.route->generation, 7);
    EXPECT_EQ(answer.route->http_port, 8080);
    EXPECT_EQ(answer.route->http.park_budget, seconds(7));
  }
  EXPECT_EQ(control_.template_reads.load(), 1) << "kept";
}

TEST_F(ApiResolverTest, AnActorOutlivesItsTemplate) {
  control_.template_gone = true;
  ASSERT_OK_AND_ASSIGN(ActorResolver::Answer answer, Resume());
  EXPECT_EQ(answer.route->http_port, 80);
}

TEST_F(ApiResolverTest, TellsTheWakeUnderWay) {
  ASSERT_OK_AND_ASSIGN(std::optional<WakeProgress> progress, Progress());
  ASSERT_TRUE(progress.has_value());
  EXPECT_TRUE(progress->cold);
  EXPECT_EQ(progress->phase, "start");
  EXPECT_EQ(progress->source, "durable");
  EXPECT_EQ(progress->elapsed, std::chrono::milliseconds(1500));
  EXPECT_FALSE(progress->has_own_budget);
  EXPECT_THAT(Progress("unknown").status(), HasCode(Code::kNotFound));
}

TEST_F(ApiResolverTest, KnowsTheBudgetOfATemplateThatNoRequestHasSeenYet) {
  control_.park_budget = seconds(7);
  ASSERT_OK_AND_ASSIGN(std::optional<WakeProgress> progress, Progress());
  ASSERT_TRUE(progress.has_value());
  EXPECT_TRUE(progress->has_own_budget);
}

TEST_F(ApiResolverTest, AWarmWakeNeedsNoTemplate) {
  ops_.source = "local";
  ASSERT_OK_AND_ASSIGN(std::optional<WakeProgress> progress, Progress());
  ASSERT_TRUE(progress.has_value());
  EXPECT_FALSE(progress->cold);
  EXPECT_EQ(control_.template_reads.load(), 0);
}

TEST_F(ApiResolverTest, PhasesAreThoseOfTheOperation) {
  ASSERT_OK_AND_ASSIGN(std::vector<torpor::v1::Phase> phases,
                       Wait<std::vector<torpor::v1::Phase>>([&](auto done) {
                         resolver_->Phases({"demo", "a"}, "op-1", std::move(done));
                       }));
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].name(), "restore");
}

}  // namespace
}  // namespace torpor::router
