#include "mover/image_puller.h"

#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "mover/oci_layout.h"
#include "mover/testing/image.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::mover {
namespace {

namespace fs = std::filesystem;
using snapshot::ReadFileFrom;
using snapshot::TempDir;
using snapshot::Transfer;
using snapshot::WriteFileTo;

class ImagePullerTest : public testing::Test {
 protected:
  ImagePullerTest() {
    fs::create_directories(node_ / "images/blobs");
    options_.node_dir = node_.path();
    options_.layout_dir = layouts_.path();
    // Nothing here may reach the network.
    options_.skopeo = "/nonexistent/skopeo";
    options_.resolver = [](const std::string&) { return std::vector<std::string>{}; };
  }
  Status Pull(const std::string& digest, const std::string& architecture = "amd64") {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
    return ImagePuller(options_).Pull("registry.example/demo/app@" + digest, architecture,
                                      &transfer);
  }
  os::DirFd Blobs() { return std::move(os::DirFd::OpenPath(node_ / "images/blobs")).value(); }

  TempDir node_;
  TempDir layouts_;
  ImagePullerOptions options_;
};

TEST_F(ImagePullerTest, TakesADigestFromALocalLayout) {
  MakeTestImage(layouts_ / "other", "other", 1);
  const std::string digest = MakeTestImage(layouts_ / "app", "app", 2);
  ASSERT_OK(Pull(digest));
  os::DirFd blobs = Blobs();
  ASSERT_OK_AND_ASSIGN(Descriptor named, FindNamed(blobs, digest));
  EXPECT_EQ(named.digest, digest);
  ASSERT_OK_AND_ASSIGN(ImageParts parts, ReadImage(blobs, digest, "amd64"));
  EXPECT_TRUE(IsComplete(blobs, parts));
  EXPECT_EQ(parts.blobs.size(), 3u);
  // Again, and another one beside it.
  ASSERT_OK(Pull(digest));
  const std::string second = MakeTestImage(layouts_ / "second", "second", 1);
  ASSERT_OK(Pull(second));
  ASSERT_OK(FindNamed(blobs, digest));
  ASSERT_OK(FindNamed(blobs, second));
  for (const auto& entry : fs::directory_iterator(node_ / "images/blobs/blobs/sha256")) {
    EXPECT_NE(entry.path().filename().string().front(), '.');
  }
}

TEST_F(ImagePullerTest, PicksTheArchitectureOfAnIndex) {
  const std::string image = MakeTestImage(layouts_ / "app", "app", 1);
  const std::string index = AddTestIndex(layouts_ / "app", image, "arm64");
  EXPECT_THAT(Pull(index, "amd64"), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
  ASSERT_OK(Pull(index, "arm64"));
  ASSERT_OK_AND_ASSIGN(Descriptor named, FindNamed(Blobs(), index));
  EXPECT_EQ(named.digest, image);
}

TEST_F(ImagePullerTest, ADamagedLayoutIsFoundAndLeavesNothing) {
  const std::string digest = MakeTestImage(layouts_ / "app", "app", 1);
  for (const auto& entry : fs::directory_iterator(layouts_ / "app/blobs/sha256")) {
    const std::string path = entry.path();
    const std::string good = ReadFileFrom(path);
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    WriteFileTo(path, bad);
    // What an earlier round copied would hide the damage.
    fs::remove_all(node_ / "images/blobs/blobs");
    EXPECT_THAT(Pull(digest), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << path;
    EXPECT_THAT(FindNamed(Blobs(), digest), HasCode(Code::kNotFound));
    EXPECT_FALSE(
        fs::exists(node_ / ("images/blobs/blobs/sha256/" + entry.path().filename().string())));
    WriteFileTo(path, good);
  }
  ASSERT_OK(Pull(digest));
}

TEST_F(ImagePullerTest, BlobsThatAreLinksAreNotFollowed) {
  const std::string digest = MakeTestImage(layouts_ / "app", "app", 1);
  const std::string blob = layouts_ / ("app/" + BlobPath(digest));
  fs::rename(blob, layouts_ / "moved");
  fs::create_symlink(layouts_ / "moved", blob);
  // Not found there, so the registry would be asked.
  EXPECT_THAT(Pull(digest), HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
}

TEST_F(ImagePullerTest, RegistriesThatAreNotAllowedAreNotAsked) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  options_.registries.allowed = {"only.example"};
  EXPECT_THAT(Pull(digest), HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
  options_.registries.allowed = {};
  options_.resolver = [](const std::string&) { return std::vector<std::string>{"10.0.0.1"}; };
  EXPECT_THAT(Pull(digest), HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
}

TEST_F(ImagePullerTest, LeftoversOfADeadMoverGo) {
  fs::create_directories(node_ / "images/blobs/.pull-0123");
  fs::create_directories(node_ / "images/blobs/blobs/sha256");
  WriteFileTo(node_ / "images/blobs/blobs/sha256/.tmp-0123", "x");
  ASSERT_OK(Pull(MakeTestImage(layouts_ / "app", "app", 1)));
  EXPECT_FALSE(fs::exists(node_ / "images/blobs/.pull-0123"));
  EXPECT_FALSE(fs::exists(node_ / "images/blobs/blobs/sha256/.tmp-0123"));
}

TEST_F(ImagePullerTest, CancelledPullsLeaveNoName) {
  const std::string digest = MakeTestImage(layouts_ / "app", "app", 1);
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(1));
  transfer.Cancel();
  EXPECT_THAT(ImagePuller(options_).Pull("app@" + digest, "amd64", &transfer),
              HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_THAT(FindNamed(Blobs(), digest), HasCode(Code::kNotFound));
}

TEST_F(ImagePullerTest, AHungSkopeoIsEnded) {
  options_.skopeo = layouts_ / "skopeo";
  WriteFileTo(options_.skopeo, "#!/bin/sh\nsleep 1000\n");
  fs::permissions(options_.skopeo, fs::perms::owner_all);
  options_.resolver = [](const std::string&) { return std::vector<std::string>{"8.8.8.8"}; };
  Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::milliseconds(300));
  EXPECT_THAT(ImagePuller(options_).Pull("public.example/a@sha256:" + std::string(64, 'a'), "amd64",
                                         &transfer),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  for (const auto& entry : fs::directory_iterator(node_ / "images/blobs")) {
    EXPECT_NE(entry.path().filename().string().rfind(".pull-", 0), 0u);
  }
}

TEST(SkopeoStatusTest, WhatItsMessagesMean) {
  struct Case {
    const char* message;
    Code code;
    const char* reason;
  };
  for (const Case& c : {
           Case{"reading manifest: manifest unknown", Code::kNotFound, "INVALID_CONTAINER_CONFIG"},
           Case{"name unknown: repository name not known to registry", Code::kNotFound,
                "INVALID_CONTAINER_CONFIG"},
           Case{"unauthorized: authentication required", Code::kPermissionDenied, "NOT_ALLOWED"},
           Case{"requested access to the resource is denied", Code::kPermissionDenied,
                "NOT_ALLOWED"},
           Case{"write /x: no space left on device", Code::kResourceExhausted, "DISK_FULL"},
           Case{"dial tcp 1.2.3.4:443: connect: connection refused", Code::kUnavailable,
                "IMAGE_REGISTRY_UNAVAILABLE"},
           Case{"http: server gave HTTP response to HTTPS client", Code::kUnavailable,
                "IMAGE_REGISTRY_UNAVAILABLE"},
           Case{"toomanyrequests: slow down", Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"},
           Case{"received unexpected HTTP status: 503 Service Unavailable", Code::kUnavailable,
                "IMAGE_REGISTRY_UNAVAILABLE"},
           Case{"no image found in manifest list for architecture s390x", Code::kInternal,
                "INVALID_CONTAINER_CONFIG"},
       }) {
    EXPECT_THAT(SkopeoStatus("a@b", c.message), HasReason(c.code, c.reason)) << c.message;
  }
}

}  // namespace
}  // namespace torpor::mover
