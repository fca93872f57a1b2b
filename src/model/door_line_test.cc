#include "model/door_line.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

constexpr char kUid[] = "11111111-2222-4333-8444-555555555555";

std::string Line(const std::string& kind, const std::string& more = "") {
  return "{\"" + kind + "\":{\"uid\":\"" + kUid + "\",\"gen\":\"7\"" + more + "}}";
}

TEST(DoorLineTest, EveryKindReadsBack) {
  for (const char* kind : {"drain", "drained", "busy", "undrain", "gone"}) {
    ASSERT_OK_AND_ASSIGN(torpor::v1::DoorLine line, ParseDoorLine(Line(kind)));
    std::string text = FormatDoorLine(line);
    EXPECT_EQ(text, Line(kind) + "\n");
    text.pop_back();
    ASSERT_OK_AND_ASSIGN(torpor::v1::DoorLine again, ParseDoorLine(text));
    EXPECT_EQ(again.SerializeAsString(), line.SerializeAsString());
  }
  // Numbers may also be written as such.
  ASSERT_OK_AND_ASSIGN(
      torpor::v1::DoorLine busy,
      ParseDoorLine("{\"busy\":{\"uid\":\"" + std::string(kUid) +
                    "\",\"gen\":7,\"inflight\":2,\"oldest_ms\":1500,\"streams\":1}}"));
  EXPECT_EQ(busy.busy().gen(), 7);
  EXPECT_EQ(busy.busy().inflight(), 2);
  EXPECT_EQ(busy.busy().oldest_ms(), 1500);
}

TEST(DoorLineTest, WhatIsNotOneThingAboutOneActivationIsRefused) {
  const std::string cases[] = {
      "",
      "{}",
      "[]",
      "drain",
      "{\"drain\":{}}",
      "{\"drain\":{\"uid\":\"x\",\"gen\":\"7\"}}",
      "{\"drain\":{\"uid\":\"" + std::string(kUid) + "\"}}",
      "{\"drain\":{\"uid\":\"" + std::string(kUid) + "\",\"gen\":\"-1\"}}",
      Line("drain", ",\"grace_ms\":\"-1\""),
      Line("drain", ",\"unknown\":1"),
      Line("busy", ",\"inflight\":-1"),
      Line("busy", ",\"streams\":-1"),
      Line("busy", ",\"oldest_ms\":-5"),
      Line("stop"),
      Line("drained").substr(0, 40),
      Line("drained") + Line("drained"),
      Line("drain", ",\"why\":\"" + std::string(kDoorLineBytesMax, 'x') + "\""),
  };
  for (const std::string& text : cases) EXPECT_FALSE(ParseDoorLine(text).ok()) << text;
  std::string two = Line("drained");
  two.pop_back();
  EXPECT_FALSE(ParseDoorLine(two + "," + Line("gone").substr(1)).ok());
}

}  // namespace
}  // namespace torpor
