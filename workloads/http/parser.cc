#include "workloads/http/parser.h"

#include <algorithm>
#include <charconv>

#include "workloads/base/flags.h"

namespace torpor::workloads::http {
namespace {

bool IsTokenChar(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Returns 0 or the status of the refusal.
int ParseRequestLine(std::string_view line, Request* request) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first) return 400;
  const std::string_view version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!IsToken(line.substr(0, first)) || target.empty()) return 400;
  if (target.find(' ') != std::string_view::npos) return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return version.starts_with("HTTP/") ? 505 : 400;
  request->method = line.substr(0, first);
  request->minor_version = version.back() - '0';
  request->keep_alive = request->minor_version == 1;
  // A request that came through a forward proxy may have the absolute form.
  if (const size_t scheme = target.find("://");
      scheme != std::string_view::npos && target.front() != '/') {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (target.front() != '/' && target != "*") return 400;
  const size_t question = target.find('?');
  request->path = target.substr(0, question);
  if (question != std::string_view::npos) request->query = target.substr(question + 1);
  return 0;
}

int ApplyHeader(const std::string& name, std::string_view value, Request* request) {
  if (name == "content-length") {
    int64_t length = 0;
    if (!ParseInteger(value, 0, INT64_MAX, &length)) return 400;
    if (request->content_length && *request->content_length != static_cast<uint64_t>(length)) {
      return 400;
    }
    request->content_length = static_cast<uint64_t>(length);
  } else if (name == "transfer-encoding") {
    if (Lower(value) != "chunked") return 501;
    if (request->chunked) return 400;
    request->chunked = true;
  } else if (name == "connection") {
    const std::string lower = Lower(value);
    if (lower.find("close") != std::string::npos) request->keep_alive = false;
    if (lower.find("keep-alive") != std::string::npos) request->keep_alive = true;
  } else if (name == "expect") {
    request->expect_continue = Lower(value) == "100-continue";
  }
  return 0;
}

int ParseHeaderLine(std::string_view line, Request* request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return 400;
  const std::string_view value = Trim(line.substr(colon + 1));
  for (char c : value) {
    if ((c >= 0 && c < ' ' && c != '\t') || c == 0x7f) return 400;
  }
  std::string name = Lower(line.substr(0, colon));
  if (const int status = ApplyHeader(name, value, request); status != 0) return status;
  request->headers.emplace_back(std::move(name), value);
  return 0;
}

}  // namespace

HeadResult ParseHead(std::string_view input, Request* request, size_t* consumed, int* status) {
  // A client may send an empty line after a body (RFC 9112, 2.2).
  size_t start = 0;
  while (input.substr(start, 2) == "\r\n" && start < 8) start += 2;
  const size_t end = input.find("\r\n\r\n", start);
  const size_t size = end == std::string_view::npos ? input.size() : end;
  if (size > kMaxHeadBytes) {
    *status = 431;
    return HeadResult::kBad;
  }
  if (end == std::string_view::npos) return HeadResult::kIncomplete;
  std::string_view head = input.substr(start, end - start);
  *request = Request();
  *status = 0;
  for (bool first = true; *status == 0; first = false) {
    const size_t line_end = head.find("\r\n");
    const std::string_view line = head.substr(0, line_end);
    *status = first ? ParseRequestLine(line, request) : ParseHeaderLine(line, request);
    if (line_end == std::string_view::npos) break;
    head.remove_prefix(line_end + 2);
  }
  // Two framings in one request are the classic way to smuggle a second request.
  if (*status == 0 && request->chunked && request->content_length) *status = 400;
  if (*status != 0) return HeadResult::kBad;
  *consumed = end + 4;
  return HeadResult::kDone;
}

BodyDecoder::BodyDecoder(const Request& head) {
  left_ = head.content_length.value_or(0);
  state_ = head.chunked ? State::kChunkSize : left_ > 0 ? State::kLength : State::kDone;
}

size_t BodyDecoder::Take(std::string_view input, std::string_view* data) {
  *data = {};
  switch (state_) {
    case State::kDone:
    case State::kBad:
      return 0;
    case State::kLength:
    case State::kChunkData: {
      *data = input.substr(0, std::min<uint64_t>(left_, input.size()));
      left_ -= data->size();
      if (left_ == 0) state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
      return data->size();
    }
    case State::kChunkSize:
    case State::kChunkEnd:
    case State::kTrailer:
      return TakeLine(input);
  }
  return 0;
}

size_t BodyDecoder::TakeLine(std::string_view input) {
  const size_t newline = input.find('\n');
  const size_t take = newline == std::string_view::npos ? input.size() : newline + 1;
  if (line_.size() + take > kMaxChunkLine) {
    state_ = State::kBad;
    return 0;
  }
  line_ += input.substr(0, take);
  if (newline == std::string_view::npos) return take;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
    state_ = State::kBad;
    return take;
  }
  const std::string line = line_.substr(0, line_.size() - 2);
  line_.clear();
  OnLine(line);
  return take;
}

void BodyDecoder::OnLine(std::string_view line) {
  if (state_ == State::kChunkEnd) {
    state_ = line.empty() ? State::kChunkSize : State::kBad;
  } else if (state_ == State::kTrailer) {
    trailer_bytes_ += line.size() + 2;
    if (line.empty()) state_ = State::kDone;
    if (trailer_bytes_ > kMaxHeadBytes) state_ = State::kBad;
  } else {
    const std::string_view digits = Trim(line.substr(0, line.find(';')));
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, left_, 16);
    if (digits.empty() || error != std::errc() || stop != end) {
      state_ = State::kBad;
    } else {
      state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
    }
  }
}

}  // namespace torpor::workloads::http
