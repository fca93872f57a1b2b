#include "cli/output.h"

#include <gtest/gtest.h>

#include "ateapi/ateapi.pb.h"
#include "base/testing/matchers.h"

namespace torpor::cli {
namespace {

TEST(Table, ColumnsAlign) {
  Table table({"NAME", "STATE"});
  table.Add({"a-long-name", "RUNNING"});
  EXPECT_EQ(table.ToString(), "NAME          STATE\na-long-name   RUNNING\n");
}

ateapi::Actor Example() {
  ateapi::Actor actor;
  actor.mutable_metadata()->set_name("a");
  actor.mutable_metadata()->set_version(3);
  actor.mutable_status()->set_state(ateapi::ACTOR_STATE_RUNNING);
  return actor;
}

TEST(Json, OneObjectOrItems) {
  ateapi::Actor actor = Example();
  ASSERT_OK_AND_ASSIGN(std::string one, ToJson({&actor}, false));
  EXPECT_EQ(one.find("items"), std::string::npos);
  EXPECT_NE(one.find(R"("version": "3")"), std::string::npos) << one;
  ASSERT_OK_AND_ASSIGN(std::string many, ToJson({&actor}, true));
  EXPECT_NE(many.find("items"), std::string::npos);
  ASSERT_OK_AND_ASSIGN(std::string none,
                       ToJson(std::vector<const google::protobuf::Message*>{}, true));
  EXPECT_EQ(none, "{\n  \"items\": []\n}");
}

TEST(Yaml, KeepsTextsThatLookLikeNumbers) {
  ateapi::Actor actor = Example();
  ASSERT_OK_AND_ASSIGN(std::string json, ToJson({&actor}, false));
  ASSERT_OK_AND_ASSIGN(std::string yaml, JsonToYaml(json));
  EXPECT_NE(yaml.find("version: \"3\""), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("state: ACTOR_STATE_RUNNING"), std::string::npos) << yaml;
  EXPECT_THAT(JsonToYaml("{"), HasCode(Code::kInternal));
}

TEST(Age, WholeSecondsAndUnset) {
  WallTime now = WallTime(std::chrono::seconds(1000000));
  EXPECT_EQ(Age(ToProto(now - std::chrono::milliseconds(5400)), now), "5s");
  EXPECT_EQ(Age(ToProto(now - std::chrono::seconds(200)), now), "3m20s");
  EXPECT_EQ(Age(google::protobuf::Timestamp(), now), "-");
  EXPECT_EQ(Age(ToProto(now + std::chrono::seconds(5)), now), "0s");
}

TEST(Names, EnumAndDash) {
  EXPECT_EQ(EnumName("ACTOR_STATE_PAUSED", "ACTOR_STATE_"), "PAUSED");
  EXPECT_EQ(EnumName("17", "ACTOR_STATE_"), "17");
  EXPECT_EQ(OrDash(""), "-");
}

}  // namespace
}  // namespace torpor::cli
