#include "cli/session.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sync.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

volatile sig_atomic_t interrupted = 0;

std::string TrimmedFile(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  return text;
}

bool report_as_json = false;

void CatchInterrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
}

// What a caller can do about a failure; the API's own message comes first.
std::string Advice(const Status& status) {
  const std::string reason = ReasonOf(status);
  const ErrorMetadata metadata = MetadataOf(status);
  const auto actor = metadata.find("actor");
  const std::string name = actor == metadata.end() ? "ACTOR" : actor->second;
  static constexpr std::pair<const char*, const char*> kByReason[] = {
      {"ACTOR_CRASHED", "torpor revert {} brings the last durable state back; torpor why {}"},
      {"NO_CAPACITY", "torpor why {} says what each worker lacks; pause or suspend other actors"},
      {"OPERATION_IN_PROGRESS", "try again in a moment; torpor why {} shows what is under way"},
      {"VERSION_CONFLICT", "somebody else changed it; try again"},
      {"NOT_IMPLEMENTED", "this server does not have it yet"},
      {"UNAUTHENTICATED", "pass --token-file or TORPOR_TOKEN"},
      {"ACTOR_NOT_FOUND", "torpor get actors -A shows the actors of all atespaces"},
      {"TEMPLATE_NOT_FOUND", "torpor get templates -A shows those of all atespaces"},
      {"WORKLOAD_NOT_READY", "torpor logs {} shows what it printed; check --port and --probe"},
      {"WORKLOAD_EXITED", "torpor logs {} shows what it printed; torpor why {}"},
      {"OUT_OF_MEMORY", "a template with more --memory; torpor why {}"},
      {"DISK_FULL", "free space below the data directory; torpor node status"},
      {"LOCAL_SNAPSHOT_GONE", "torpor revert {} brings the last durable state back"},
      {"SNAPSHOT_CORRUPT", "torpor revert {} brings the last durable state back"},
      {"NODE_UNREACHABLE", "torpor node status; torpor status on that machine"},
      {"DEADLINE_EXCEEDED", "torpor why {} shows how far it is"},
      {"CANCELLED", "torpor why {} shows how far it is"},
      {"WRONG_STATE", "torpor get actor {} shows its state"},
  };
  // A call that waits for no operation of an actor says itself what goes on.
  const bool stopped = reason == "DEADLINE_EXCEEDED" || reason == "CANCELLED";
  if (stopped && actor == metadata.end()) return "";
  for (const auto& [known, advice] : kByReason) {
    if (reason != known) continue;
    std::string out = advice;
    for (size_t at = 0; (at = out.find("{}")) != std::string::npos;) out.replace(at, 2, name);
    return out;
  }
  if (reason.empty() && status.code() == Code::kUnavailable) {
    return "is torpor up? pass --endpoint or TORPOR_ENDPOINT";
  }
  return actor == metadata.end() ? "" : "torpor why " + name + " shows its last operation";
}

}  // namespace

ateapi::ObjectRef Session::Ref(const std::string& name) const {
  ateapi::ObjectRef ref;
  size_t slash = name.find('/');
  ref.set_atespace(slash == std::string::npos ? settings_.atespace : name.substr(0, slash));
  ref.set_name(slash == std::string::npos ? name : name.substr(slash + 1));
  return ref;
}

std::string Session::endpoint() const {
  if (!settings_.endpoint.empty()) return settings_.endpoint;
  const std::string socket = settings_.dir + "/run/api.sock";
  return access(socket.c_str(), R_OK | W_OK) == 0 ? "unix:" + socket : "127.0.0.1:7700";
}

void Session::Connect() {
  if (channel_ != nullptr) return;
  rpc::ConnectOptions options;
  options.message_bytes_max = rpc::kPublicMessageBytesMax;
  if (const char* token = getenv("TORPOR_TOKEN")) options.token = token;
  if (options.token.empty()) {
    options.token =
        TrimmedFile(settings_.token_file.empty() ? settings_.dir + "/token" : settings_.token_file);
  }
  channel_ = rpc::Connect(endpoint(), options);
}

ateapi::Control::Stub& Session::control() {
  Connect();
  if (control_ == nullptr) control_ = ateapi::Control::NewStub(channel_);
  return *control_;
}

torpor::v1::Ops::Stub& Session::ops() {
  Connect();
  if (ops_ == nullptr) ops_ = torpor::v1::Ops::NewStub(channel_);
  return *ops_;
}

StatusOr<Duration> Session::Timeout(Duration fallback) const {
  if (settings_.timeout.empty()) return fallback;
  return ParseDuration(settings_.timeout);
}

