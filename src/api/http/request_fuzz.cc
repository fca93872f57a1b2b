// The JSON request path: the first line is the target, the rest the body. Whatever arrives, exactly
// one answer leaves and it is JSON.

#include <nlohmann/json.hpp>

#include "api/http/handler.h"
#include "api/testing/recording_reply.h"
#include "ateapi/ateapi.pb.h"
#include "base/log.h"

namespace torpor::api {
namespace {

// Echoes templates and actors, so that what was parsed is printed again.
std::unique_ptr<Dispatcher> EchoDispatcher() {
  auto dispatcher = std::make_unique<Dispatcher>(1);
  dispatcher->Quick<ateapi::CreateActorTemplateRequest, ateapi::ActorTemplate>(
      "/ateapi.Control/CreateActorTemplate",
      [](const ateapi::CreateActorTemplateRequest& request) -> StatusOr<ateapi::ActorTemplate> {
        return request.actor_template();
      });
  dispatcher->Quick<ateapi::CreateActorRequest, ateapi::Actor>(
      "/ateapi.Control/CreateActor",
      [](const ateapi::CreateActorRequest& request) -> StatusOr<ateapi::Actor> {
        return request.actor();
      });
  return dispatcher;
}

}  // namespace
}  // namespace torpor::api

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor::api;
  static Dispatcher* dispatcher = EchoDispatcher().release();
  static const TokenAuthenticator token("0123456789abcdef", "token");
  static const HttpHandler handler(dispatcher, &token, {}, torpor::Clock::Real());
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), size);
  HttpRequest request;
  request.method = "POST";
  request.target = std::string(input.substr(0, line));
  request.headers = {{"host", "localhost"},
                     {"content-type", "application/json"},
                     {"authorization", "Bearer 0123456789abcdef"}};
  request.body = std::string(input.substr(std::min(line + 1, size)));
  if (auto refusal = handler.Refuse(request)) {
    CHECK(nlohmann::json::accept(refusal->body));
    return 0;
  }
  auto reply = std::make_shared<RecordingReply>();
  handler.Handle(std::move(request), reply);
  CHECK(reply->answers == 1);
  CHECK(nlohmann::json::accept(reply->sent.body));
  return 0;
}
