#include "cli/manifest.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor::cli {
namespace {

constexpr char kTwo[] = R"(
kind: ActorTemplate
metadata: {name: web}
containers:
- name: main
  image: web@sha256:abc
  env: [{name: N, value: "1"}]
resources: {limits: [{name: cpu, quantity: "1"}]}
---
kind: Actor
metadata: {atespace: other, name: a}
actorTemplate: {name: web}
---
)";

TEST(ParseResources, SeveralDocumentsAndTheDefaultAtespace) {
  ASSERT_OK_AND_ASSIGN(auto resources, ParseResources(kTwo, "f.yaml", "demo"));
  ASSERT_EQ(resources.size(), 2u);
  const auto& t = std::get<ateapi::ActorTemplate>(resources[0]);
  EXPECT_EQ(t.metadata().atespace(), "demo");
  EXPECT_EQ(t.containers(0).env(0).value(), "1");
  EXPECT_EQ(t.resources().limits(0).quantity(), "1");
  const auto& a = std::get<ateapi::Actor>(resources[1]);
  EXPECT_EQ(a.metadata().atespace(), "other");
  EXPECT_EQ(a.actor_template().atespace(), "demo");
}

TEST(ParseResources, ErrorsSayWhereAndWhat) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "f.yaml holds no resource"},
      {"metadata: {name: a}\n", "f.yaml:1: a document needs kind"},
      {"kind: Pod\n", "unknown kind 'Pod'; allowed: Atespace"},
      {"kind: Actor\nnope: 1\n", "nope"},
      {"kind: [\n", "f.yaml:"},
      {"kind: Actor\n---\nkind: Actor\nmetadata: 5\n", "f.yaml:3"},
  };
  for (const auto& [text, wants] : cases) {
    auto result = ParseResources(text, "f.yaml", "demo");
    EXPECT_THAT(result, HasCode(Code::kInvalidArgument)) << text;
    EXPECT_THAT(result, MessageHas(wants)) << text;
  }
}

}  // namespace
}  // namespace torpor::cli
