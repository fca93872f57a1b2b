#include "runtime/fake/fake_guest.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>

#include <fmt/format.h>

#include "model/reasons.h"

namespace torpor::runtime {
namespace {

constexpr std::string_view kMagic = "torpor-fake-memory-1\n";

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return;  // like a guest whose output nobody reads
    done += static_cast<size_t>(n);
  }
}

// The number of "?a=1&b=2" by its name; 0 without one.
int64_t Parameter(const std::string& path, const std::string& name) {
  for (size_t at = path.find_first_of("?&"); at != std::string::npos;
       at = path.find_first_of("?&", at + 1)) {
    if (path.compare(at + 1, name.size() + 1, name + "=") == 0) {
      return std::atoll(path.c_str() + at + 2 + name.size());
    }
  }
  return 0;
}

}  // namespace

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
  return fmt::format("executed {} twice {} skipped {}", executed_, twice_, skipped_.size());
}

std::string RequestLog::Save() const {
  std::string line = fmt::format("{} {} {}", last_, executed_, twice_);
  for (int64_t number : skipped_) line += fmt::format(" {}", number);
  return line;
}

RequestLog RequestLog::Load(const std::string& line) {
  RequestLog log;
  std::istringstream in(line);
  in >> log.last_ >> log.executed_ >> log.twice_;
  for (int64_t number; in >> number;) log.skipped_.insert(number);
  return log;
}

FakeGuest::FakeGuest(std::function<void(SandboxExit)> on_exit, int stdout_fd)
    : on_exit_(std::move(on_exit)) {
  if (stdout_fd >= 0) stdout_ = UniqueFd(fcntl(stdout_fd, F_DUPFD_CLOEXEC, 0));
}

FakeGuest::~FakeGuest() = default;

std::string FakeGuest::Save() const {
  MutexLock lock(&mu_);
  std::string image = std::string(kMagic) + fmt::format("{} {}\n", counter_, files_.size());
  for (const auto& [name, text] : files_) image += name + ' ' + text + '\n';
  for (const auto& [client, log] : requests_)
    image += fmt::format("once {} {}\n", client, log.Save());
  return image + "end\n";
}

Status FakeGuest::Load(std::string_view image) {
  Status corrupt = Fail(reasons::kSnapshotCorrupt, "the fake memory image is not one");
  if (image.substr(0, kMagic.size()) != kMagic) return corrupt;
  std::istringstream in{std::string(image.substr(kMagic.size()))};
  int64_t counter = 0;
  size_t count = 0;
  if (!(in >> counter >> count)) return corrupt;
  std::map<std::string, std::string> files;
  std::string line;
  std::getline(in, line);
  for (size_t i = 0; i < count; ++i) {
    size_t space;
    if (!std::getline(in, line) || (space = line.find(' ')) == std::string::npos) return corrupt;
    files[line.substr(0, space)] = line.substr(space + 1);
  }
  std::map<int64_t, RequestLog> requests;
  while (std::getline(in, line) && line.compare(0, 5, "once ") == 0) {
    const size_t rest = line.find(' ', 5);
    if (rest == std::string::npos) return corrupt;
    requests[std::atoll(line.c_str() + 5)] = RequestLog::Load(line.substr(rest + 1));
  }
  if (line != "end") return corrupt;
  MutexLock lock(&mu_);
  requests_ = std::move(requests);
  counter_ = counter;
  files_ = std::move(files);
  return OkStatus();
}

Status FakeGuest::ServeHttp(const std::string& netns_path, int port) {
  auto answer = [this](const std::string& path) { return HttpAnswer(path); };
  ASSIGN_OR_RETURN(auto http, HttpListener::Start(netns_path, port, answer));
  MutexLock lock(&mu_);
  http_ = std::move(http);
  return OkStatus();
}

int FakeGuest::http_port() const {
  MutexLock lock(&mu_);
  return http_ == nullptr ? 0 : http_->port();
}

std::string FakeGuest::HttpAnswer(const std::string& path) {
  if (path == "/readyz") return "ok\n";
  if (path.compare(0, 6, "/once?") == 0) return ServeOnce(path);
  if (path.compare(0, 10, "/executed?") == 0) {
    MutexLock lock(&mu_);
    return requests_[Parameter(path, "client")].ToString() + "\n";
  }
  auto answer = Ask("next");
  return answer.ok() ? *answer + "\n" : "";
}

// Counts first and answers later, like a guest that works for a while. An end ends the wait, too.
std::string FakeGuest::ServeOnce(const std::string& path) {
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(Parameter(path, "ms"));
  MutexLock lock(&mu_);
  if (ended_) return "";
  RequestLog& log = requests_[Parameter(path, "client")];
  log.Execute(Parameter(path, "number"));
  const std::string answer = log.ToString() + "\n";
  while (!ended_ && std::chrono::steady_clock::now() < until) {
    ended_changed_.WaitUntil(&mu_, until);
  }
  return ended_ ? "" : answer;
}

StatusOr<std::string> FakeGuest::Ask(const std::string& line) {
  std::istringstream words(line);
  std::string verb, name, text;
  words >> verb >> name;
  std::getline(words, text);
  if (!text.empty()) text.erase(0, 1);
  if (verb == "exit") {
    End({std::atoi(name.c_str()), 0}, true);
    return Error(Code::kUnavailable, reasons::kInternal.name, "the guest has ended");
  }
  MutexLock lock(&mu_);
  if (ended_) return Error(Code::kUnavailable, reasons::kInternal.name, "the guest has ended");
  if (verb == "next") return std::to_string(++counter_);
  if (verb == "out") {
    if (stdout_.valid()) WriteAll(stdout_.get(), line.substr(4) + "\n");
    return std::string("ok");
  }
  if (verb == "write") {
    files_[name] = text;
    return std::string("ok");
  }
  if (verb == "read") return files_.count(name) != 0 ? files_[name] : std::string("missing");
  return std::string("unknown");
}

bool FakeGuest::End(SandboxExit exit, bool news) {
  std::function<void(SandboxExit)> on_exit;
  std::unique_ptr<HttpListener> http;  // destroyed without the lock: its threads may wait for it
  {
    MutexLock lock(&mu_);
    if (ended_) return false;
    ended_ = true;
    ended_changed_.SignalAll();
    stdout_.Reset();
    std::swap(on_exit, on_exit_);
    std::swap(http, http_);
  }
  http.reset();
  if (news && on_exit) on_exit(exit);
  return true;
}

bool FakeGuest::ended() const {
  MutexLock lock(&mu_);
  return ended_;
}

}  // namespace torpor::runtime
