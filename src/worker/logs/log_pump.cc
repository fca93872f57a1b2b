#include "worker/logs/log_pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "base/log.h"
#include "worker/logs/log_file.h"

namespace torpor::worker {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 16;
constexpr size_t kLastLinesMax = 10;
constexpr size_t kLastLineBytesMax = 400;

}  // namespace

// What the streams of one session share.
struct LogSession::State {
  State(os::DirFd logs_dir, int64_t generation, LogLimits limits, Clock* clock)
      : dir(std::move(logs_dir)),
        generation(generation),
        limits(limits),
        clock(clock),
        budget(limits.bytes_per_second_max, clock->Now()) {}

  void Write(const std::string& container, std::string_view stream, std::string_view line,
             bool truncated) EXCLUDES(mu);
  void WriteDropped(const std::string& container, int64_t lines) REQUIRES(mu);
  LogFile& FileOf(const std::string& container) REQUIRES(mu);

  const os::DirFd dir;
  const int64_t generation;
  const LogLimits limits;
  Clock* const clock;
  mutable Mutex mu;
  CondVar changed;
  int open_streams GUARDED_BY(mu) = 0;
  bool stopped GUARDED_BY(mu) = false;
  bool failure_logged GUARDED_BY(mu) = false;
  RateBudget budget GUARDED_BY(mu);
  std::map<std::string, int64_t> dropped GUARDED_BY(mu);  // by container
  std::map<std::string, std::unique_ptr<LogFile>> files GUARDED_BY(mu);
  std::deque<std::string> last_lines GUARDED_BY(mu);
};

struct LogPump::Stream {
  UniqueFd fd;
  std::shared_ptr<LogSession::State> session;
  std::string container;
  std::string_view name;
  LineSplitter splitter;
};

LogFile& LogSession::State::FileOf(const std::string& container) {
  std::unique_ptr<LogFile>& file = files[container];
  if (file == nullptr) {
    file = std::make_unique<LogFile>(&dir, container + ".log", limits.file_bytes_max);
  }
  return *file;
}

void LogSession::State::WriteDropped(const std::string& container, int64_t lines) {
  (void)FileOf(container).Append(
      FormatLogLine({.time = clock->WallNow(),
                     .container = container,
                     .stream = "torpor",
                     .line = fmt::format("{} lines dropped: more than {} bytes per second", lines,
                                         limits.bytes_per_second_max),
                     .generation = generation,
                     .dropped = lines}));
}

void LogSession::State::Write(const std::string& container, std::string_view stream,
                              std::string_view line, bool truncated) {
  MutexLock lock(&mu);
  if (stopped) return;
  last_lines.emplace_back(line.substr(0, kLastLineBytesMax));
  if (last_lines.size() > kLastLinesMax) last_lines.pop_front();
  if (!budget.Take(static_cast<int64_t>(line.size()) + 1, clock->Now())) {
    ++dropped[container];
    return;
  }
  if (int64_t lines = std::exchange(dropped[container], 0); lines > 0) {
    WriteDropped(container, lines);
  }
  Status status = FileOf(container).Append(FormatLogLine({.time = clock->WallNow(),
                                                          .container = container,
                                                          .stream = stream,
                                                          .line = line,
                                                          .truncated = truncated,
                                                          .generation = generation}));
  if (!status.ok() && !std::exchange(failure_logged, true)) {
    LogWarning("container log not written", {{"error", status.ToString()}});
  }
}

StatusOr<OutputPipes> OutputPipes::Make() {
  OutputPipes pipes;
  for (auto [read_end, write_end] : {std::pair(&pipes.stdout_read, &pipes.stdout_write),
                                     std::pair(&pipes.stderr_read, &pipes.stderr_write)}) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    *read_end = UniqueFd(ends[0]);
    *write_end = UniqueFd(ends[1]);
  }
  return pipes;
}

LogSession::~LogSession() { Finish(MonotonicTime::min()); }

std::map<std::string, runtime::ContainerStdio> LogSession::stdio() const {
  std::map<std::string, runtime::ContainerStdio> all;
  for (const auto& [container, ends] : guest_ends_) {
    all[container] = {.stdout_fd = ends.first.get(), .stderr_fd = ends.second.get()};
  }
  return all;
}

