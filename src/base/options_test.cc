#include "base/options.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

struct Settings {
  std::string dir = "/var/lib/torpor";
  std::string platform = "auto";
  std::vector<std::string> domains{"actors.localhost"};
  bool direct = true;
  int64_t actors = 64;
  int64_t memory = 1 << 30;
  Duration ttl = std::chrono::seconds(20);
};

Options Declare(Settings* s) {
  Options options("worker");
  options.String("dir", &s->dir, "data directory");
  options.Choice("platform", &s->platform, {"auto", "systrap"}, "platform");
  options.Strings("actor-domain", &s->domains, "suffixes");
  options.Bool("direct", &s->direct, "O_DIRECT");
  options.Int("actors", &s->actors, 1, 1000, "slots");
  options.Bytes("memory", &s->memory, 1 << 20, "memory");
  options.DurationFlag("ttl", &s->ttl, std::chrono::seconds(1), std::chrono::hours(1), "lease");
  return options;
}

const std::vector<std::string> kNoEnv;

std::string WriteFile(const std::string& text) {
  std::string path = testing::TempDir() + "/options-" + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(Options, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  std::string file = WriteFile("dir: /file\nactors: 3\nworker:\n  ttl: 2m\n");
  Settings s;
  Options options = Declare(&s);
  std::vector<std::string> env{"TORPOR_ACTORS=4", "TORPOR_DIR=/env", "TORPOR_ACTOR_DOMAIN=a,b"};
  ASSERT_OK(
      options.Parse({"--config", file, "--actors=5", "--no-direct", "--memory", "2Gi"}, &env));
  EXPECT_EQ(s.dir, "/env");
  EXPECT_EQ(s.actors, 5);
  EXPECT_EQ(s.memory, int64_t{2} << 30);
  EXPECT_FALSE(s.direct);
  EXPECT_EQ(s.ttl, std::chrono::minutes(2));
  EXPECT_EQ(s.domains, (std::vector<std::string>{"a", "b"}));
}

TEST(Options, ErrorsNameFileLineAndAllowedValues) {
  struct Case {
    const char* text;
    const char* wants;
  };
  const Case cases[] = {
      {"dir: /x\nplatfrom: systrap\n", ":2: unknown key 'platfrom'; allowed: dir, platform"},
      {"platform: kvm\n", ":1: platform is 'kvm', but must be auto|systrap"},
      {"\n\nactors: many\n", ":3: actors is 'many', but must be an integer from 1 to 1000"},
      {"ttl: 5x\n", "must be a duration like 30s"},
      {"dir: [a\n", ":2:"},
      {"- a\n", "must be a map"},
      {"actors: 1\nactors: 2\n", "given twice"},
      {"actors: {a: 1}\n", "actors is ''"},
  };
  for (const Case& c : cases) {
    Settings s;
    Options options = Declare(&s);
    Status status = options.Parse({"--config", WriteFile(c.text)}, &kNoEnv);
    EXPECT_THAT(status, HasCode(Code::kInvalidArgument)) << c.text;
    EXPECT_THAT(status, MessageHas(c.wants)) << c.text;
  }
}

TEST(Options, BadFlagsAreErrors) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--nope=1"}, "unknown flag --nope"}, {{"--actors=0"}, "from 1 to 1000"},
      {{"--actors"}, "needs a value"},       {{"--direct=maybe"}, "true|false"},
      {{"stray"}, "unexpected argument"},    {{"--config=/does/not/exist"}, "No such file"},
  };
  for (const auto& [args, wants] : cases) {
    Settings s;
    Options options = Declare(&s);
    EXPECT_THAT(options.Parse(args, &kNoEnv), MessageHas(wants));
  }
}

TEST(Options, ZeroBytesWhereTheyAreAllowed) {
  int64_t none = 1;
  int64_t some = 1;
  Options options("router");
  options.Bytes("park", &none, 0, "memory of parked requests");
  options.Bytes("memory", &some, 1, "memory");
  EXPECT_OK(options.Parse({"--park=0"}, &kNoEnv));
  EXPECT_EQ(none, 0);
  EXPECT_THAT(options.Parse({"--memory=0"}, &kNoEnv), MessageHas("at least 1"));
  EXPECT_THAT(options.Parse({"--park=-1"}, &kNoEnv), MessageHas("at least 0"));
}

TEST(Options, OneFileServesAllRoles) {
  std::string file = WriteFile("dir: /shared\nrouter:\n  listen: x\nworker:\n  actors: 9\n");
  Settings whole;
  Options first = Declare(&whole);
  ASSERT_OK(first.Parse({"--config", file}, &kNoEnv));
  EXPECT_EQ(whole.dir, "/shared");
  EXPECT_EQ(whole.actors, 9);
  Settings section;
  Options second = Declare(&section);
  ASSERT_OK(second.Parse({"--config-section", file}, &kNoEnv));
  EXPECT_EQ(section.dir, Settings().dir);
  EXPECT_EQ(section.actors, 9);
}

TEST(Options, AnErrorInASectionNamesItsLine) {
  Settings s;
  Options options = Declare(&s);
  Status status = options.Parse({"--config", WriteFile("worker:\n  actors: 0\n")}, &kNoEnv);
  EXPECT_THAT(status, MessageHas(":2: actors is '0'"));
}

TEST(Options, AnEmptyListIsAValue) {
  Settings s;
  Options options = Declare(&s);
  ASSERT_OK(options.Parse({"--config", WriteFile("actor-domain: []\n")}, &kNoEnv));
  EXPECT_TRUE(s.domains.empty());
  for (const char* text : {"actor-domain: {}\n", "dir: []\n", "actor-domain:\n"}) {
    Options again = Declare(&s);
    EXPECT_THAT(again.Parse({"--config", WriteFile(text)}, &kNoEnv),
                HasCode(Code::kInvalidArgument))
        << text;
  }
}

TEST(Options, PrintReadsBack) {
  Settings a;
  Options first = Declare(&a);
  ASSERT_OK(first.Parse({"--dir=/with \"quotes\"", "--ttl=90s", "--actor-domain=x"}, &kNoEnv));
  Settings b;
  Options second = Declare(&b);
  ASSERT_OK(second.Parse({"--config", WriteFile(first.Print())}, &kNoEnv));
  EXPECT_EQ(b.dir, a.dir);
  EXPECT_EQ(b.ttl, a.ttl);
  EXPECT_EQ(b.domains, a.domains);
}

TEST(OptionsTest, OnlyRolesReadTheFileOfTheEnvironment) {
  std::vector<std::string> environment{"TORPOR_CONFIG=/nonexistent/torpor.yaml"};
  std::string dir;
  Options role("up");
  role.String("dir", &dir, "");
  EXPECT_THAT(role.Parse({}, &environment), HasCode(Code::kInvalidArgument));
  Options verb("down");
  verb.String("dir", &dir, "");
  EXPECT_OK(verb.Parse({"--dir", "/d"}, &environment));
  EXPECT_EQ(dir, "/d");
}

}  // namespace
}  // namespace torpor
