#pragma once

// Parsers of HTTP/1.1 requests. They take bytes that came from the network and bound what they
// keep: a head has at most kMaxHeadBytes and a chunk header at most kMaxChunkLine. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "workloads/http/message.h"

namespace torpor::workloads::http {

inline constexpr size_t kMaxHeadBytes = 32 * 1024;
inline constexpr size_t kMaxChunkLine = 256;

enum class HeadResult { kIncomplete, kDone, kBad };

// Parses a request head from the start of `input`. kDone sets `request` and `consumed`; kBad sets
// `status` to the answer that the client deserves.
HeadResult ParseHead(std::string_view input, Request* request, size_t* consumed, int* status);

// Takes the framing off a request body of either kind.
class BodyDecoder {
 public:
  // For a body as announced by the head.
  explicit BodyDecoder(const Request& head);

  // Takes bytes from the start of `input` and returns how many; `data` is the part of them that
  // belongs to the body and may be empty. Call again with the rest until it takes nothing more.
  size_t Take(std::string_view input, std::string_view* data);

  bool done() const { return state_ == State::kDone; }
  bool bad() const { return state_ == State::kBad; }

 private:
  enum class State { kLength, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone, kBad };

  size_t TakeLine(std::string_view input);
  void OnLine(std::string_view line);

  State state_;
  uint64_t left_ = 0;  // bytes of the body or of the chunk that are still to come
  size_t trailer_bytes_ = 0;
  std::string line_;  // incomplete line of the chunk framing
};

}  // namespace torpor::workloads::http
