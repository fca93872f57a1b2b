#include "bench/glutton.h"

#include <charconv>

#include "glutton/glutton.pb.h"

namespace torpor::bench {
namespace {

constexpr char kKey[] = "bench";

Status Wrong(const std::string& message) { return Status(Code::kInternal, message); }

void Corrupt(Outcome* outcome, const std::string& message) {
  outcome->status = Status(Code::kDataLoss, message);
  outcome->corrupt = true;
}

::glutton::Content ContentOf(const std::string& name) {
  if (name == "heap") return ::glutton::CONTENT_HEAP;
  if (name == "zero40") return ::glutton::CONTENT_ZERO40;
  return ::glutton::CONTENT_RANDOM;
}

bool ParseInt(const std::string& text, int64_t* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

std::string WriteRequest(int64_t bytes, ::glutton::WriteMode mode, const std::string& content) {
  ::glutton::WriteRAMRequest request;
  request.set_key(kKey);
  request.set_size(std::to_string(bytes));
  request.set_write_mode(mode);
  request.set_content(ContentOf(content));
  return request.SerializeAsString();
}

}  // namespace

void JudgeAnswer(const HttpAnswer& answer, Outcome* outcome) {
  int64_t us = 0;
  const bool from_actor = ParseInt(answer.Header("x-server-elapsed-us"), &us);
  if (from_actor) outcome->server_ms = static_cast<double>(us) / 1000;
  if (answer.status < 400) return;
  const std::string reason = answer.Header("torpor-reason");
  std::string what = fmt::format("HTTP {} {}", answer.status, answer.body.substr(0, 200));
  if (reason.empty()) {
    outcome->status = Wrong(what);
    outcome->unexplained = !from_actor;
  } else {
    outcome->status = Error(Code::kUnavailable, reason, what);
  }
}

HttpAnswer PostTo(const Poster& poster, const std::string& path, const std::string& body,
                  Outcome* outcome) {
  const MonotonicTime begin = Clock::Real()->Now();
  auto result = poster(path, body);
  outcome->ms = ToMs(Clock::Real()->Now() - begin);
  if (!result.ok()) {
    outcome->status = result.status();
    outcome->unexplained = true;
    return {};
  }
  JudgeAnswer(*result, outcome);
  return std::move(*result);
}

Outcome Glutton::Post(const std::string& path, const std::string& body, HttpAnswer* answer) {
  Outcome outcome;
  *answer = PostTo(poster_, path, body, &outcome);
  return outcome;
}

Outcome Glutton::Fill(int64_t bytes, const std::string& content) {
  size_ = 0;
  known_ = false;
  HttpAnswer answer;
  Outcome outcome =
      Post("/writeram", WriteRequest(bytes, ::glutton::WRITE_MODE_TRUNCATE, content), &answer);
  if (outcome.ok()) {
    size_ = bytes;
    cursor_ = 0;
  }
  return outcome;
}

Outcome Glutton::Churn(int64_t bytes, const std::string& content) {
  known_ = false;  // also when it fails: some of it may have been written
  HttpAnswer answer;
  Outcome outcome = Post(
      "/writeram", WriteRequest(bytes, ::glutton::WRITE_MODE_OVERWRITE_ROTATE, content), &answer);
  if (verify_ == Verify::kMemory && answer.status == 404) {
    Corrupt(&outcome, "the actor has forgotten its array");
  }
  if (!outcome.ok()) return outcome;
  const int64_t expected = size_ == 0 ? 0 : (cursor_ + std::min(bytes, size_)) % size_;
  int64_t cursor = -1;
  if (!ParseInt(answer.Header("x-glutton-cursor"), &cursor)) {
    outcome.status = Wrong("the answer to a rotating write has no cursor");
    return outcome;
  }
  if (verify_ == Verify::kMemory && cursor != expected) {
    Corrupt(&outcome, fmt::format("the cursor is at {} instead of {}", cursor, expected));
  }
  cursor_ = cursor;
  return outcome;
}

Outcome Glutton::Read(int64_t bytes) {
  ::glutton::ReadRAMRequest request;
  request.set_key(kKey);
  const bool all = bytes < 0 || bytes >= size_;
  if (!all) request.set_size(std::to_string(bytes));
  HttpAnswer answer;
  Outcome outcome = Post("/readram", request.SerializeAsString(), &answer);
  if (verify_ == Verify::kMemory && answer.status == 404) {
    Corrupt(&outcome, "the actor has forgotten its array");
  }
  if (!outcome.ok()) return outcome;
  ::glutton::ReadRAMResponse response;
  if (!response.ParseFromString(answer.body)) {
    outcome.status = Wrong("the answer to a read is not a ReadRAMResponse");
    return outcome;
  }
  const int64_t expected_size = all ? size_ : bytes;
  if (response.size() != expected_size) {
    outcome.status = Wrong(fmt::format("{} of {} bytes were read", response.size(), expected_size));
    if (verify_ == Verify::kMemory) Corrupt(&outcome, std::string(outcome.status.message()));
    return outcome;
  }
  if (!all || verify_ != Verify::kMemory) return outcome;
  if (known_ && response.checksum() != checksum_) {
    Corrupt(&outcome,
            fmt::format("the checksum is {} instead of {}", response.checksum(), checksum_));
  }
  checksum_ = response.checksum();
  known_ = true;
  return outcome;
}

Outcome Glutton::Ping(const std::string& message) {
  ::glutton::PingRequest request;
  request.set_message(message);
  HttpAnswer answer;
  Outcome outcome = Post("/ping", request.SerializeAsString(), &answer);
  if (!outcome.ok() || verify_ == Verify::kOff) return outcome;
  ::glutton::PingResponse response;
  if (!response.ParseFromString(answer.body) || response.message() != message) {
    outcome.status = Wrong("the answer to a ping is not its echo");
  }
  return outcome;
}

}  // namespace torpor::bench
