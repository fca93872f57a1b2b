#include "router/h1/body.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace torpor::router {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// `size[;extension]`. Extensions are checked and dropped.
Rule ParseSizeLine(std::string_view line, uint64_t* size) {
  size_t digits = 0;
  uint64_t value = 0;
  while (digits < line.size() && HexValue(line[digits]) >= 0) {
    if (digits == 15) return Rule::kChunkSize;
    value = value * 16 + static_cast<uint64_t>(HexValue(line[digits]));
    ++digits;
  }
  if (digits == 0) return Rule::kChunkSize;
  std::string_view rest = line.substr(digits);
  if (!rest.empty() && rest.front() != ';') return Rule::kChunkSize;
  for (unsigned char c : rest) {
    if (c != '\t' && (c < 0x20 || c == 0x7f)) return Rule::kChunkSize;
  }
  *size = value;
  return Rule::kNone;
}

}  // namespace

bool IsAllowedTrailer(const Field& field) {
  if (field.id != FieldId::kOther) return false;
  for (std::string_view name :
       {"authorization", "cookie", "set-cookie", "cache-control", "content-encoding",
        "content-type", "content-range", "www-authenticate", "location", "server-timing"}) {
    if (EqualsIgnoreCase(field.name, name)) return false;
  }
  return true;
}

void BodyReader::Reset(Framing framing, uint64_t length, std::string_view declared_trailers) {
  framing_ = framing;
  state_ = State::kSizeLine;
  left_ = framing == Framing::kLength ? length : 0;
  done_ = framing == Framing::kNone || (framing == Framing::kLength && length == 0);
  total_ = 0;
  trailer_bytes_ = 0;
  line_.clear();
  declared_trailers_ = declared_trailers;
  trailers_.clear();
}

BodyReader::Piece BodyReader::Take(char* data, size_t size) {
  if (framing_ == Framing::kChunked) return TakeChunked(data, size);
  Piece piece;
  piece.data = data;
  piece.size = framing_ == Framing::kLength ? std::min<uint64_t>(size, left_) : size;
  if (framing_ == Framing::kNone) piece.size = 0;
  piece.consumed = piece.size;
  total_ += piece.size;
  if (framing_ == Framing::kLength) {
    left_ -= piece.size;
    done_ = left_ == 0;
  }
  piece.done = done_;
  return piece;
}

Rule BodyReader::OnLine(std::string_view line) {
  if (line.find_first_of(std::string_view("\r\0", 2)) != std::string_view::npos) {
    return Rule::kLineBreak;
  }
  if (state_ == State::kPayloadEnd) {
    state_ = State::kSizeLine;
    return line.empty() ? Rule::kNone : Rule::kChunkEnd;
  }
  if (state_ == State::kSizeLine) {
    Rule rule = ParseSizeLine(line, &left_);
    if (rule != Rule::kNone) return rule;
    state_ = left_ == 0 ? State::kTrailerLine : State::kPayload;
    return Rule::kNone;
  }
  if (line.empty()) {
    done_ = true;
    return Rule::kNone;
  }
  trailer_bytes_ += line.size() + 2;
  if (trailer_bytes_ > kTrailersMax) return Rule::kTrailer;
  Field field;
  if (ParseFieldLine(line, HeadLimits(), &field) != Rule::kNone) return Rule::kTrailer;
  bool declared = false;
  ForEachListItem(declared_trailers_,
                  [&](std::string_view name) { declared |= EqualsIgnoreCase(name, field.name); });
  if (declared && IsAllowedTrailer(field)) trailers_.append(line).append("\r\n");
  return Rule::kNone;
}

BodyReader::Piece BodyReader::TakeChunked(char* data, size_t size) {
  Piece piece;
  piece.data = data;
  size_t at = 0;
  while (at < size && !done_) {
    if (state_ == State::kPayload) {
      size_t n = std::min<uint64_t>(size - at, left_);
      // The first chunk's payload is left where it is; later ones are moved up to it.
      if (piece.size == 0) {
        piece.data = data + at;
      } else {
        memmove(piece.data + piece.size, data + at, n);
      }
      piece.size += n;
      at += n;
      left_ -= n;
      if (left_ == 0) state_ = State::kPayloadEnd;
      continue;
    }
    const char* lf = static_cast<const char*>(memchr(data + at, '\n', size - at));
    size_t n = lf ? static_cast<size_t>(lf - (data + at)) : size - at;
    size_t line_max = state_ == State::kTrailerLine ? kTrailersMax : kChunkLineMax;
    if (line_.size() + n > line_max) {
      piece.rule = state_ == State::kTrailerLine ? Rule::kTrailer : Rule::kChunkLineTooLong;
      return piece;
    }
    // After a chunk only CRLF may come; do not wait for a line end that never comes.
    if (state_ == State::kPayloadEnd && (line_.size() + n > 1 || (n == 1 && data[at] != '\r'))) {
      piece.rule = Rule::kChunkEnd;
      return piece;
    }
    std::string_view line(data + at, n);
    if (lf == nullptr || !line_.empty()) line = line_.append(line);
    at += n + (lf ? 1 : 0);
    if (lf == nullptr) break;
    if (line.empty() || line.back() != '\r') {
      piece.rule = Rule::kLineBreak;
      return piece;
    }
    piece.rule = OnLine(line.substr(0, line.size() - 1));
    line_.clear();
    if (piece.rule != Rule::kNone) return piece;
  }
  piece.consumed = at;
  piece.done = done_;
  total_ += piece.size;
  return piece;
}

void FramePiece(Framing out, size_t payload, bool done, const std::string& trailers,
                std::string* scratch, FramedPiece* piece) {
  piece->head_size = 0;
  piece->tail = {};
  if (out != Framing::kChunked) return;
  if (payload > 0) {
    char* end = std::to_chars(piece->head, piece->head + 16, payload, 16).ptr;
    *end++ = '\r';
    *end++ = '\n';
    piece->head_size = static_cast<size_t>(end - piece->head);
    piece->tail = "\r\n";
  }
  if (!done) return;
  if (trailers.empty()) {
    piece->tail = payload > 0 ? "\r\n0\r\n\r\n" : "0\r\n\r\n";
    return;
  }
  *scratch = payload > 0 ? "\r\n0\r\n" : "0\r\n";
  scratch->append(trailers).append("\r\n");
  piece->tail = *scratch;
}

}  // namespace torpor::router
