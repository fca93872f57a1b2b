#include "mover/image_reference.h"

#include "base/testing/matchers.h"

namespace torpor::mover {
namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

TEST(ImageReferenceTest, Good) {
  struct Case {
    const char* name;
    const char* registry;
    const char* repository;
  };
  for (const Case& c : {
           Case{"debian", "docker.io", "library/debian"},
           Case{"debian:12", "docker.io", "library/debian"},
           Case{"team/app", "docker.io", "team/app"},
           Case{"localhost/app", "localhost", "app"},
           Case{"ghcr.io/a/b/c:v1.2", "ghcr.io", "a/b/c"},
           Case{"127.0.0.1:5000/a_b/c-d", "127.0.0.1:5000", "a_b/c-d"},
           Case{"[::1]:5000/x", "[::1]:5000", "x"},
       }) {
    ASSERT_OK_AND_ASSIGN(ImageReference image, ParseImageReference(c.name + ("@" + kDigest)));
    EXPECT_EQ(image.registry, c.registry) << c.name;
    EXPECT_EQ(image.repository, c.repository) << c.name;
    EXPECT_EQ(image.digest, kDigest);
    EXPECT_EQ(image.ToString(), fmt::format("{}/{}@{}", c.registry, c.repository, kDigest));
  }
}

TEST(ImageReferenceTest, Bad) {
  for (const std::string& text :
       {std::string("debian"), std::string("debian:12"), "debian@sha256:" + std::string(63, 'a'),
        "debian@sha512:" + std::string(64, 'a'), "@" + kDigest, "-x@" + kDigest, "a//b@" + kDigest,
        "a/../b@" + kDigest, "a b@" + kDigest, "A/b@" + kDigest, "host.x:99999999/a@" + kDigest,
        "user:pw@host.x/a@" + kDigest, "host.x/a?q=1@" + kDigest, "[zz]:5000/x@" + kDigest,
        std::string(600, 'a') + "@" + kDigest, "a\n@" + kDigest, "--authfile@" + kDigest,
        "host.x/@" + kDigest}) {
    EXPECT_THAT(ParseImageReference(text), HasReason(Code::kInvalidArgument, "FIELD_INVALID"))
        << text;
  }
}

TEST(RegistryRulesTest, PublicAddresses) {
  for (const char* address : {"8.8.8.8", "140.82.112.33", "2606:4700::1", "::ffff:8.8.8.8"}) {
    EXPECT_TRUE(IsPublicAddress(address)) << address;
  }
  for (const char* address :
       {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "fd00::1",
        "::ffff:127.0.0.1", "::", "localhost", ""}) {
    EXPECT_FALSE(IsPublicAddress(address)) << address;
  }
}

std::vector<std::string> Resolve(const std::string& host) {
  if (host == "public.x") return {"8.8.8.8", "2606:4700::1"};
  if (host == "half.x") return {"8.8.8.8", "127.0.0.1"};
  if (host == "metadata.x" || host == "169.254.169.254") return {"169.254.169.254"};
  return {};
}

TEST(RegistryRulesTest, WhichRegistriesMayBeAsked) {
  const RegistryRules open;
  EXPECT_OK(CheckRegistry("public.x", open, Resolve));
  EXPECT_OK(CheckRegistry("public.x:5000", open, Resolve));
  EXPECT_THAT(CheckRegistry("half.x", open, Resolve),
              HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
  EXPECT_THAT(CheckRegistry("metadata.x", open, Resolve),
              HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
  EXPECT_THAT(CheckRegistry("169.254.169.254", open, Resolve),
              HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
  EXPECT_THAT(CheckRegistry("unknown.x", open, Resolve),
              HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));

  const RegistryRules listed{{"metadata.x"}, {"127.0.0.1:5000"}};
  EXPECT_OK(CheckRegistry("metadata.x", listed, Resolve));
  EXPECT_OK(CheckRegistry("127.0.0.1:5000", listed, Resolve));
  EXPECT_TRUE(IsInsecure("127.0.0.1:5000", listed));
  EXPECT_FALSE(IsInsecure("metadata.x", listed));
  EXPECT_THAT(CheckRegistry("public.x", listed, Resolve),
              HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
}

}  // namespace
}  // namespace torpor::mover
