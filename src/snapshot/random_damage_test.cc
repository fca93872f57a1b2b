// Random damage to what lies in the store: an error by name, never other bytes, never a crash.

#include <zstd.h>

#include <cstdlib>
#include <random>

#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz_wire.h"
#include "snapshot/testing/fixture.h"
#include "snapshot/testing/tsz_sample.h"
#include "torpor/snapshot/v1/index.pb.h"

namespace torpor::snapshot {
namespace {

namespace fs = std::filesystem;

// All of them take minutes with sanitizers.
int Rounds() {
#ifdef TORPOR_THREAD_SANITIZER
  constexpr int kRounds = 60;  // ten times as slow, and the bytes are the same
#else
  constexpr int kRounds = 600;
#endif
  return getenv("TORPOR_LONG_TESTS") != nullptr ? 10000 : kRounds;
}

class RandomDamageTest : public SnapshotFixture {
 protected:
  RandomDamageTest() {
    std::string pages(6 << 20, '\0');
    for (size_t page = 0; page < pages.size() >> 12; ++page) {
      if (page % 5 == 0) continue;
      const std::string bytes =
          page % 3 == 0 ? RandomBytes(4096, page) : std::string(4096, static_cast<char>(page));
      pages.replace(page << 12, 4096, bytes);
    }
    Capture("pages", pages);
    Capture("dir/small", RandomBytes(3000, 1));
    Capture("hole", std::string(1 << 20, '\0'));
  }

  size_t Below(size_t n) { return random_() % n; }
  std::string Key() {
    static const char* const kKeys[] = {"snap/pages.tsz", "snap/dir/small.tsz", "snap/hole.tsz",
                                        "snap/manifest.json"};
    return kKeys[Below(4)];
  }
  // Whatever was done: the bytes that were saved, or an error and nothing in the target.
  void ExpectRightOrNothing(const std::string& sha256, const std::string& what) {
    auto loaded = Load(target_, sha256);
    if (!loaded.ok()) {
      EXPECT_EQ(loaded.status().code(), Code::kDataLoss)
          << what << " " << loaded.status().ToString();
      ASSERT_EQ(target_.Entries(), 0u) << what;
      ++refused_;
      return;
    }
    for (const auto& file : loaded->files()) {
      ASSERT_TRUE(ReadFileFrom(target_ / file.name()) == ReadFileFrom(source_ / file.name()))
          << what << ": wrong bytes in " << file.name();
    }
    for (const auto& entry : fs::directory_iterator(target_.path())) fs::remove_all(entry.path());
  }

  // The object with an index in which some numbers were changed.
  std::string HostileObject(const TszIndex& index, const std::string& object, int64_t size,
                            std::string* sha256) {
    TszIndexWriter writer;
    for (const TszBlock& block : index.blocks) {
      writer.AddBlock(block.compressed_bytes, block.raw_bytes, block.hash);
    }
    for (const TszExtent& extent : index.extents) writer.AddExtent(extent.offset, extent.length);
    torpor::snapshot::v1::Index message;
    CHECK(message.ParseFromString(writer.Serialize(size, index.block_bytes)));
    auto column = [&](auto* values) {
      if (values->empty()) return;
      auto* value = values->Mutable(static_cast<int>(Below(static_cast<size_t>(values->size()))));
      *value = Below(2) == 0 ? *value + 4096 - Below(8192) : random_() >> Below(64);
    };
    for (size_t changes = 1 + Below(3); changes > 0; --changes) {
      switch (Below(6)) {
        case 0:
          column(message.mutable_block_compressed_size());
          break;
        case 1:
          column(message.mutable_block_raw_size());
          break;
        case 2:
          column(message.mutable_extent_gap());
          break;
        case 3:
          column(message.mutable_extent_length());
          break;
        case 4:
          message.set_block_size(static_cast<int64_t>(random_() >> Below(64)));
          break;
        default: {  // two blocks change places
          const int last = message.block_raw_size_size() - 1;
          message.mutable_block_compressed_size()->SwapElements(0, last);
          message.mutable_block_raw_size()->SwapElements(0, last);
        }
      }
    }
    const std::string bytes = message.SerializeAsString();
    std::string packed(ZSTD_compressBound(bytes.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1));
    std::string frame;
    AppendSkippableFrame(kTszIndexFrame, packed, &frame);
    const TszBlock& last = index.blocks.back();
    TszObject out =
        CloseTsz(object.substr(0, static_cast<size_t>(last.offset) + last.compressed_bytes), frame);
    *sha256 = out.index_sha256;
    return out.bytes;
  }