void LogSession::CloseGuestEnds() { guest_ends_.clear(); }

void LogSession::Finish(MonotonicTime deadline) {
  CloseGuestEnds();
  MutexLock lock(&state_->mu);
  while (state_->open_streams > 0 && state_->clock->Now() < deadline) {
    if (!state_->changed.WaitUntil(&state_->mu, deadline)) break;
  }
  if (std::exchange(state_->stopped, true)) return;
  for (const auto& [container, lines] : state_->dropped) {
    if (lines > 0) state_->WriteDropped(container, lines);
  }
  state_->files.clear();
}

std::string LogSession::LastLines() const {
  MutexLock lock(&state_->mu);
  std::string text;
  for (const std::string& line : state_->last_lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

StatusOr<std::unique_ptr<LogPump>> LogPump::Start(Clock* clock, LogLimits limits) {
  auto pump = std::unique_ptr<LogPump>(new LogPump(clock, limits));
  pump->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  pump->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (!pump->epoll_.valid() || !pump->stop_.valid() ||
      epoll_ctl(pump->epoll_.get(), EPOLL_CTL_ADD, pump->stop_.get(), &event) != 0) {
    return ErrnoStatus(errno, "log pump");
  }
  pump->thread_ = std::thread([raw = pump.get()] { raw->Run(); });
  return pump;
}

LogPump::~LogPump() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

StatusOr<std::unique_ptr<LogSession>> LogPump::Open(os::DirFd logs_dir, int64_t generation,
                                                    const std::vector<std::string>& containers,
                                                    std::map<std::string, OutputPipes> made) {
  auto state =
      std::make_shared<LogSession::State>(std::move(logs_dir), generation, limits_, clock_);
  auto session = std::unique_ptr<LogSession>(new LogSession(state));
  for (const std::string& container : containers) {
    auto it = made.find(container);
    OutputPipes pipes;
    if (it != made.end()) {
      pipes = std::move(it->second);
    } else {
      ASSIGN_OR_RETURN(pipes, OutputPipes::Make());
    }
    for (bool is_stdout : {true, false}) {
      UniqueFd& end = is_stdout ? pipes.stdout_read : pipes.stderr_read;
      // Only our end: the guest's writes block for a moment when the pipe is full, as everywhere.
      if (fcntl(end.get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "pipe");
      RETURN_IF_ERROR(
          Add(std::make_shared<Stream>(Stream{.fd = std::move(end),
                                              .session = state,
                                              .container = container,
                                              .name = is_stdout ? "stdout" : "stderr",
                                              .splitter = LineSplitter(limits_.line_bytes_max)})));
    }
    session->guest_ends_[container] = {std::move(pipes.stdout_write),
                                       std::move(pipes.stderr_write)};
  }
  return session;
}

Status LogPump::Add(std::shared_ptr<Stream> stream) {
  Stream* raw = stream.get();
  {
    MutexLock lock(&raw->session->mu);
    ++raw->session->open_streams;
  }
  {
    MutexLock lock(&mu_);
    streams_[raw] = std::move(stream);
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = raw;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, raw->fd.get(), &event) == 0) return OkStatus();
  Status status = ErrnoStatus(errno, "epoll_ctl");
  Drop(raw);
  return status;
}

void LogPump::Drop(Stream* stream) {
  std::shared_ptr<Stream> kept;
  {
    MutexLock lock(&mu_);
    auto it = streams_.find(stream);
    kept = std::move(it->second);
    streams_.erase(it);
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, kept->fd.get(), nullptr);
  MutexLock lock(&kept->session->mu);
  --kept->session->open_streams;
  kept->session->changed.SignalAll();
}

bool LogPump::Drain(Stream& stream) {
  auto sink = [&](std::string_view line, bool truncated) {
    stream.session->Write(stream.container, stream.name, line, truncated);
  };
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    ssize_t size = read(stream.fd.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0) {
      stream.splitter.End(sink);
      return true;
    }
    stream.splitter.Feed({buffer.data(), static_cast<size_t>(size)}, sink);
  }
  return false;
}

void LogPump::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      auto* stream = static_cast<Stream*>(events[static_cast<size_t>(i)].data.ptr);
      if (stream == nullptr) return;
      if (Drain(*stream)) Drop(stream);
    }
  }
}

}  // namespace torpor::worker
