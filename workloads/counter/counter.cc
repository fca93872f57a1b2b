#include "workloads/counter/counter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "workloads/base/digest.h"
#include "workloads/base/flags.h"
#include "workloads/base/io.h"
#include "workloads/http/websocket.h"

namespace torpor::workloads::counter {
namespace {

constexpr size_t kRandomFileBytes = 1 << 20;
constexpr std::chrono::seconds kLogInterval{10};
constexpr int64_t kMaxEvents = 100'000;
constexpr int64_t kMaxWaitMs = 24LL * 3600 * 1000;
constexpr int64_t kMaxNumber = 1'000'000'000;

// Adds one to the decimal number in a file, which is 0 if the file is missing or empty. The file
// is opened every time, because a durable directory may be another mount after a restore. One
// pwrite makes the change whole: the number only grows, so its text never gets shorter.
std::optional<uint64_t> IncrementFile(const std::string& path, std::string* error) {
  UniqueFd fd = OpenFile(path, O_RDWR | O_CREAT);
  char text[32] = "";
  const ssize_t size = fd.ok() ? ReadFull(fd.get(), text, sizeof(text) - 1) : -1;
  if (size < 0) {
    *error = ErrnoText(path);
    return std::nullopt;
  }
  const uint64_t next = std::strtoull(text, nullptr, 10) + 1;
  const std::string line = std::to_string(next) + "\n";
  ssize_t written;
  do {
    written = ::pwrite(fd.get(), line.data(), line.size(), 0);
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size())) {
    *error = ErrnoText(path);
    return std::nullopt;
  }
  return next;
}

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') json.push_back('\\');
    if (static_cast<unsigned char>(c) < ' ') {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      json += escape;
    } else {
      json.push_back(c);
    }
  }
  return json + "\"";
}

std::string FirstLine(const std::optional<std::string>& text) {
  return text ? text->substr(0, text->find('\n')) : std::string();
}

bool IntegerParameter(const http::Request& request, std::string_view name, int64_t fallback,
                      int64_t max, int64_t* value) {
  *value = fallback;
  const std::optional<std::string_view> text = request.Parameter(name);
  return !text || ParseInteger(*text, 0, max, value);
}

// Sends a request body back while it still arrives.
class EchoSink : public http::BodySink {
 public:
  explicit EchoSink(http::Reply reply) : reply_(reply) {}
  void OnData(std::string_view data) override { reply_.Write(data); }
  void OnEnd() override { reply_.End(); }

 private:
  const http::Reply reply_;
};

}  // namespace

// The same account is kept by the guest of the fake runtime (src/runtime/fake), which links nothing
// of the workloads.
void RequestLog::Execute(int64_t number) {
  ++executed_;
  if (number > last_) {
    for (int64_t i = last_ + 1; i < number; ++i) skipped_.insert(i);
    last_ = number;
  } else if (skipped_.erase(number) == 0) {
    ++twice_;
  }
}

std::string RequestLog::ToString() const {
  return "executed " + std::to_string(executed_) + " twice " + std::to_string(twice_) +
         " skipped " + std::to_string(skipped_.size());
}

Counter::Counter(http::Server* server, Options options)
    : server_(server), options_(std::move(options)), boot_uuid_(NewUuid()) {}

void Counter::Start() {
  server_->After(std::chrono::milliseconds(options_.ready_delay_ms), [this] { WriteRandomFile(); });
  server_->After(kLogInterval, [this] { LogPeriodically(); });
}

void Counter::WriteRandomFile() {
  std::vector<char> content(kRandomFileBytes);
  KernelRandom(content.data(), content.size());
  UniqueFd fd = OpenFile(options_.random_file, O_WRONLY | O_CREAT | O_TRUNC);
  if (!fd.ok() || !WriteFull(fd.get(), content.data(), content.size())) {
    LogLine("counter: not ready: " + ErrnoText(options_.random_file));
    return;
  }
  ready_ = true;
  LogLine("counter: ready");
}

void Counter::LogPeriodically() {
  server_->After(kLogInterval, [this] { LogPeriodically(); });
  const auto content = ReadSmallFile(options_.random_file, kRandomFileBytes);
  std::string hash = "unreadable";
  if (content) {
    const Sha256::Digest digest = Sha256::Of(*content);
    hash = Hex(digest.data(), digest.size());
  }
  LogLine("counter: line " + std::to_string(++log_lines_) + " memory count " +
          std::to_string(memory_count_) + " sha256 of " + options_.random_file + " " + hash);
}

std::unique_ptr<http::BodySink> Counter::OnHead(const http::Request& head,
                                                const http::Reply& reply) {
  if (head.path != "/echo" || head.method != "POST") return nullptr;
  http::Response response;
  const std::string_view type = head.Header("content-type");
  response.content_type = type.empty() ? "application/octet-stream" : std::string(type);
  std::optional<uint64_t> length = head.content_length;
  if (!length && !head.chunked) length = 0;
  reply.Begin(response, length);
  return std::make_unique<EchoSink>(reply);
}

