#include "runtime/gvisor/errors.h"

#include <deque>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/reasons.h"
#include "runtime/gvisor/enter.h"

namespace torpor::gvisor {
namespace {

struct Meaning {
  const char* text;
  const Reason& reason;
};

// The first text that occurs decides, so what is particular stands before what is general.
const Meaning kRestoreMeanings[] = {
    {"no space left on device", reasons::kDiskFull},
    {"runsc version does not match", reasons::kRuntimeIncompatible},
    {"incompatible FeatureSet", reasons::kRuntimeIncompatible},
    {"missing features", reasons::kRuntimeIncompatible},
    {"not found in CtxMemoryFileMap", reasons::kRuntimeIncompatible},  // another --overlay2
    {"bad magic header", reasons::kSnapshotCorrupt},
    {"opening state file", reasons::kSnapshotCorrupt},
    {"opening restore image file", reasons::kSnapshotCorrupt},
    {"error decoding", reasons::kSnapshotCorrupt},
    {"header error", reasons::kSnapshotCorrupt},
    {"object missing", reasons::kSnapshotCorrupt},
    {"EOF", reasons::kSnapshotCorrupt},
};
const Meaning kOtherMeanings[] = {
    {"no space left on device", reasons::kDiskFull},
    {"creating process: failed to load", reasons::kInvalidContainerConfig},
    {"error finding executable", reasons::kInvalidContainerConfig},
    {"reading spec", reasons::kInvalidContainerConfig},
};

template <size_t n>
const Reason& Match(const Meaning (&meanings)[n], std::string_view output) {
  for (const Meaning& meaning : meanings) {
    if (output.find(meaning.text) != std::string_view::npos) return meaning.reason;
  }
  return reasons::kRuntimeFailed;
}

std::string MessageOf(const std::string& line) {
  auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return line;
  auto message = json.find("msg");
  if (message == json.end() || !message->is_string()) return line;
  std::string text = message->get<std::string>();
  // A panic inside the sentry comes with its Go stack, which helps nobody here.
  return text.substr(0, text.find("\ngoroutine "));
}

}  // namespace

Status MapRunsc(std::string_view verb, const os::ExitStatus& exit, std::string_view output) {
  size_t end = output.find_last_not_of(" \t\r\n");
  std::string_view words = output.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const Reason* reason = &reasons::kRuntimeFailed;
  if (exit.code != kEnterFailed) {
    reason = verb == "restore" ? &Match(kRestoreMeanings, words) : &Match(kOtherMeanings, words);
  }
  return Fail(*reason, fmt::format("runsc {}: {}: {}", verb, exit.ToString(),
                                   words.empty() ? "it said nothing" : words));
}

std::string LogTail(const std::string& path, int lines) {
  std::ifstream file(path);
  std::deque<std::string> tail;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    tail.push_back(MessageOf(line));
    if (static_cast<int>(tail.size()) > lines) tail.pop_front();
  }
  std::string out;
  for (const std::string& line : tail) out += line + "\n";
  return out;
}

}  // namespace torpor::gvisor
