#include "router/routes/route_from_api.h"

#include <algorithm>

#include <fmt/format.h>

namespace torpor::router {
namespace {

std::optional<Duration> Optional(bool set, const google::protobuf::Duration& d) {
  return set ? std::optional<Duration>(FromProto(d)) : std::nullopt;
}

// The first limit that puts the actor to sleep; its own policy goes before the template's.
Duration IdleLimit(const torpor::v1::IdlePolicy& own, const torpor::v1::IdlePolicy& base) {
  Duration pause = FromProto(own.has_pause_after() ? own.pause_after() : base.pause_after());
  Duration suspend =
      FromProto(own.has_suspend_after() ? own.suspend_after() : base.suspend_after());
  if (pause == Duration::zero()) return suspend;
  return suspend == Duration::zero() ? pause : std::min(pause, suspend);
}

}  // namespace

TemplateHttp HttpOf(const ateapi::ActorTemplate& actor_template) {
  TemplateHttp out;
  if (actor_template.http_port() > 0) out.http_port = actor_template.http_port();
  out.ports = {out.http_port};
  for (const auto& container : actor_template.containers()) {
    int port = container.wakeup_probe().http_get().port();
    if (port > 0 && std::find(out.ports.begin(), out.ports.end(), port) == out.ports.end()) {
      out.ports.push_back(port);
    }
  }
  const torpor::v1::HttpConfig& http = actor_template.http();
  out.http.park_budget = Optional(http.has_park_budget(), http.park_budget());
  out.http.first_byte_timeout = Optional(http.has_first_byte_timeout(), http.first_byte_timeout());
  out.http.stream_idle_timeout =
      Optional(http.has_stream_idle_timeout(), http.stream_idle_timeout());
  out.http.max_body_bytes = http.max_body_bytes();
  out.idle_policy = actor_template.idle_policy();
  return out;
}

StatusOr<Route> RouteOf(const ateapi::ResumeActorResponse& response, const TemplateHttp& http) {
  const ateapi::Actor& actor = response.actor();
  const ateapi::ActorStatus& status = actor.status();
  if (status.state() != ateapi::ACTOR_STATE_RUNNING || actor.metadata().uid().empty() ||
      status.worker_assignment().address().empty()) {
    return Error(
        Code::kUnavailable, "",
        fmt::format("actor is {} and not reachable", ateapi::ActorState_Name(status.state())));
  }
  Route route;
  route.uid = actor.metadata().uid();
  route.generation = response.generation() > 0 ? response.generation() : status.generation();
  route.door = status.worker_assignment().address();
  route.http_port = http.http_port;
  route.ports = http.ports;
  route.http = http.http;
  route.idle_limit = IdleLimit(actor.idle_policy(), http.idle_policy);
  return route;
}

}  // namespace torpor::router