void Counter::OnRequest(http::Request request, http::Reply reply) {
  if (request.path == "/readyz") {
    return reply.Send(http::TextResponse(ready_ ? 200 : 503, ready_ ? "ok" : "not ready"));
  }
  if (request.path == "/state") {
    http::Response response = http::TextResponse(200, StateJson());
    response.content_type = "application/json";
    return reply.Send(std::move(response));
  }
  if (request.path == "/sse") return ServeEvents(request, reply);
  if (request.path == "/slow") return ServeSlowly(request, reply);
  if (request.path == "/once") return ServeOnce(request, reply);
  if (request.path == "/executed") return ServeExecuted(request, reply);
  if (request.path == "/ws") return http::ServeWebSocketEcho(request, reply);
  if (request.path == "/echo") {
    http::Response response = http::TextResponse(405, "POST a body to /echo\n");
    response.headers.emplace_back("Allow", "POST");
    return reply.Send(std::move(response));
  }
  Count(reply);
}

void Counter::Count(const http::Reply& reply) {
  std::string error;
  const uint64_t memory = ++memory_count_;
  const std::optional<uint64_t> file = IncrementFile(options_.home_dir + "/a.txt", &error);
  if (!file) return reply.Send(http::TextResponse(500, error + "\n"));
  reply.Send(http::TextResponse(200, "hello from: " + reply.LocalAddress() +
                                         " | preserved memory count: " + std::to_string(memory) +
                                         " | preserved file counter: " + std::to_string(*file) +
                                         "\n"));
}

void Counter::ServeEvents(const http::Request& request, const http::Reply& reply) {
  int64_t count = 0;
  int64_t interval_ms = 0;
  if (!IntegerParameter(request, "n", 10, kMaxEvents, &count) ||
      !IntegerParameter(request, "ms", 1000, kMaxWaitMs, &interval_ms)) {
    return reply.Send(http::TextResponse(400, "n and ms must be small integers\n"));
  }
  http::Response head;
  head.content_type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-store");
  reply.Begin(head, std::nullopt);
  NextEvent(reply, 0, count, interval_ms);
}

void Counter::NextEvent(const http::Reply& reply, int64_t index, int64_t count,
                        int64_t interval_ms) {
  if (!reply.Open()) return;
  if (index == count) return reply.End();
  const std::string number = std::to_string(index);
  reply.Write("id: " + number + "\ndata: {\"n\":" + number +
              ",\"memory\":" + std::to_string(memory_count_) + "}\n\n");
  if (index + 1 == count) return reply.End();
  server_->After(std::chrono::milliseconds(interval_ms), [this, reply, index, count, interval_ms] {
    NextEvent(reply, index + 1, count, interval_ms);
  });
}

void Counter::ServeOnce(const http::Request& request, const http::Reply& reply) {
  int64_t client = 0;
  int64_t number = 0;
  int64_t wait_ms = 0;
  if (!IntegerParameter(request, "client", 0, kMaxNumber, &client) ||
      !IntegerParameter(request, "number", 0, kMaxNumber, &number) || number == 0 ||
      !IntegerParameter(request, "ms", 0, kMaxWaitMs, &wait_ms)) {
    return reply.Send(http::TextResponse(400, "client, number and ms must be small integers\n"));
  }
  RequestLog& log = requests_[client];
  log.Execute(number);
  const std::string answer = log.ToString() + "\n";
  server_->After(std::chrono::milliseconds(wait_ms),
                 [reply, answer] { reply.Send(http::TextResponse(200, answer)); });
}

void Counter::ServeExecuted(const http::Request& request, const http::Reply& reply) {
  int64_t client = 0;
  if (!IntegerParameter(request, "client", 0, kMaxNumber, &client)) {
    return reply.Send(http::TextResponse(400, "client must be a small integer\n"));
  }
  reply.Send(http::TextResponse(200, requests_[client].ToString() + "\n"));
}

void Counter::ServeSlowly(const http::Request& request, const http::Reply& reply) {
  int64_t wait_ms = 0;
  if (!IntegerParameter(request, "ms", 1000, kMaxWaitMs, &wait_ms)) {
    return reply.Send(http::TextResponse(400, "ms must be a small integer\n"));
  }
  server_->After(std::chrono::milliseconds(wait_ms), [reply, wait_ms] {
    reply.Send(http::TextResponse(200, "answered after " + std::to_string(wait_ms) + " ms\n"));
  });
}

std::string Counter::StateJson() const {
  unsigned char random[16];
  KernelRandom(random, sizeof(random));
  char hostname[256] = "";
  ::gethostname(hostname, sizeof(hostname) - 1);
  const std::string file = FirstLine(ReadSmallFile(options_.home_dir + "/a.txt", 32));
  const std::string name = FirstLine(ReadSmallFile(options_.system_info_dir + "/name"));
  const std::string generation = FirstLine(ReadSmallFile(options_.system_info_dir + "/generation"));
  return "{\"memory\":" + std::to_string(memory_count_) +
         ",\"file\":" + std::to_string(std::strtoull(file.c_str(), nullptr, 10)) +
         ",\"boot_uuid\":" + JsonString(boot_uuid_) + ",\"fresh_uuid\":" + JsonString(NewUuid()) +
         ",\"random\":" + JsonString(Hex(random, sizeof(random))) +
         ",\"wall_ns\":" + std::to_string(WallNs()) +
         ",\"monotonic_ns\":" + std::to_string(MonotonicNs()) +
         ",\"hostname\":" + JsonString(hostname) + ",\"actor_name\":" + JsonString(name) +
         ",\"generation\":" + JsonString(generation) + "}\n";
}

}  // namespace torpor::workloads::counter
