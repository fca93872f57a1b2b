#pragma once
// Bodies: taking the payload out of a stream with one framing, and framing it anew for the other
// side. Nothing is copied but the pieces between small chunks.
//
// Not thread-safe; one of each per direction and exchange.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "router/h1/head.h"
#include "router/h1/rules.h"

namespace torpor::router {

class BodyReader {
 public:
  static constexpr size_t kChunkLineMax = 256;
  static constexpr size_t kTrailersMax = 8 << 10;

  // `declared_trailers`: the value of the Trailer field; other trailers are dropped.
  void Reset(Framing framing, uint64_t length, std::string_view declared_trailers = {});

  struct Piece {
    char* data = nullptr;  // Payload, inside the bytes given to Take.
    size_t size = 0;
    size_t consumed = 0;  // Bytes of the input that are spent, framing included.
    bool done = false;    // The body ends with this piece.
    Rule rule = Rule::kNone;
  };
  // Takes what is there. Chunked payload is moved together to the front of `data`, so `data` must
  // stay as it is until the piece was written, and is then consumed. After `done` or a broken rule
  // no more calls are allowed. kUntilClose never is `done` by itself.
  Piece Take(char* data, size_t size);

  bool done() const { return done_; }
  Framing framing() const { return framing_; }
  uint64_t total() const { return total_; }  // Payload bytes so far.
  // Lines of the trailer section that may be passed on, each with CRLF. Valid after done.
  const std::string& trailers() const { return trailers_; }

 private:
  enum class State : uint8_t { kSizeLine, kPayload, kPayloadEnd, kTrailerLine };

  Piece TakeChunked(char* data, size_t size);
  // Handles the line at `line` (without CRLF) in a state that reads lines.
  Rule OnLine(std::string_view line);

  Framing framing_ = Framing::kNone;
  State state_ = State::kSizeLine;
  bool done_ = true;
  uint64_t left_ = 0;  // Of the body or of the chunk.
  uint64_t total_ = 0;
  size_t trailer_bytes_ = 0;
  std::string line_;  // The beginning of a line that came in pieces.
  std::string declared_trailers_;
  std::string trailers_;
};

// Bytes around one piece of payload for the outgoing framing.
struct FramedPiece {
  char head[20];  // Chunk size line.
  size_t head_size = 0;
  std::string_view tail;  // End of the chunk and, at the end of the body, the last chunk.
};

// `trailers` (lines with CRLF) are sent with the last chunk; `scratch` keeps them until the piece
// was written. Framings other than kChunked need nothing around the payload.
void FramePiece(Framing out, size_t payload, bool done, const std::string& trailers,
                std::string* scratch, FramedPiece* piece);

// Whether a trailer of that name may be passed on: nothing that frames, routes or authorizes.
bool IsAllowedTrailer(const Field& field);

}  // namespace torpor::router
