#include "router/h1/body.h"

#include <gtest/gtest.h>

namespace torpor::router {
namespace {

struct Decoded {
  std::string payload;
  std::string rest;  // After the end of the body.
  std::string trailers;
  bool done = false;
  Rule rule = Rule::kNone;
};

// Feeds `input` in pieces of `step` bytes, as a socket would.
Decoded Decode(const std::string& input, size_t step, std::string_view declared = {}) {
  BodyReader reader;
  reader.Reset(Framing::kChunked, 0, declared);
  Decoded out;
  std::string buffer;
  for (size_t at = 0; at < input.size() && !out.done; at += step) {
    buffer += input.substr(at, step);
    BodyReader::Piece piece = reader.Take(buffer.data(), buffer.size());
    out.rule = piece.rule;
    if (piece.rule != Rule::kNone) return out;
    out.payload.append(piece.data, piece.size);
    buffer.erase(0, piece.consumed);
    out.done = piece.done;
    if (out.done) out.rest = buffer;
  }
  out.trailers = reader.trailers();
  EXPECT_EQ(reader.total(), out.payload.size());
  return out;
}

TEST(BodyReaderTest, ChunkedComesOutTheSameHoweverItArrives) {
  const std::string input =
      "3\r\nabc\r\nA;name=\"value\"\r\n0123456789\r\n1\r\n\n\r\n0\r\nX: y\r\n\r\n";
  for (size_t step = 1; step <= input.size(); ++step) {
    Decoded d = Decode(input, step);
    EXPECT_TRUE(d.done) << step;
    EXPECT_EQ(d.payload, "abc0123456789\n") << step;
    EXPECT_EQ(d.trailers, "") << "not declared";
  }
  Decoded d = Decode("1\r\nx\r\n0\r\n\r\nGET /", 1000);
  EXPECT_TRUE(d.done);
  EXPECT_EQ(d.rest, "GET /");
}

TEST(BodyReaderTest, EveryChunkRuleIsEnforced) {
  struct {
    std::string input;
    Rule rule;
  } cases[] = {
      {"g\r\n", Rule::kChunkSize},
      {"\r\n", Rule::kChunkSize},
      {"-1\r\n", Rule::kChunkSize},
      {"+1\r\n", Rule::kChunkSize},
      {"0x1\r\n", Rule::kChunkSize},
      {" 1\r\n", Rule::kChunkSize},
      {"1 \r\nx\r\n", Rule::kChunkSize},
      {"1;a\x01\r\nx\r\n", Rule::kChunkSize},
      {"1234567890123456\r\n", Rule::kChunkSize},
      {"1\nx\n", Rule::kLineBreak},
      {"1;a\rb\r\nx", Rule::kLineBreak},
      {"1\r\nxy\r\n", Rule::kChunkEnd},
      {"1\r\nx\n", Rule::kLineBreak},
      {"1\r\nx0\r\n\r\n", Rule::kChunkEnd},
      {"1\r\nx\rZ", Rule::kChunkEnd},
      {"1;" + std::string(300, 'a'), Rule::kChunkLineTooLong},
      {"0\r\nbad trailer\r\n\r\n", Rule::kTrailer},
      {"0\r\nX : y\r\n\r\n", Rule::kTrailer},
      {"0\r\nX: " + std::string(9000, 'a') + "\r\n\r\n", Rule::kTrailer},
  };
  for (const auto& c : cases) {
    for (size_t step : {size_t{1}, size_t{7}, c.input.size()}) {
      EXPECT_EQ(RuleName(Decode(c.input, step).rule), RuleName(c.rule))
          << ::testing::PrintToString(c.input) << " by " << step;
    }
  }
}

TEST(BodyReaderTest, OnlyDeclaredHarmlessTrailersPass) {
  const std::string input =
      "0\r\nchecksum: 1\r\nContent-Length: 5\r\nAuthorization: x\r\nother: 2\r\n"
      "torpor-reason: x\r\n\r\n";
  std::string declared = "Checksum, Content-Length, authorization, torpor-reason";
  EXPECT_EQ(Decode(input, 5, declared).trailers, "checksum: 1\r\n");
}

TEST(BodyReaderTest, LengthTakesExactlyThatMuch) {
  BodyReader reader;
  reader.Reset(Framing::kLength, 5);
  std::string data = "abc";
  BodyReader::Piece piece = reader.Take(data.data(), data.size());
  EXPECT_EQ(piece.size, 3u);
  EXPECT_FALSE(piece.done);
  data = "deNEXT";
  piece = reader.Take(data.data(), data.size());
  EXPECT_EQ(piece.size, 2u);
  EXPECT_EQ(piece.consumed, 2u);
  EXPECT_TRUE(piece.done);
  reader.Reset(Framing::kLength, 0);
  EXPECT_TRUE(reader.done());
  reader.Reset(Framing::kNone, 0);
  EXPECT_TRUE(reader.done());
  reader.Reset(Framing::kUntilClose, 0);
  EXPECT_FALSE(reader.done());
}

TEST(FramePieceTest, WritesChunksAndTheirEnd) {
  FramedPiece piece;
  std::string scratch;
  FramePiece(Framing::kChunked, 255, false, "", &scratch, &piece);
  EXPECT_EQ(std::string(piece.head, piece.head_size), "ff\r\n");
  EXPECT_EQ(piece.tail, "\r\n");
  FramePiece(Framing::kChunked, 1, true, "", &scratch, &piece);
  EXPECT_EQ(piece.tail, "\r\n0\r\n\r\n");
  FramePiece(Framing::kChunked, 0, true, "", &scratch, &piece);
  EXPECT_EQ(piece.head_size, 0u);
  EXPECT_EQ(piece.tail, "0\r\n\r\n");
  FramePiece(Framing::kChunked, 0, true, "A: b\r\n", &scratch, &piece);
  EXPECT_EQ(piece.tail, "0\r\nA: b\r\n\r\n");
  FramePiece(Framing::kLength, 5, true, "", &scratch, &piece);
  EXPECT_EQ(piece.head_size, 0u);
  EXPECT_EQ(piece.tail, "");
}

}  // namespace
}  // namespace torpor::router
