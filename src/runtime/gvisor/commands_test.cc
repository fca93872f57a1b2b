#include "runtime/gvisor/commands.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

namespace torpor::gvisor {
namespace {

RunscTarget Target(std::set<std::string> flags) {
  RunscTarget target;
  target.binary = "/usr/bin/runsc";
  target.platform = "systrap";
  target.features.flags = std::move(flags);
  return target;
}

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string Global(const std::string& verb) {
  return "/usr/bin/runsc --root=/s/runsc --log=/s/log/" + verb +
         " --log-format=json --platform=systrap --network=sandbox --net-disconnect-ok "
         "--overlay2=root:dir=/s/fs --ignore-cgroups";
}

TEST(Commands, Lines) {
  const RunscTarget t = Target({});
  const StatePaths p("/s");
  EXPECT_EQ(Joined(BootCommand(t, p, "c")),
            Global("run") + " run -bundle=/s/bundle -detach -pid-file=/s/pid c");
  EXPECT_EQ(
      Joined(RestoreCommand(t, p, "c", "/img", false)),
      Global("restore") + " restore -bundle=/s/bundle -image-path=/img -detach -pid-file=/s/pid c");
  EXPECT_EQ(Joined(RestoreCommand(t, p, "c", "/img", true)),
            Global("restore") +
                " restore -bundle=/s/bundle -image-path=/img -detach -pid-file=/s/pid -direct c");
  EXPECT_EQ(Joined(CheckpointCommand(t, p, "c", "/img", false)),
            Global("checkpoint") + " checkpoint -image-path=/img -compression=none c");
  EXPECT_EQ(Joined(CheckpointCommand(t, p, "c", "/img", true)),
            Global("checkpoint") + " checkpoint -image-path=/img -compression=none -direct c");
  EXPECT_EQ(Joined(PsCommand(t, p, "c")), Global("ps") + " ps -format=json c");
}

TEST(Commands, OfOneContainerOfSeveral) {
  const RunscTarget t = Target({});
  const StatePaths p = StatePaths("/s").OfApp("web");
  EXPECT_EQ(AppId("c", "web"), "_web.c");
  EXPECT_EQ(Joined(BootCommand(t, p, "_web.c")),
            Global("run-web") + " run -bundle=/s/bundle-web -detach -pid-file=/s/pid-web _web.c");
  EXPECT_EQ(Joined(RestoreCommand(t, p, "_web.c", "/img", false)),
            Global("restore-web") +
                " restore -bundle=/s/bundle-web -image-path=/img -detach "
                "-pid-file=/s/pid-web _web.c");
  EXPECT_EQ(Joined(WaitCommand(t, p, "_web.c")), Global("wait-web") + " wait _web.c");
  EXPECT_EQ(Joined(PauseCommand(t, StatePaths("/s"), "c")), Global("pause") + " pause c");
  EXPECT_EQ(Joined(ResumeCommand(t, StatePaths("/s"), "c")), Global("resume") + " resume c");
  EXPECT_EQ(Joined(ListCommand(t, StatePaths("/s"))), Global("list") + " list -format=json");
  EXPECT_EQ(Joined(KillCommand(t, p, "_web.c", "TERM")), Global("kill-web") + " kill _web.c TERM");
}

TEST(Commands, OptionalFlagOnlyWhereItExists) {
  EXPECT_EQ(Joined(GlobalArguments(Target({"cpu-num-from-quota"}), StatePaths("/s"), "run")),
            Global("run") + " --cpu-num-from-quota");
}

TEST(Commands, Enclosed) {
  Surroundings s;
  s.helper = "/bin/torpor-enter";
  EXPECT_EQ(Joined(Enclosed(s, {"/runsc", "x"})), "/bin/torpor-enter -- /runsc x");
  s.netns_path = "/run/netns/a";
  s.cgroup_procs_files = {"/cg/a", "/cg/b"};
  s.hide_net_core = true;
  s.log = "/s/log/enter";
  EXPECT_EQ(Joined(Enclosed(s, {"/runsc", "x"})),
            "/bin/torpor-enter --log /s/log/enter --procs /cg/a --procs /cg/b --netns /run/netns/a "
            "--hide-net-core -- /runsc x");
}

TEST(Commands, ContainerIdIsShortAndSafe) {
  EXPECT_EQ(ContainerId("00000000-0000-4000-8000-0123456789ab"), "0123456789ab");
  EXPECT_EQ(ContainerId("a"), "a");
  EXPECT_EQ(ContainerId("../../x y"), "xy");
  EXPECT_EQ(ContainerId(""), "sandbox");
  // The default node directory leaves room for the control socket's path.
  std::string root =
      StatePaths("/var/lib/torpor/node/actors/00000000-0000-4000-8000-0123456789ab/state").root;
  EXPECT_LE((root + "/runsc-0123456789ab.sock").size(), 107u);
}

}  // namespace
}  // namespace torpor::gvisor
