#include "runtime/gvisor/bundle.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"

namespace torpor::gvisor {
namespace {

using nlohmann::json;

TEST(ComposeConfig, SetsNetworkRootAndCpu) {
  ASSERT_OK_AND_ASSIGN(std::string text, ComposeConfig(R"({
      "process": {"args": ["/a"]}, "root": {"path": "rootfs", "readonly": false},
      "linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/x"},
                               {"type": "mount"}, {"type": 3}, 4],
                "cgroupsPath": "/x", "resources": {"memory": {"limit": 5}}}})",
                                                       "/bundles/app", 1500));
  EXPECT_EQ(json::parse(text), json::parse(R"({
      "process": {"args": ["/a"]}, "root": {"path": "/bundles/app/rootfs", "readonly": false},
      "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": 3},
                               {"type": "network", "path": "/proc/self/ns/net"}],
                "resources": {"cpu": {"quota": 150000, "period": 100000}}}})"));
}

TEST(ComposeConfig, AbsoluteRootAndNoLimitStay) {
  ASSERT_OK_AND_ASSIGN(std::string text,
                       ComposeConfig(R"({"root": {"path": "/images/x"}})", "/b", 0));
  EXPECT_EQ(json::parse(text), json::parse(R"({
      "root": {"path": "/images/x"},
      "linux": {"namespaces": [{"type": "network", "path": "/proc/self/ns/net"}]}})"));
}

TEST(ComposeConfig, AnnotatesOneOfSeveral) {
  const Membership root{"s", "pause", true};
  const Membership app{"s", "web"};
  auto annotations = [](const Membership* member) {
    auto text =
        ComposeConfig(R"({"root": {"path": "/x"}, "annotations": {"a": "b"}})", "/b", 0, member);
    return text.ok() ? json::parse(*text)["annotations"] : json();
  };
  EXPECT_EQ(annotations(nullptr), json::parse(R"({"a": "b"})"));
  EXPECT_EQ(annotations(&root), json::parse(R"({"a": "b",
      "io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "s",
      "io.kubernetes.cri.container-name": "pause"})"));
  EXPECT_EQ(annotations(&app), json::parse(R"({"a": "b",
      "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "s",
      "io.kubernetes.cri.container-name": "web"})"));
  EXPECT_THAT(ComposeConfig(R"({"root": {"path": "/x"}, "annotations": 1})", "/b", 0, &app),
              HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
}

TEST(ComposeConfig, RefusesWhatIsNoConfig) {
  for (const char* text : {"", "[]", "{", "{}", R"({"root": {}})", R"({"root": {"path": ""}})",
                           R"({"root": {"path": 1}})", R"({"root": {"path": "/x"}, "linux": 3})"}) {
    EXPECT_THAT(ComposeConfig(text, "/b", 0),
                HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"))
        << text;
  }
}

}  // namespace
}  // namespace torpor::gvisor
