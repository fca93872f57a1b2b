#include "router/answer/access_log.h"

#include <errno.h>
#include <unistd.h>

#include "router/answer/json.h"
#include "router/answer/server_timing.h"

namespace torpor::router {
namespace {

constexpr size_t kWriteMax = 4096;  // PIPE_BUF

}  // namespace

void AccessLog::Write(const AccessRecord& record, WallTime now) {
  if (!on()) return;
  int64_t second = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (second != stamp_second_) {
    stamp_second_ = second;
    stamp_ = FormatRfc3339(now);
  }
  line_.clear();
  JsonLine json(&line_);
  json.Text("time", stamp_);
  json.Text("kind", "access");
  json.Text("client", record.client);
  json.Text("method", record.method);
  json.Text("path", record.path);
  json.Number("status", record.status);
  if (!record.reason.empty()) json.Text("reason", record.reason);
  if (!record.actor.empty()) json.Text("actor", record.actor);
  if (record.generation > 0) json.Number("generation", record.generation);
  json.Millis("ms", record.total_ms);
  if (record.park_ms > 0) json.Millis("park_ms", record.park_ms);
  json.Millis("actor_ms", record.actor_ms);
  json.Text("wake", WakeName(record.wake));
  json.Bool("reused", record.reused);
  json.Number("bytes_in", static_cast<int64_t>(record.bytes_in));
  json.Number("bytes_out", static_cast<int64_t>(record.bytes_out));
  json.Text("request_id", record.request_id);
  if (!record.trace_id.empty()) json.Text("trace_id", record.trace_id);
  json.Close();
  line_.push_back('\n');
  if (buffer_.size() + line_.size() > kWriteMax) Flush();
  buffer_.append(line_);
}

void AccessLog::Flush() {
  size_t done = 0;
  while (on() && done < buffer_.size()) {
    ssize_t n = write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // A log that cannot be written must not stop traffic.
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

}  // namespace torpor::router
