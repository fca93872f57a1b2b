#include "api/dispatcher.h"

#include <gtest/gtest.h>

#include <future>

#include "ateapi/ateapi.pb.h"
#include "base/testing/matchers.h"

namespace torpor::api {
namespace {

constexpr char kGet[] = "/ateapi.Control/GetActor";
constexpr char kCreate[] = "/ateapi.Control/CreateAtespace";

std::unique_ptr<Message> GetRequest(const std::string& name) {
  auto request = std::make_unique<ateapi::GetActorRequest>();
  request->mutable_actor()->set_atespace("demo");
  request->mutable_actor()->set_name(name);
  return request;
}

Status CallOnce(Dispatcher* dispatcher, const char* path, std::unique_ptr<Message> request) {
  std::promise<Status> answer;
  dispatcher->Unary(*dispatcher->Find(path), std::move(request), Call(),
                    [&](auto result) { answer.set_value(result.status()); });
  return answer.get_future().get();
}

TEST(DispatcherTest, TheTableIsThatOfTheServices) {
  Dispatcher dispatcher(1);
  EXPECT_NE(dispatcher.Find(kGet), nullptr);
  EXPECT_TRUE(dispatcher.Find("/torpor.v1.Ops/ReadLogs")->descriptor->server_streaming());
  EXPECT_FALSE(dispatcher.Find("/ateapi.WorkerService/RegisterWorker")->json);
  EXPECT_EQ(dispatcher.Find("/torpor.v1.NodeAgent/StartActor"), nullptr);
  EXPECT_EQ(dispatcher.Find("ateapi.Control/GetActor"), nullptr);
}

TEST(DispatcherTest, EveryMethodWithoutHandlerSaysSo) {
  Dispatcher dispatcher(1);
  for (const std::string& path : dispatcher.Paths()) {
    const auto* method = dispatcher.Find(path);
    if (method->descriptor->server_streaming()) continue;
    EXPECT_THAT(CallOnce(&dispatcher, path.c_str(), Dispatcher::NewRequest(*method)),
                HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"))
        << path;
  }
}

TEST(DispatcherTest, ABadRequestNeverReachesItsHandler) {
  Dispatcher dispatcher(1);
  int calls = 0;
  dispatcher.Quick<ateapi::GetActorRequest, ateapi::Actor>(
      kGet, [&](const ateapi::GetActorRequest&) -> StatusOr<ateapi::Actor> {
        ++calls;
        return ateapi::Actor();
      });
  EXPECT_THAT(CallOnce(&dispatcher, kGet, GetRequest("../x")),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_EQ(calls, 0);
  EXPECT_OK(CallOnce(&dispatcher, kGet, GetRequest("x")));
  EXPECT_EQ(calls, 1);
}

TEST(DispatcherTest, BlockingHandlersRunBesideTheCaller) {
  Dispatcher dispatcher(1);
  std::promise<void> release;
  dispatcher.Blocking<ateapi::GetActorRequest, ateapi::Actor>(
      kGet, [&](const ateapi::GetActorRequest&) -> StatusOr<ateapi::Actor> {
        release.get_future().wait();
        return ateapi::Actor();
      });
  std::promise<Status> answer;
  dispatcher.Unary(*dispatcher.Find(kGet), GetRequest("x"), Call(),
                   [&](auto result) { answer.set_value(result.status()); });
  release.set_value();  // not reached if the handler ran on this thread
  EXPECT_OK(answer.get_future().get());
}

TEST(DispatcherTest, StopWaitsForHandlersAndRefusesLaterCalls) {
  Dispatcher dispatcher(1);
  std::promise<void> entered, release;
  std::atomic<bool> left = false;
  dispatcher.Blocking<ateapi::GetActorRequest, ateapi::Actor>(
      kGet, [&](const ateapi::GetActorRequest&) -> StatusOr<ateapi::Actor> {
        entered.set_value();
        release.get_future().wait();
        left = true;
        return ateapi::Actor();
      });
  std::promise<Status> answer;
  dispatcher.Unary(*dispatcher.Find(kGet), GetRequest("x"), Call(),
                   [&](auto result) { answer.set_value(result.status()); });
  entered.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    dispatcher.Stop();
    return left.load();
  });
  release.set_value();
  EXPECT_TRUE(stopped.get());
  EXPECT_OK(answer.get_future().get());
  EXPECT_THAT(CallOnce(&dispatcher, kGet, GetRequest("x")),
              HasReason(Code::kUnavailable, "SHUTTING_DOWN"));
}

TEST(DispatcherTest, AnswersLeaveBeforeTheCallerGivesUp) {
  const MonotonicTime now;
  using std::chrono::milliseconds;
  EXPECT_EQ(AnswerBefore(now, milliseconds(100)), now + milliseconds(90));
  EXPECT_EQ(AnswerBefore(now, std::chrono::seconds(10)), now + milliseconds(9800));
  EXPECT_EQ(AnswerBefore(now, Duration(0)), now);
  EXPECT_EQ(AnswerBefore(now, Duration::max()), MonotonicTime::max());
}

TEST(DispatcherTest, RequestsOfTheServedCreatesAreChecked) {
  Dispatcher dispatcher(1);
  dispatcher.Blocking<ateapi::CreateAtespaceRequest, ateapi::Atespace>(
      kCreate, [](const ateapi::CreateAtespaceRequest& request) -> StatusOr<ateapi::Atespace> {
        return request.atespace();
      });
  EXPECT_THAT(CallOnce(&dispatcher, kCreate, std::make_unique<ateapi::CreateAtespaceRequest>()),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
}

}  // namespace
}  // namespace torpor::api
