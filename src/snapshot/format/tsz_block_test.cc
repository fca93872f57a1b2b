#include "snapshot/format/tsz_block.h"

#include <zstd.h>

#include "base/testing/matchers.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::snapshot {
namespace {

// A frame as zstd makes it with these settings.
std::string Frame(const std::string& raw, int checksum, int window_log, bool sized) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
  if (window_log > 0) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(raw.size()) + 100, '\0');
  ZSTD_inBuffer in{raw.data(), raw.size(), 0};
  ZSTD_outBuffer buffer{out.data(), out.size(), 0};
  if (sized) ZSTD_CCtx_setPledgedSrcSize(context, raw.size());
  // As a stream, so that an unknown size stays unknown.
  ZSTD_compressStream2(context, &buffer, &in, ZSTD_e_continue);
  ZSTD_compressStream2(context, &buffer, &in, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  out.resize(buffer.pos);
  return out;
}

StatusOr<std::string> Decoded(const std::string& frame, size_t raw_bytes) {
  TszBlock block;
  block.offset = 77;
  block.compressed_bytes = static_cast<uint32_t>(frame.size());
  block.raw_bytes = static_cast<uint32_t>(raw_bytes);
  block.hash = TszHashOf(frame);
  std::string out(raw_bytes, '\0');
  TszBlockDecoder decoder;
  RETURN_IF_ERROR(decoder.Decode(block, frame, out.data()));
  return out;
}

TEST(TszBlockTest, RoundTrip) {
  TszBlockEncoder encoder(2);
  for (const std::string& raw :
       {std::string("x"), std::string(1 << 20, 'y'), RandomBytes(1 << 20, 1),
        RandomBytes(8 << 20, 2), RandomBytes(12345, 3)}) {
    std::string frame(static_cast<size_t>(TszBlockBound(static_cast<int64_t>(raw.size()))), '\0');
    ASSERT_OK_AND_ASSIGN(int64_t bytes, encoder.Encode(raw, frame.data()));
    frame.resize(static_cast<size_t>(bytes));
    ASSERT_OK_AND_ASSIGN(std::string back, Decoded(frame, raw.size()));
    EXPECT_TRUE(back == raw);
  }
}

TEST(TszBlockTest, EveryLevelIsAllowed) {
  const std::string raw = RandomBytes(50000, 1) + std::string(50000, 'a');
  for (int level = -5; level <= 9; ++level) {
    TszBlockEncoder encoder(level);
    std::string frame(static_cast<size_t>(TszBlockBound(static_cast<int64_t>(raw.size()))), '\0');
    ASSERT_OK_AND_ASSIGN(int64_t bytes, encoder.Encode(raw, frame.data()));
    frame.resize(static_cast<size_t>(bytes));
    ASSERT_OK_AND_ASSIGN(std::string back, Decoded(frame, raw.size()));
    EXPECT_TRUE(back == raw) << level;
    EXPECT_GT(TszBlockEncoder::MemoryBytes(level), 0);
    EXPECT_LT(TszBlockEncoder::MemoryBytes(level), 20 << 20) << level;
  }
}

TEST(TszBlockTest, WhatTheFormatDoesNotAllow) {
  const std::string raw(3000, 'x');
  const std::string good = Frame(raw, 1, 0, true);
  ASSERT_OK(Decoded(good, raw.size()));
  EXPECT_THAT(Decoded(Frame(raw, 0, 0, true), raw.size()), MessageHas("checksum"));
  EXPECT_THAT(Decoded(Frame(raw, 1, 0, false), raw.size()),
              MessageHas("not a zstd frame of the size"));
  EXPECT_THAT(Decoded(Frame(raw, 1, 27, false), raw.size()), MessageHas("window"));
  EXPECT_THAT(Decoded(good, raw.size() + 1), MessageHas("not a zstd frame of the size"));
  EXPECT_THAT(Decoded(good, raw.size() - 1), MessageHas("not a zstd frame of the size"));
  EXPECT_THAT(Decoded(good + good, raw.size()), MessageHas("one whole"));
  EXPECT_THAT(Decoded(good + "x", raw.size()), MessageHas("one whole"));
  EXPECT_THAT(Decoded(good.substr(0, good.size() - 1), raw.size()), MessageHas("one whole"));
  EXPECT_THAT(Decoded(std::string("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12), 4),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(Decoded("", 1), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(Decoded("nonsense", 8), MessageHas("object offset 77"));
}

TEST(TszBlockTest, TheHashComesFirst) {
  const std::string frame = Frame(std::string(100, 'x'), 1, 0, true);
  TszBlock block;
  block.compressed_bytes = static_cast<uint32_t>(frame.size());
  block.raw_bytes = 100;
  block.hash = TszHashOf(frame);
  block.hash[15] = static_cast<char>(block.hash[15] ^ 1);
  std::string out(100, '\0');
  TszBlockDecoder decoder;
  EXPECT_THAT(decoder.Decode(block, frame, out.data()), MessageHas("sha256 of the block"));
  EXPECT_EQ(out, std::string(100, '\0'));
}

}  // namespace
}  // namespace torpor::snapshot
