// Chunked bodies: the payload must not depend on how the bytes arrive. The first byte chooses the
// size of the pieces.

#include <cstdint>
#include <cstdlib>

#include "router/h1/body.h"

using namespace torpor::router;

namespace {

struct Result {
  std::string payload;
  std::string trailers;
  bool done = false;
  bool broken = false;
  bool operator==(const Result&) const = default;
};

Result Decode(std::string_view input, size_t step) {
  BodyReader reader;
  reader.Reset(Framing::kChunked, 0, "a, b, c");
  Result out;
  std::string buffer;
  for (size_t at = 0; at < input.size() && !out.done; at += step) {
    buffer += input.substr(at, step);
    BodyReader::Piece piece = reader.Take(buffer.data(), buffer.size());
    if (piece.rule != Rule::kNone) {
      out.broken = true;
      return out;
    }
    if (piece.consumed > buffer.size() || piece.size > piece.consumed) abort();
    out.payload.append(piece.data, piece.size);
    buffer.erase(0, piece.consumed);
    out.done = piece.done;
  }
  out.trailers = reader.trailers();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  Result whole = Decode(input, input.size());
  Result pieces = Decode(input, 1 + data[0] % 64);
  // A broken body may have given away different amounts before the fault was seen.
  if (whole.broken != pieces.broken) abort();
  if (!whole.broken && !(whole == pieces)) abort();
  return 0;
}
