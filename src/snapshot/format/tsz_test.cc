#include "snapshot/format/tsz.h"

#include <zstd.h>

#include "snapshot/format/tsz_wire.h"
#include "snapshot/testing/temp_dir.h"
#include "snapshot/testing/tsz_sample.h"
#include "torpor/snapshot/v1/index.pb.h"

namespace torpor::snapshot {
namespace {

using torpor::snapshot::v1::Index;

// What the golden files hold; made by the first writer of version 1 and kept.
std::string GoldenContent(const std::string& name) {
  if (name == "empty") return "";
  if (name == "holes") return std::string(3 << 20, '\0');
  std::string out(600'000, '\0');
  uint64_t state = 1;
  for (size_t i = 0; i < out.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Runs of zero pages, compressible pages and noise; the last page is short.
    const size_t kind = i / 4096 % 7;
    if (kind == 1 || kind == 2) continue;
    out[i] = static_cast<char>(kind < 6 ? state >> 62 : state >> 56);
  }
  return out;
}

constexpr char kGoldenDir[] = TORPOR_SOURCE_DIR "/src/snapshot/format/testdata/tsz_v1/";

TEST(TszTest, GoldenFilesOfVersion1) {
  for (const std::string name : {"empty", "holes", "data"}) {
    const std::string object = ReadFileFrom(kGoldenDir + name + ".tsz");
    const std::string sha256 = ReadFileFrom(kGoldenDir + name + ".index_sha256").substr(0, 64);
    const std::string content = GoldenContent(name);
    ASSERT_OK_AND_ASSIGN(std::string read,
                         ReadTsz(object, sha256, static_cast<int64_t>(content.size())));
    EXPECT_TRUE(read == content) << name;
  }
}

TEST(TszTest, FooterRoundTripAndLayout) {
  const std::string frame = EncodeTszFooter({1000, 234, 0x1122334455667788});
  ASSERT_EQ(frame.size(), static_cast<size_t>(kTszFooterBytes));
  EXPECT_EQ(frame.substr(0, 16), std::string("\x5f\x2a\x4d\x18\x28\0\0\0TORPTSZ1", 16));
  ASSERT_OK_AND_ASSIGN(TszFooter footer, DecodeTszFooter(frame, 1000 + 234 + 48));
  EXPECT_EQ(footer.index_offset, 1000);
  EXPECT_EQ(footer.index_bytes, 234);
  EXPECT_EQ(footer.index_xxh64, 0x1122334455667788u);
}

TEST(TszTest, HostileFooters) {
  const std::string good = EncodeTszFooter({1000, 234, 0});
  struct Case {
    size_t at;
    std::string bytes;
    int64_t object_bytes;
    const char* says;
  };
  const int64_t size = 1000 + 234 + 48;
  for (const Case& c : {
           Case{0, "\x5e", size, "no footer frame"},
           Case{4, "\x29", size, "no footer frame"},
           Case{8, "t", size, "no .tsz footer"},
           Case{16, "\x02", size, "version 2 is not known"},
           Case{20, "\x01", size, "reserved"},
           Case{24, "\xff\xff\xff\xff\xff\xff\xff\xff", size, "does not end at the footer"},
           Case{24, "\x01", size, "does not end at the footer"},
           Case{32, "\xff\xff\xff\xff\xff\xff\xff\x7f", size, "does not end at the footer"},
           Case{32, std::string(8, '\0'), size, "does not end at the footer"},
           Case{0, "", size + 1, "does not end at the footer"},
           Case{0, "", 47, "too few"},
           Case{0, "", 0, "too few"},
           Case{0, "", -1, "too few"},
       }) {
    std::string bad = good;
    bad.replace(c.at, c.bytes.size(), c.bytes);
    auto footer = DecodeTszFooter(bad, c.object_bytes);
    EXPECT_THAT(footer, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << c.at;
    EXPECT_THAT(footer, MessageHas(c.says)) << c.at;
    EXPECT_THAT(footer, MessageHas("object offset")) << c.at;
  }
  EXPECT_THAT(DecodeTszFooter(good.substr(1), size), MessageHas("cut"));
}

TszHash HashNumber(int n) {
  TszHash hash{};
  hash[0] = static_cast<char>(n);
  return hash;
}

// Two blocks; extents of the blocks and of two bases.
TszIndexWriter FullWriter() {
  TszIndexWriter writer;
  writer.AddBlock(1000, 300000, HashNumber(1));
  writer.AddBlock(70000, 100000, HashNumber(2));
  writer.AddExtent(4096, 200000);
  writer.AddExtent(204096, 100000);  // touches: one extent
  writer.AddExtent(304096, 5000, 2, 123);
  writer.AddExtent(309096, 1000, 1, 7000);
  writer.AddExtent(1'000'000, 100000);
  writer.AddExtent(1'100'000, 1, 1, 1);
  return writer;
}
constexpr int64_t kFullLogical = 2'000'000;

TEST(TszTest, TheIndexIsTheProtobufMessage) {
  const std::string bytes = FullWriter().Serialize(kFullLogical, 1 << 20);
  Index message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.SerializeAsString(), bytes);
  EXPECT_EQ(message.extent_gap_size(), 5);
  EXPECT_EQ(message.extent_source(1), 2u);
  EXPECT_EQ(message.extent_base_offset(2), 1 - 8000);
  EXPECT_EQ(message.block_hash().size(), 32u);

  ASSERT_OK_AND_ASSIGN(TszIndex index, ParseTszIndex(bytes, {kFullLogical, 71000, 2}));
  EXPECT_EQ(index.populated_bytes, 400000);
  EXPECT_EQ(index.block_bytes, 1 << 20);
  ASSERT_EQ(index.blocks.size(), 2u);
  EXPECT_EQ(index.blocks[1], (TszBlock{1000, 300000, 70000, 100000, HashNumber(2)}));
  const std::vector<TszExtent> extents = {{4096, 300000, 0, 0},
                                          {304096, 5000, 123, 2},
                                          {309096, 1000, 7000, 1},
                                          {1'000'000, 100000, 300000, 0},
                                          {1'100'000, 1, 1, 1}};
  EXPECT_EQ(index.extents, extents);
}

TEST(TszTest, ABaseThatIsNotGivenIsRefused) {
  const std::string bytes = FullWriter().Serialize(kFullLogical, 1 << 20);
  auto index = ParseTszIndex(bytes, {kFullLogical, 71000, 0});
  EXPECT_THAT(index, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(index, MessageHas("it needs base 2 and 0 bases are given"));
}

TEST(TszTest, HostileIndexes) {
  const std::string good = FullWriter().Serialize(kFullLogical, 1 << 20);
  struct Case {
    const char* says;
    std::function<void(Index*)> change;
  };
  const Case cases[] = {
      {"it is of a file of", [](Index* i) { i->set_logical_size(1); }},
      {"it is of a file of", [](Index* i) { i->set_logical_size(-1); }},
      {"blocks of 0 bytes", [](Index* i) { i->set_block_size(0); }},
      {"blocks of 8388609 bytes", [](Index* i) { i->set_block_size((8 << 20) + 1); }},
      {"columns of the blocks differ", [](Index* i) { i->add_block_raw_size(1); }},
      {"columns of the blocks differ", [](Index* i) { i->mutable_block_hash()->pop_back(); }},
      {"columns of the blocks differ", [](Index* i) { i->clear_block_compressed_size(); }},
      {"is not allowed", [](Index* i) { i->set_block_raw_size(0, (1 << 20) + 1); }},
      {"is not allowed", [](Index* i) { i->set_block_raw_size(1, 0); }},
      {"is not allowed", [](Index* i) { i->set_block_compressed_size(0, 0); }},
      {"is not allowed", [](Index* i) { i->set_block_compressed_size(0, UINT32_MAX); }},
      {"reaches into the index", [](Index* i) { i->set_block_compressed_size(0, 2000); }},
      {"the blocks end here", [](Index* i) { i->set_block_compressed_size(0, 999); }},
      {"the extents take", [](Index* i) { i->set_block_raw_size(0, 300001); }},
      {"columns of the extents differ", [](Index* i) { i->add_extent_gap(0); }},
      {"columns of the extents differ", [](Index* i) { i->add_extent_source(0); }},
      {"are not inside the file", [](Index* i) { i->set_extent_length(0, 0); }},
      {"are not inside the file", [](Index* i) { i->set_extent_length(0, 1 << 30); }},
      {"are not inside the file", [](Index* i) { i->set_extent_length(4, UINT64_MAX); }},
      {"are not inside the file", [](Index* i) { i->set_extent_gap(2, UINT64_MAX); }},
      {"are not inside the file", [](Index* i) { i->set_extent_gap(4, 900000); }},
      {"it needs base 3", [](Index* i) { i->set_extent_source(1, 3); }},
      {"it needs base", [](Index* i) { i->set_extent_source(1, UINT32_MAX); }},
      {"not inside any file", [](Index* i) { i->set_extent_base_offset(0, -1); }},
      {"not inside any file", [](Index* i) { i->set_extent_base_offset(0, INT64_MAX); }},
      {"not inside any file", [](Index* i) { i->set_extent_base_offset(0, INT64_MIN); }},
      {"not inside any file", [](Index* i) { i->set_extent_base_offset(0, int64_t{1} << 42); }},
      {"cut or go on", [](Index* i) { i->add_extent_base_offset(0); }},
      {"cut or go on", [](Index* i) { i->mutable_extent_base_offset()->RemoveLast(); }},
      {"the extents take", [](Index* i) { i->set_extent_source(0, 1); }},
      {"one with the extent before it",
       [](Index* i) {
         i->set_extent_length(0, 200000);
         i->mutable_extent_gap()->Add(0);
         i->mutable_extent_length()->Add(0);
         i->mutable_extent_source()->Add(0);
         for (int k = 5; k > 1; --k) {
           i->set_extent_gap(k, i->extent_gap(k - 1));
           i->set_extent_length(k, i->extent_length(k - 1));
           i->set_extent_source(k, i->extent_source(k - 1));
         }
         i->set_extent_gap(1, 0);
         i->set_extent_length(1, 100000);
         i->set_extent_source(1, 0);
       }},
  };
  for (const Case& c : cases) {
    Index message;
    ASSERT_TRUE(message.ParseFromString(good));
    c.change(&message);
    auto index = ParseTszIndex(message.SerializeAsString(), {kFullLogical, 71000, 2});
    EXPECT_THAT(index, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << c.says;
    EXPECT_THAT(index, MessageHas(c.says));
    EXPECT_THAT(index, MessageHas("object offset")) << c.says;
  }
  EXPECT_OK(ParseTszIndex(good, {kFullLogical, 71000, 2}));
}

TEST(TszTest, HostileBytesOfAnIndex) {
  const std::string good = FullWriter().Serialize(kFullLogical, 1 << 20);
  auto parse = [](const std::string& bytes) {
    return ParseTszIndex(bytes, {kFullLogical, 71000, 2});
  };
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(parse(good.substr(0, size)), HasCode(Code::kDataLoss)) << size;
  }
  EXPECT_THAT(parse(good + std::string("\x50\x01", 2)), MessageHas("field 10 is not one"));
  EXPECT_THAT(parse(good + good), MessageHas("field 1 is not one"));
  EXPECT_THAT(parse(std::string("\x0d\0\0\0\0", 5)), MessageHas("field 1 is not one"));
  EXPECT_THAT(parse(std::string(11, '\xff')), MessageHas("cut inside"));
  EXPECT_THAT(parse(std::string("\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)),
              MessageHas("field 3 is cut"));
}

std::string FrameOf(const std::string& payload) {
  std::string frame;
  AppendSkippableFrame(kTszIndexFrame, payload, &frame);
  return frame;
}

TEST(TszTest, LimitsHoldBeforeAnythingIsAllocated) {
  // A bomb that says what it is, and one that does not.
  std::string zeros(static_cast<size_t>(kTszIndexBytesMax) + 1, '\0');
  std::string packed(ZSTD_compressBound(zeros.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 1));
  EXPECT_THAT(TszIndexDecodedBytes(FrameOf(packed)), MessageHas("at most 67108864 bytes"));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  packed.resize(ZSTD_compressBound(100));
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), zeros.data(), 100));
  ZSTD_freeCCtx(context);
  EXPECT_THAT(TszIndexDecodedBytes(FrameOf(packed)), MessageHas("does not say"));
  EXPECT_THAT(TszIndexDecodedBytes(FrameOf(packed + "x")), MessageHas("one whole zstd frame"));
  EXPECT_THAT(TszIndexDecodedBytes(FrameOf(packed) + "x"), MessageHas("no index frame"));
  EXPECT_THAT(TszIndexDecodedBytes("short"), MessageHas("no index frame"));
  EXPECT_THAT(ParseTszIndex(zeros, {}), MessageHas("larger than"));

  // One extent too many.
  std::string gaps(static_cast<size_t>(kTszExtentsMax) + 1, '\x01');
  std::string bytes("\x10\x80\x80\x40", 4);
  bytes += "\x32";
  AppendVarint(gaps.size(), &bytes);
  bytes += gaps;
  bytes += "\x3a";
  AppendVarint(gaps.size(), &bytes);
  bytes += gaps;
  EXPECT_THAT(ParseTszIndex(bytes, {}), MessageHas("4194305 extents; at most 4194304"));
}

TEST(TszTest, ManyExtentsStaySmall) {
  TszIndexWriter writer;
  constexpr int64_t kExtents = 128 << 10;
  uint64_t state = 1;
  int64_t at = 0;
  for (int64_t i = 0; i < kExtents; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    at += 4096 * static_cast<int64_t>(1 + (state >> 60));
    writer.AddExtent(at, 4096 * static_cast<int64_t>(1 + (state >> 57 & 7)));
    at += 8 * 4096;
  }
  for (int64_t left = writer.populated_bytes(); left > 0; left -= 1 << 20) {
    writer.AddBlock(500000, std::min<int64_t>(left, 1 << 20), HashNumber(1));
  }
  const int64_t blocks = (writer.populated_bytes() + (1 << 20) - 1) / (1 << 20);
  EXPECT_LE(writer.memory_bytes(), TszIndexWriter::ColumnsBound(blocks, kExtents));
  ASSERT_OK_AND_ASSIGN(std::string frame, writer.Finish(int64_t{64} << 30, 1 << 20));
  EXPECT_LT(frame.size(), 512u << 10);
  EXPECT_LE(static_cast<int64_t>(frame.size()), TszIndexWriter::FrameBound(blocks, kExtents));
  ASSERT_OK_AND_ASSIGN(TszIndex index, DecodeTszIndex(frame, {int64_t{64} << 30, blocks * 500000}));
  EXPECT_EQ(index.extents.size(), static_cast<size_t>(kExtents));
}

TEST(TszTest, EveryFlippedBitAndCutOfAnObjectIsFound) {
  const std::string file = RandomBytes(600, 3) + std::string(70000, '\0') + "tail";
  const TszObject object = MakeTsz(file);
  const auto size = static_cast<int64_t>(file.size());
  ASSERT_OK_AND_ASSIGN(std::string read, ReadTsz(object.bytes, object.index_sha256, size));
  ASSERT_TRUE(read == file);
  for (size_t i = 0; i < object.bytes.size(); ++i) {
    std::string bad = object.bytes;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    EXPECT_THAT(ReadTsz(bad, object.index_sha256, size), HasCode(Code::kDataLoss)) << i;
  }
  for (size_t cut = 0; cut < object.bytes.size(); ++cut) {
    EXPECT_THAT(ReadTsz(object.bytes.substr(0, cut), object.index_sha256, size),
                HasCode(Code::kDataLoss))
        << cut;
  }
}

TEST(TszTest, TheZstdProgramYieldsThePopulatedBytes) {
  if (system("zstd --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no zstd program here";
  TempDir dir;
  for (const std::string name : {"empty", "holes", "data"}) {
    const std::string file = GoldenContent(name);
    std::string populated;
    for (size_t at = 0; at < file.size(); at += 4096) {
      const std::string page = file.substr(at, 4096);
      if (page.find_first_not_of('\0') != std::string::npos) populated += page;
    }
    WriteFileTo(dir / "x.tsz", MakeTsz(file).bytes);
    ASSERT_EQ(system(fmt::format("zstd -dc {0}/x.tsz > {0}/out", dir.path()).c_str()), 0) << name;
    EXPECT_TRUE(ReadFileFrom(dir / "out") == populated) << name;
  }
}

TEST(TszTest, BlocksGrowWithHugeFiles) {
  EXPECT_EQ(TszBlockBytesFor(0), 1 << 20);
  EXPECT_EQ(TszBlockBytesFor(int64_t{64} << 30), 1 << 20);
  EXPECT_EQ(TszBlockBytesFor(int64_t{65} << 30), 2 << 20);
  EXPECT_EQ(TszBlockBytesFor(int64_t{4} << 40), 8 << 20);
}

}  // namespace
}  // namespace torpor::snapshot