  void HostileNumbers(ManifestFile* file) {
    auto number = [&] { return static_cast<int64_t>(random_() >> (1 + Below(63))); };
    switch (Below(4)) {
      case 0:
        file->file.set_logical_bytes(number());
        break;
      case 1:
        file->object->bytes = number();
        break;
      case 2:
        file->object->index_sha256 = Sha256Hex(std::to_string(number()));
        break;
      default:
        file->object->name = "dir/other";
    }
    file->file.set_populated_bytes(std::min(file->file.logical_bytes(), number() >> 20));
  }

  std::mt19937_64 random_{20261201};
  TempDir target_{"/dev/shm"};
  int refused_ = 0;
};

TEST_F(RandomDamageTest, F5_NoDamagedByteReachesAFile) {
  ASSERT_OK_AND_ASSIGN(auto saved, Save());
  for (int round = 0; round < Rounds(); ++round) {
    const std::string key = Key();
    const std::string good = Object(key);
    std::string bad = good;
    std::string what = fmt::format("round {}: {}", round, key);
    switch (Below(5)) {
      case 0: {  // bits
        for (size_t bits = 1 + Below(3); bits > 0; --bits) {
          const size_t at = Below(bad.size());
          bad[at] = static_cast<char>(bad[at] ^ (1 << Below(8)));
        }
        break;
      }
      case 1:  // truncation
        bad.resize(Below(bad.size()));
        break;
      case 2:  // more than there was
        bad += RandomBytes(8 * (1 + Below(10000)), random_());
        break;
      case 3: {  // a piece somewhere else
        const size_t bytes = 1 + Below(std::min<size_t>(bad.size(), 100000));
        const std::string piece = bad.substr(Below(bad.size() - bytes + 1), bytes);
        bad.replace(Below(bad.size() - bytes + 1), bytes, piece);
        break;
      }
      default:  // another object
        bad = Object(Key());
    }
    ASSERT_OK(store_.Put(key, bad));
    const int refused = refused_;
    ExpectRightOrNothing(saved.manifest_sha256(), what);
    EXPECT_EQ(refused_, bad == good ? refused : refused + 1) << what;
    ASSERT_OK(store_.Put(key, good));
    if (HasFatalFailure()) return;
  }
  ExpectRightOrNothing(saved.manifest_sha256(), "undamaged");
}

// Somebody who can write the manifest, too: every hash is right, the numbers are not.
TEST_F(RandomDamageTest, F5_HostileIndexesAndManifestsCrashNothing) {
  ASSERT_OK(Save());
  const std::string manifest = Object("snap/manifest.json");
  const std::string pages = Object("snap/pages.tsz");
  const int64_t size = manifest_.files[0].file.logical_bytes();
  ASSERT_OK_AND_ASSIGN(Manifest parsed, ParseManifest(manifest));
  ASSERT_OK_AND_ASSIGN(TszIndex index,
                       ReadTszIndex(pages, parsed.files[0].object->index_sha256, size));
  for (int round = 0; round < Rounds(); ++round) {
    Manifest hostile = parsed;
    std::string object = pages;
    if (Below(3) > 0) {
      object = HostileObject(index, pages, size, &hostile.files[0].object->index_sha256);
      hostile.files[0].object->bytes = static_cast<int64_t>(object.size());
    } else {
      HostileNumbers(&hostile.files[Below(3)]);
    }
    auto text = SerializeManifest(hostile);
    if (!text.ok()) continue;
    ASSERT_OK(store_.Put("snap/pages.tsz", object));
    ASSERT_OK(store_.Put("snap/manifest.json", *text));
    // The bytes may be others, since whoever wrote this may write any; they stay in their file.
    auto loaded = Load(target_);
    if (loaded.ok()) {
      EXPECT_EQ(fs::file_size(target_ / "pages"), static_cast<uintmax_t>(size)) << round;
    } else {
      const bool too_large = ReasonOf(loaded.status()) == "DISK_FULL";
      EXPECT_TRUE(loaded.status().code() == Code::kDataLoss || too_large)
          << loaded.status().ToString();
      EXPECT_EQ(target_.Entries(), 0u) << round;
      ++refused_;
    }
    for (const auto& entry : fs::directory_iterator(target_.path())) fs::remove_all(entry.path());
    ASSERT_EQ(resources_->memory()->reserved(), 0) << round;
  }
  EXPECT_GT(refused_, Rounds() / 4);
}

}  // namespace
}  // namespace torpor::snapshot
