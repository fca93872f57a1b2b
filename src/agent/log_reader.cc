#include "agent/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>
#include <nlohmann/json.hpp>

#include "model/names.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::LogLine;
using torpor::v1::ReadLogsRequest;

constexpr size_t kLineBytesMax = 1 << 20;  // 64 KiB of text, escaped
constexpr auto kFollowPause = std::chrono::milliseconds(100);
constexpr std::string_view kSuffix = ".log";

// One growing file: complete lines from where the last call stopped.
class LogTail {
 public:
  LogTail(os::DirFd dir, std::string file) : dir_(std::move(dir)), file_(std::move(file)) {}

  // Passes every new line on; false when the consumer has had enough.
  bool Drain(const std::function<bool(std::string_view)>& line) {
    if (!fd_.valid() && !Open()) return true;
    if (!DrainOpen(line)) return false;
    // Rotated: what was open is drained now, the new file begins at its start.
    auto stat = dir_.Stat(file_);
    if (!stat.ok() || stat->st_ino == inode_) return true;
    if (!DrainOpen(line)) return false;
    fd_.Reset();
    return !Open() || DrainOpen(line);
  }

 private:
  bool Open() {
    auto fd = dir_.OpenRegular(file_, O_RDONLY);
    if (!fd.ok()) return false;
    struct stat st;
    if (fstat(fd->get(), &st) != 0) return false;
    fd_ = *std::move(fd);
    inode_ = st.st_ino;
    partial_.clear();
    return true;
  }

  bool DrainOpen(const std::function<bool(std::string_view)>& line) {
    char buffer[65536];
    for (;;) {
      ssize_t n = read(fd_.get(), buffer, sizeof buffer);
      if (n <= 0) return true;
      partial_.append(buffer, static_cast<size_t>(n));
      size_t from = 0;
      for (size_t end = partial_.find('\n'); end != std::string::npos;
           end = partial_.find('\n', from)) {
        if (!line(std::string_view(partial_).substr(from, end - from))) return false;
        from = end + 1;
      }
      partial_.erase(0, from);
      if (partial_.size() > kLineBytesMax) partial_.clear();
    }
  }

  const os::DirFd dir_;
  const std::string file_;
  UniqueFd fd_;
  ino_t inode_ = 0;
  std::string partial_;
};

bool Wanted(const ReadLogsRequest& request, const LogLine& line) {
  if (!request.container().empty() && line.container() != request.container()) return false;
  return !request.has_start_time() || FromProto(line.time()) >= FromProto(request.start_time());
}

// Containers that have a file in `logs`, of which one may be asked for.
StatusOr<std::vector<std::string>> Containers(const os::DirFd& logs,
                                              const ReadLogsRequest& request) {
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, logs.List());
  std::vector<std::string> out;
  for (const os::DirEntry& entry : entries) {
    if (!entry.is_regular || entry.name.size() <= kSuffix.size()) continue;
    std::string name = entry.name.substr(0, entry.name.size() - kSuffix.size());
    if (entry.name.substr(name.size()) != kSuffix || !IsLabel(name)) continue;
    if (request.container().empty() || request.container() == name) out.push_back(name);
  }
  return out;
}

}  // namespace

std::optional<LogLine> ParseLogLine(std::string_view json) {
  auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return std::nullopt;
  auto text = [&](const char* key) {
    auto it = parsed.find(key);
    return it != parsed.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  LogLine line;
  if (!google::protobuf::util::TimeUtil::FromString(text("time"), line.mutable_time())) {
    return std::nullopt;
  }
  line.set_container(text("container"));
  line.set_stream(text("stream"));
  line.set_line(text("line"));
  if (auto it = parsed.find("truncated"); it != parsed.end() && it->is_boolean()) {
    line.set_truncated(it->get<bool>());
  }
  if (auto it = parsed.find("generation"); it != parsed.end() && it->is_number_integer()) {
    line.set_generation(it->get<int64_t>());
  }
  return line;
}

StatusOr<std::string> LogReader::FindActor(const ateapi::ObjectRef& actor) const {
  ASSIGN_OR_RETURN(std::vector<std::string> uids, dirs_->ListActors());
  std::string found;
  WallTime newest;
  for (const std::string& uid : uids) {
    auto record = dirs_->ReadRunning(uid);
    if (!record.ok() || record->actor().atespace() != actor.atespace() ||
        record->actor().name() != actor.name()) {
      continue;
    }
    WallTime start = FromProto(record->start_time());
    if (!found.empty() && start <= newest) continue;
    found = uid;
    newest = start;
  }
  if (!found.empty()) return found;
  return Fail(reasons::kActorNotFound, fmt::format("this node holds nothing of actor {}/{}",
                                                   actor.atespace(), actor.name()));
}

Status LogReader::Read(const ReadLogsRequest& request, const Sink& sink,
                       const std::function<bool()>& stopped) const {
  if (!request.container().empty() && !IsLabel(request.container())) {
    return InvalidFields("FIELD_INVALID", {{"container", "must be a label"}});
  }
  ASSIGN_OR_RETURN(std::string uid, FindActor(request.actor()));
  ASSIGN_OR_RETURN(os::DirFd logs, dirs_->root().OpenDir(NodeDirs::ActorPath(uid, kLogs)));
  std::map<std::string, LogTail> tails;
  std::deque<LogLine> lines;
  auto collect = [&](std::string_view text) {
    auto line = ParseLogLine(text);
    if (line && Wanted(request, *line)) lines.push_back(*std::move(line));
    return true;
  };
  // New containers appear while following, so the directory is read in each round.
  auto drain = [&]() -> Status {
    ASSIGN_OR_RETURN(std::vector<std::string> containers, Containers(logs, request));
    for (const std::string& container : containers) {
      auto it = tails.find(container);
      if (it == tails.end()) {
        ASSIGN_OR_RETURN(os::DirFd dir, logs.OpenDir("."));
        LogTail(std::move(dir), container + ".log.1").Drain(collect);
        ASSIGN_OR_RETURN(dir, logs.OpenDir("."));
        it = tails.try_emplace(container, std::move(dir), container + ".log").first;
      }
      it->second.Drain(collect);
    }
    std::stable_sort(lines.begin(), lines.end(), [](const LogLine& a, const LogLine& b) {
      return FromProto(a.time()) < FromProto(b.time());
    });
    return OkStatus();
  };
  RETURN_IF_ERROR(drain());
  auto tail = static_cast<size_t>(std::max(request.tail_lines(), 0));
  if (tail > 0 && lines.size() > tail) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(tail));
  }
  for (;;) {
    for (const LogLine& line : lines) {
      if (!sink(line)) return OkStatus();
    }
    lines.clear();
    if (!request.follow() || stopped()) return OkStatus();
    std::this_thread::sleep_for(kFollowPause);
    RETURN_IF_ERROR(drain());
  }
}

}  // namespace torpor::agent
