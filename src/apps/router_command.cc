// torpor router: the HTTP data plane. Needs no privilege and keeps no state.

#include <fcntl.h>

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/role/role.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "router/admit/token_file.h"
#include "router/listener/router.h"
#include "router/rpc/api_resolver.h"
#include "rpc/channel.h"

namespace torpor {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

struct Settings {
  router::RouterOptions router;
  std::string api_socket = "/var/lib/torpor/run/api.sock";
  std::string registry_socket = "/var/lib/torpor/run/registry.sock";
  std::string access_log = "stderr";
  std::string server_timing = "on";
  bool insecure_public = false;
  std::string tokens_file;
  int64_t threads = 0;
  int64_t park_max = 2048;
  int64_t park_max_per_actor = 256;
  int64_t park_memory_bytes = 64 << 20;
  int64_t connections_max = 20'000;
  int64_t connections_per_address = 1'000;
};

void DeclareListeners(Options* o, Settings* s) {
  router::RouterOptions& r = s->router;
  o->Strings("router-listen", &r.listen, "addresses (ip:port) for requests to actors");
  o->String("router-admin-listen", &r.admin_listen,
            "address of /healthz, /readyz, /statusz and /metrics; empty = none");
  o->Bool("insecure-public", &s->insecure_public,
          "allow --router-listen addresses that other machines can reach");
  o->String("authorize-tokens-file", &s->tokens_file,
            "who may reach which atespace, see operate.md; empty = everybody");
  o->Int("router-threads", &s->threads, 0, 64, "threads; 0 = one per core, at most 4");
  o->String("api-socket", &s->api_socket, "socket of the apiserver, or host:port");
  o->String("registry-socket", &s->registry_socket,
            "socket of the apiserver for activity reports, or host:port");
  o->Strings("actor-domain", &r.actor_domains, "host name suffixes: <actor>.<atespace>.<suffix>");
  o->Strings("target-header-hosts", &r.target_header_hosts,
             "host names under which the header ate-target-actor may be used");
  o->Strings("trusted-proxies", &r.trusted_proxies,
             "addresses or networks whose x-forwarded-* fields are kept");
  o->String("access-log", &s->access_log, "stderr, off, or the path of a file");
  o->Choice("server-timing", &s->server_timing, {"on", "off"},
            "whether answers carry Server-Timing");
}

void DeclareLimits(Options* o, Settings* s) {
  router::RouterOptions& r = s->router;
  o->DurationFlag("park-budget", &r.park_budget, milliseconds(0), minutes(10),
                  "how long a request waits for its actor to wake");
  o->DurationFlag("park-budget-max", &r.park_budget_max, milliseconds(0), minutes(60),
                  "the same while a cold wake (image or snapshot from elsewhere) is under way");
  o->Int("park-max", &s->park_max, 0, 1'000'000, "parked requests; 0 = one attempt, no waiting");
  o->Int("park-max-per-actor", &s->park_max_per_actor, 1, 1'000'000, "parked requests per actor");
  o->Bytes("park-memory-bytes", &s->park_memory_bytes, 0, "memory of parked requests");
  o->Int("client-connections-max", &s->connections_max, 1, 1'000'000, "client connections");
  o->Int("client-connections-per-address", &s->connections_per_address, 1, 1'000'000,
         "client connections of one address (loopback excepted)");
  o->Int("rate-limit-per-address", &r.rate_per_address, 0, 1'000'000,
         "requests per second of one client address (IPv6: /64 network); 0 = no limit");
  o->Int("rate-limit-per-atespace", &r.rate_per_atespace, 0, 1'000'000,
         "requests per second for the actors of one atespace; 0 = no limit");
  o->DurationFlag("head-timeout", &r.head_timeout, milliseconds(10), hours(1),
                  "for a request's head, from its first byte");
  o->DurationFlag("first-byte-timeout", &r.first_byte_timeout, milliseconds(0), hours(24 * 7),
                  "for the first byte of an answer; 0 = none");
  o->DurationFlag("stream-idle-timeout", &r.stream_idle_timeout, milliseconds(0), hours(24 * 7),
                  "after the last byte in either direction; 0 = none");
  o->DurationFlag("keep-alive-timeout", &r.keep_alive_timeout, milliseconds(10), hours(24),
                  "for idle client connections");
  o->DurationFlag("shutdown-grace", &r.shutdown_grace, milliseconds(0), hours(1),
                  "how long requests under way may go on after SIGTERM");
}

// A path of a socket, or an address that rpc::Connect knows.
std::string TargetOf(const std::string& text) {
  return text.starts_with('/') ? "unix:" + text : text;
}

Status Complete(Settings* s) {
  router::RouterOptions& r = s->router;
  r.threads = static_cast<int>(s->threads);
  r.park.requests_max = static_cast<size_t>(s->park_max);
  r.park.per_actor_max = static_cast<size_t>(s->park_max_per_actor);
  r.park.memory_bytes_max = static_cast<size_t>(s->park_memory_bytes);
  r.connections_max = static_cast<size_t>(s->connections_max);
  r.connections_per_address = static_cast<size_t>(s->connections_per_address);
  r.server_timing = s->server_timing == "on";
  r.router_id = "router-" + RandomHex(4);
  return router::CheckOptions(r, s->insecure_public || !s->tokens_file.empty());
}

StatusOr<UniqueFd> OpenAccessLog(Settings* s) {
  if (s->access_log == "off") return UniqueFd();
  if (s->access_log == "stderr") {
    s->router.access_log_fd = STDERR_FILENO;
    return UniqueFd();
  }
  UniqueFd fd(open(s->access_log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + s->access_log);
  s->router.access_log_fd = fd.get();
  return fd;
}

Status Run(Settings* settings, Role& role) {
  ASSIGN_OR_RETURN(UniqueFd log, OpenAccessLog(settings));
  auto resolver =
      router::MakeApiResolver(rpc::Connect(TargetOf(settings->api_socket)), Clock::Real());
  auto reporter = router::MakeActivityReporter(rpc::Connect(TargetOf(settings->registry_socket)));
  std::unique_ptr<router::TokenFile> tokens;
  if (!settings->tokens_file.empty()) {
    ASSIGN_OR_RETURN(tokens, router::TokenFile::Open(settings->tokens_file));
  }
  router::Router::Parts parts{resolver.get(), reporter.get(), Clock::Real(), tokens.get()};
  settings->router.more_metrics = [&role] { return role.metrics()->Render(); };
  ASSIGN_OR_RETURN(auto router, router::Router::Start(settings->router, parts));
  RETURN_IF_ERROR(
      role.ServeUntilSignal("", {{"port", fmt::to_string(router->port())},
                                 {"admin_port", fmt::to_string(router->admin_port())}}));
  router->Shutdown();
  // Calls back into the router until it is gone, so it goes first.
  resolver.reset();
  reporter.reset();
  router.reset();
  return OkStatus();
}

}  // namespace

int RouterCommand(const Args& args) {
  Settings settings;
  return RunRole(args, {.name = "router",
                        .title = "torpor router: HTTP to actors",
                        .declare =
                            [&](Options* o) {
                              DeclareListeners(o, &settings);
                              DeclareLimits(o, &settings);
                            },
                        .complete = [&] { return Complete(&settings); },
                        .run = [&](Role& role) { return Run(&settings, role); }});
}

}  // namespace torpor
