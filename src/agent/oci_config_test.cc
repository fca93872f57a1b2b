#include "agent/oci_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"

namespace torpor::agent {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

OciInputs Inputs(const std::string& config = R"({"Entrypoint": ["/e"], "Cmd": ["c1", "c2"]})") {
  OciInputs in;
  in.image_config = R"({"config": )" + config + "}";
  in.container.set_name("app");
  in.actor.set_name("counter-1");
  in.actor.set_uid("11111111-1111-4111-8111-111111111111");
  in.rootfs_path = "/node/images/rootfs/x/rootfs";
  in.passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n";
  in.group = "root:x:0:\nstaff:x:50:app,other\napp:x:1001:\n";
  return in;
}

Json Build(const OciInputs& in) {
  auto config = BuildOciConfig(in);
  EXPECT_OK(config);
  return config.ok() ? Json::parse(*config) : Json();
}

TEST(OciConfigTest, WhatRuns) {
  struct Case {
    Words command;
    Words args;
    Words runs;
  };
  const Case cases[] = {{{}, {}, {"/e", "c1", "c2"}},
                        {{}, {"a"}, {"/e", "a"}},
                        {{"/x"}, {}, {"/x"}},
                        {{"/x", "y"}, {"a", "b"}, {"/x", "y", "a", "b"}},
                        {{"$(HOME)"}, {"$X"}, {"$(HOME)", "$X"}}};
  for (const Case& c : cases) {
    OciInputs in = Inputs();
    for (const std::string& word : c.command) in.container.add_command(word);
    for (const std::string& word : c.args) in.container.add_args(word);
    EXPECT_EQ(Build(in)["process"]["args"], Json(c.runs));
  }
  EXPECT_THAT(BuildOciConfig(Inputs("{}")), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
  EXPECT_THAT(BuildOciConfig(Inputs("null")),
              HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
}

TEST(OciConfigTest, EnvironmentOfTheTemplateBeatsTheImage) {
  OciInputs in = Inputs(R"({"Cmd": ["/a"], "Env": ["A=1", "B=2", "broken", "=x"]})");
  auto* env = in.container.add_env();
  env->set_name("B");
  env->set_value("3=4");
  Json got = Build(in)["process"]["env"];
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].get<std::string>().rfind("PATH=", 0), 0U);
  EXPECT_EQ(got[1], "A=1");
  EXPECT_EQ(got[2], "B=3=4");
  EXPECT_EQ(Build(Inputs(R"({"Cmd": ["/a"], "Env": ["PATH=/p"]})"))["process"]["env"],
            Json(Words{"PATH=/p"}));
}

TEST(OciConfigTest, Users) {
  struct Case {
    const char* user;
    int uid;
    int gid;
    Words more;
  };
  const Case cases[] = {{"", 0, 0, {}},
                        {"7", 7, 0, {}},
                        {"7:8", 7, 8, {}},
                        {"app", 1000, 1001, {"50"}},
                        {"1000", 1000, 1001, {"50"}},
                        {"app:staff", 1000, 50, {}},
                        {"root:0", 0, 0, {}}};
  for (const Case& c : cases) {
    Json user = Build(
        Inputs(std::string(R"({"Cmd": ["/a"], "User": ")") + c.user + "\"}"))["process"]["user"];
    EXPECT_EQ(user["uid"], c.uid) << c.user;
    EXPECT_EQ(user["gid"], c.gid) << c.user;
    EXPECT_EQ(user.contains("additionalGids"), !c.more.empty()) << c.user;
  }
  for (const char* bad : {"nobody", "app:none", "a:b:c", "-1", "4294967296"}) {
    EXPECT_THAT(BuildOciConfig(Inputs(std::string(R"({"Cmd": ["/a"], "User": ")") + bad + "\"}")),
                HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"))
        << bad;
  }
}

bool Has(const Json& config, const char* set, const char* capability) {
  for (const Json& item : config["process"]["capabilities"][set]) {
    if (item == capability) return true;
  }
  return false;
}

TEST(OciConfigTest, Capabilities) {
  OciInputs in = Inputs();
  EXPECT_TRUE(Has(Build(in), "effective", "CAP_CHOWN"));
  EXPECT_FALSE(Has(Build(in), "effective", "CAP_NET_RAW"));
  EXPECT_FALSE(Has(Build(in), "bounding", "CAP_SYS_ADMIN"));
  in.container.mutable_capabilities()->add_drop("ALL");
  in.container.mutable_capabilities()->add_add("NET_RAW");
  EXPECT_EQ(Build(in)["process"]["capabilities"]["permitted"], Json(Words{"CAP_NET_RAW"}));
  in.container.mutable_capabilities()->add_add("NO_SUCH");
  EXPECT_THAT(BuildOciConfig(in), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
}

TEST(OciConfigTest, VolumesAreMountedReadOnlyUnlessDurable) {
  OciInputs in = Inputs();
  auto* mount = in.container.add_volume_mounts();
  mount->set_name("info");
  mount->set_mount_path("/etc/actor");
  EXPECT_THAT(BuildOciConfig(in), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
  in.volumes["info"] = {.path = "/node/actors/u/system-info/info"};
  Json last = Build(in)["mounts"].back();
  EXPECT_EQ(last["destination"], "/etc/actor");
  EXPECT_EQ(last["source"], "/node/actors/u/system-info/info");
  EXPECT_EQ(last["options"], Json(Words{"bind", "ro", "nosuid", "nodev"}));
  in.volumes["info"] = {.path = "/node/actors/u/durable-dir/info", .writable = true};
  EXPECT_EQ(Build(in)["mounts"].back()["options"], Json(Words{"bind", "rw", "nosuid", "nodev"}));
}

TEST(OciConfigTest, TheRestIsFixed) {
  OciInputs in = Inputs(R"({"Cmd": ["/a"], "WorkingDir": "/srv"})");
  Json config = Build(in);
  EXPECT_EQ(config["hostname"], "counter-1");
  EXPECT_EQ(config["root"]["path"], in.rootfs_path);
  EXPECT_EQ(config["root"]["readonly"], false);
  EXPECT_EQ(config["process"]["cwd"], "/srv");
  EXPECT_EQ(config["process"]["terminal"], false);
  EXPECT_EQ(config["linux"]["namespaces"].size(), 5U);
  EXPECT_EQ(Build(Inputs(R"({"Cmd": ["/a"], "WorkingDir": "rel"})"))["process"]["cwd"], "/");
  EXPECT_EQ(*BuildOciConfig(in), *BuildOciConfig(in));
}

TEST(OciConfigTest, HostileImageConfigurations) {
  for (const char* bad : {"", "[]", "null", "{", "\"x\""}) {
    OciInputs in = Inputs();
    in.image_config = bad;
    EXPECT_FALSE(BuildOciConfig(in).ok()) << bad;
  }
  // Wrong types count as absent.
  EXPECT_FALSE(BuildOciConfig(Inputs(R"({"Cmd": "x", "Entrypoint": 5, "User": []})")).ok());
  EXPECT_OK(BuildOciConfig(Inputs(R"({"Cmd": ["/a", 5], "Env": {}, "WorkingDir": 1})")));
}

}  // namespace
}  // namespace torpor::agent