std::unique_ptr<grpc::ClientContext> Session::NewContext(Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  rpc::SetDeadline(context.get(), timeout);
  return context;
}

Status Session::Wait(const Starter& start) {
  ASSIGN_OR_RETURN(Duration timeout, Timeout(std::chrono::minutes(10)));
  CatchInterrupts();
  Mutex mu;
  CondVar changed;
  bool done = false;
  grpc::Status result;
  auto context = NewContext(timeout);
  start(context.get(), [&](grpc::Status status) {
    MutexLock lock(&mu);
    result = std::move(status);
    done = true;
    changed.SignalAll();
  });
  const MonotonicTime begin = Clock::Real()->Now();
  const bool terminal = isatty(STDERR_FILENO) != 0 && !settings_.quiet;
  bool shown = false;
  bool left = false;
  MonotonicTime next_show = begin + seconds(1);
  while (true) {
    bool show = false;
    {
      MutexLock lock(&mu);
      if (!done) changed.WaitUntil(&mu, Clock::Real()->Now() + milliseconds(100));
      if (done) break;
      show = terminal && Clock::Real()->Now() >= next_show;
    }
    if (interrupted != 0 && !left) {
      left = true;
      context->TryCancel();
    }
    if (show && progress_ != nullptr) {
      // The progress call must not show progress of its own.
      auto progress = std::exchange(progress_, nullptr);
      std::string text = progress();
      progress_ = std::move(progress);
      fprintf(stderr, "\r\033[K%s  %s", FormatDuration(Clock::Real()->Now() - begin).c_str(),
              text.c_str());
      shown = true;
      next_show = Clock::Real()->Now() + milliseconds(500);
    }
  }
  if (shown) fprintf(stderr, "\r\033[K");
  Status status = rpc::FromGrpc(result);
  const bool late = status.code() == Code::kDeadlineExceeded && ReasonOf(status).empty();
  if (!late && !(left && status.code() == Code::kCancelled)) return status;
  return StoppedWaiting(status.code(), Clock::Real()->Now() - begin);
}

Status Session::StoppedWaiting(Code code, Duration waited) const {
  const char* reason = code == Code::kCancelled ? "CANCELLED" : "DEADLINE_EXCEEDED";
  if (actor_.empty()) {
    return Error(code, reason,
                 fmt::format("stopped waiting after {}; {} has not answered",
                             FormatDuration(waited), endpoint()));
  }
  return Error(
      code, reason,
      fmt::format("stopped waiting after {}; the operation goes on", FormatDuration(waited)),
      {{"actor", actor_}});
}

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return ReasonOf(status) == kWrongUsage ? 2 : 1;
    case Code::kNotFound:
      return 4;
    case Code::kAlreadyExists:
    case Code::kAborted:
    case Code::kFailedPrecondition:
      return 5;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kResourceExhausted:
    case Code::kCancelled:
      return 6;
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return 7;
    default:
      return 1;
  }
}

std::string ErrorJson(const Status& status) {
  nlohmann::ordered_json error;
  error["code"] = absl::StatusCodeToString(status.code());
  error["reason"] = ReasonOf(status);
  error["message"] = std::string(status.message());
  error["advice"] = Advice(status);
  error["metadata"] = MetadataOf(status);
  error["exitCode"] = ExitCodeOf(status);
  nlohmann::ordered_json out;
  out["error"] = std::move(error);
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void ReportAsJson() { report_as_json = true; }

int Report(const Status& status) {
  if (status.ok()) return 0;
  if (report_as_json) {
    fprintf(stderr, "%s\n", ErrorJson(status).c_str());
    return ExitCodeOf(status);
  }
  std::string reason = ReasonOf(status);
  std::string line = "error: " + std::string(status.message());
  if (!reason.empty()) line += " (" + reason + ")";
  std::string advice = Advice(status);
  if (!advice.empty()) line += ": " + advice;
  for (const auto& [key, title] : {std::pair{"step", "step"}, {"last_line", "last line"}}) {
    const ErrorMetadata metadata = MetadataOf(status);
    auto found = metadata.find(key);
    if (found != metadata.end()) line += std::string("\n  ") + title + ": " + found->second;
  }
  fprintf(stderr, "%s\n", line.c_str());
  return ExitCodeOf(status);
}

bool Interrupted() { return interrupted != 0; }

bool SleepUnlessInterrupted(Duration d) {
  CatchInterrupts();
  const MonotonicTime until = Clock::Real()->Now() + d;
  while (interrupted == 0 && Clock::Real()->Now() < until) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::Real()->Now());
    poll(nullptr, 0, static_cast<int>(std::min<int64_t>(left.count() + 1, 100)));
  }
  return interrupted == 0;
}

}  // namespace torpor::cli
