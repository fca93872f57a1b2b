#include "snapshot/format/manifest.h"

#include <fstream>
#include <sstream>

#include "base/testing/matchers.h"
#include "snapshot/testing/sample.h"

namespace torpor::snapshot {
namespace {

Manifest Full() {
  Manifest manifest = SampleManifest();
  ManifestFile pages = SampleFile("pages.img", 1 << 30);
  pages.file.set_populated_bytes(12345678);
  pages.object = ManifestObject{"pages.img.tsz", 2345678, std::string(64, 'b')};
  manifest.files.push_back(pages);
  ManifestFile volume = SampleFile("volumes/data.tar", 0, torpor::v1::FIDELITY_VOLUMES);
  volume.mode = 0600;
  volume.object = ManifestObject{"volumes/data.tar.tsz", 13, std::string(64, 'c')};
  manifest.files.push_back(volume);
  manifest.bases.push_back(
      {"atespaces/demo/tags/66666666-2222-4333-8444-555555555555", std::string(64, 'd')});
  return manifest;
}

std::string Text(const Manifest& manifest) {
  auto text = SerializeManifest(manifest);
  EXPECT_OK(text);
  return std::move(text).value();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ManifestTest, GoldenFileOfVersion1) {
  std::ifstream in(TORPOR_SOURCE_DIR "/src/snapshot/format/testdata/manifest_v1.json");
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(Text(Full()), golden.str());
  ASSERT_OK_AND_ASSIGN(Manifest read, ParseManifest(golden.str()));
  EXPECT_EQ(read.actor.SerializeAsString(), Full().actor.SerializeAsString());
  EXPECT_EQ(read.meta.SerializeAsString(), Full().meta.SerializeAsString());
  EXPECT_EQ(Text(read), golden.str());
}

TEST(ManifestTest, ALocalManifestHasNoObjects) {
  Manifest manifest = SampleManifest();
  manifest.files.push_back(SampleFile("checkpoint.img", 10));
  ASSERT_OK_AND_ASSIGN(Manifest read, ParseManifest(Text(manifest)));
  ASSERT_EQ(read.files.size(), 1u);
  EXPECT_FALSE(read.files[0].object.has_value());
  EXPECT_EQ(read.files[0].mode, 0440u);
  EXPECT_EQ(read.boot_id, manifest.boot_id);
}

TEST(ManifestTest, EveryTruncationIsCorrupt) {
  const std::string text = Text(Full());
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_THAT(ParseManifest(text.substr(0, size)), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"))
        << size;
  }
}

TEST(ManifestTest, NoFlippedBitBreaksTheParser) {
  const std::string text = Text(Full());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    auto read = ParseManifest(damaged);
    // Whatever is accepted keeps every bound, so it can be written again.
    if (read.ok()) {
      EXPECT_OK(SerializeManifest(*read));
    } else {
      EXPECT_THAT(read, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << i;
    }
  }
}

TEST(ManifestTest, HostileValues) {
  const std::string text = Text(Full());
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  for (const Case& c : {
           Case{"\"pages.img\"", "\"../pages.img\"", "not a clean file name"},
           Case{"\"pages.img\"", "\"/etc/passwd\"", "not a clean file name"},
           Case{"\"pages.img\"", "\"a/b/c\"", "not a clean file name"},
           Case{"\"pages.img\"", "\"\"", "not a clean file name"},
           Case{"\"pages.img\"", "\"a\\u0000b\"", "not a clean file name"},
           Case{"\"pages.img\"", "\"manifest.json\"", "reserved"},
           Case{"\"pages.img\"", "\"volumes/data.tar\"", "listed twice"},
           Case{"\"pages.img\"", "\"volumes\"", "both a file and a directory"},
           Case{"\"pages.img.tsz\"", "\"volumes/data.tar.tsz\"", "named twice"},
           Case{"\"pages.img.tsz\"", "\"../x\"", "object's name"},
           Case{"1073741824", "-1", "logical_bytes"},
           Case{"1073741824", "4398046511105", "logical_bytes"},
           Case{"1073741824", "18446744073709551615", "not a whole number"},
           Case{"1073741824", "1e300", "not a whole number"},
           Case{"1073741824", "\"1\"", "not a whole number"},
           Case{": 12345678", ": 1073741825", "populated_bytes"},
           Case{"2345678,", "-5,", "object bytes"},
           Case{"\"mode\": 288", "\"mode\": 2541", "mode"},
           Case{"\"mode\": 288", "\"mode\": -1", "mode"},
           Case{"\"format\": 1", "\"format\": 2", "format 2 is not known"},
           Case{"\"generation\": 7", "\"generation\": 0", "generation"},
           Case{"\"fidelity\": \"MEMORY\"", "\"fidelity\": \"VOLUMES\"", "needed_from"},
           Case{"\"fidelity\": \"MEMORY\"", "\"fidelity\": \"ALL\"", "not a known name"},
           Case{"\"boot_id\"", "\"boot_ix\"", "missing"},
           Case{"\"bases\": [", "\"extra\": 1, \"bases\": [", "unknown key"},
           Case{"\"uid\": \"1111", "\"uid\": \"x111", "actor.uid"},
           Case{"\"demo\"", "\"De/mo\"", "atespace"},
           Case{"tags/6666", "../6666", "path of a base"},
           Case{"2026-", "20x6-", "not a time"},
           Case{"sha256:aa", "sha256:AA", "image digest"},
       }) {
    auto read = ParseManifest(Replaced(text, c.from, c.to));
    EXPECT_THAT(read, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << c.to;
    EXPECT_THAT(read, MessageHas(c.says)) << c.to;
  }
}

TEST(ManifestTest, Bounds) {
  Manifest manifest = SampleManifest();
  for (size_t i = 0; i <= kManifestFilesMax; ++i) {
    manifest.files.push_back(SampleFile(fmt::format("f{}", i), 1));
  }
  EXPECT_THAT(SerializeManifest(manifest), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  manifest.files.pop_back();
  ASSERT_OK(ParseManifest(Text(manifest)));
  manifest.files[0].file.set_logical_bytes(kSnapshotFileBytesMax);
  EXPECT_THAT(SerializeManifest(manifest), MessageHas("together"));
  EXPECT_THAT(ParseManifest(std::string(kManifestBytesMax + 1, ' ')),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  EXPECT_THAT(ParseManifest(std::string(1 << 20, '[')),
              HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
}

TEST(ManifestTest, NarrowsToAFidelity) {
  ASSERT_OK_AND_ASSIGN(auto files, NarrowFiles(Full(), torpor::v1::FIDELITY_VOLUMES));
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].file.name(), "volumes/data.tar");
  ASSERT_OK_AND_ASSIGN(files, NarrowFiles(Full(), torpor::v1::FIDELITY_MEMORY));
  EXPECT_EQ(files.size(), 2u);
  Manifest narrow = SampleManifest();
  narrow.meta.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  EXPECT_THAT(NarrowFiles(narrow, torpor::v1::FIDELITY_MEMORY),
              HasReason(Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED"));
  EXPECT_THAT(NarrowFiles(narrow, torpor::v1::FIDELITY_UNSPECIFIED),
              HasReason(Code::kFailedPrecondition, "FIDELITY_NOT_CAPTURED"));
}

TEST(ManifestTest, Identity) {
  EXPECT_OK(CheckIdentity(Full(), SampleActor()));
  torpor::v1::ActorIdentity other = SampleActor();
  other.set_uid("21111111-2222-4333-8444-555555555555");
  EXPECT_THAT(CheckIdentity(Full(), other),
              HasReason(Code::kFailedPrecondition, "SNAPSHOT_IDENTITY"));
  other = SampleActor();
  other.set_atespace("other");
  EXPECT_THAT(CheckIdentity(Full(), other), MessageHas("atespace"));
  other = SampleActor();
  other.set_template_uid("76666666-2222-4333-8444-555555555555");
  EXPECT_THAT(CheckIdentity(Full(), other), MessageHas("template"));
}

}  // namespace
}  // namespace torpor::snapshot
