// Several containers over a scripted runsc.

#include "runtime/gvisor/app_containers.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "runtime/gvisor/testing/faults_fixture.h"

namespace torpor::gvisor {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class AppContainersTest : public FaultsTest {
 protected:
  AppContainersTest() {
    for (const char* name : {"side", "third"}) {
      args_.spec.add_containers()->set_name(name);
      std::filesystem::copy(directory_ + "/bundles/app", directory_ + "/bundles/" + name);
    }
  }
  // Appears at once, so that nobody reads half of it.
  void End(const std::string& id, const std::string& answer) {
    std::ofstream(directory_ + "/bin/ended") << answer;
    std::filesystem::rename(directory_ + "/bin/ended", directory_ + "/bin/ended." + id);
  }
  std::string List(const std::string& name) { return ReadAll(directory_ + "/bin/" + name); }
  bool Paused() const { return std::filesystem::exists(directory_ + "/bin/paused"); }
  void WantRestore() {
    args_.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
    args_.restore_dir = directory_ + "/image";
    std::ofstream(directory_ + "/image/checkpoint.img") << "gVisorSFx";
  }
};

TEST_F(AppContainersTest, TheRootIsStartedFirst) {
  ASSERT_OK(Start());
  EXPECT_TRUE(guest_ran_);
  EXPECT_EQ(List("started.list"), "run a\nrun _app.a\nrun _side.a\nrun _third.a\n");
  auto annotations = [&](const std::string& bundle) {
    return nlohmann::json::parse(ReadAll(args_.state_dir + "/" + bundle + "/config.json"))
        .at("annotations")
        .dump();
  };
  EXPECT_EQ(annotations("bundle"),
            R"({"io.kubernetes.cri.container-name":"pause",)"
            R"("io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"a"})");
  EXPECT_EQ(
      annotations("bundle-side"),
      R"({"io.kubernetes.cri.container-name":"side",)"
      R"("io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-id":"a"})");
  EXPECT_EQ(access((args_.state_dir + "/bundle/rootfs/pause").c_str(), X_OK), 0);
}

TEST_F(AppContainersTest, ARestoreIsTheSameWay) {
  WantRestore();
  ASSERT_OK(Start());
  EXPECT_EQ(List("started.list"), "restore a\nrestore _app.a\nrestore _side.a\nrestore _third.a\n");
}

TEST_F(AppContainersTest, OneIsItsOwnRoot) {
  args_.spec.mutable_containers()->DeleteSubrange(1, 2);
  ASSERT_OK(Start());
  EXPECT_EQ(List("started.list"), "run a\n");
  EXPECT_FALSE(std::filesystem::exists(args_.state_dir + "/bundle/rootfs"));
  EXPECT_EQ(ReadAll(args_.state_dir + "/bundle/config.json").find("annotations"),
            std::string::npos);
}

TEST_F(AppContainersTest, TheFirstThatEndsEndsTheGuest) {
  ASSERT_OK(Start());
  End("_side.a", R"({"id":"_side.a","exitStatus":7})");
  ASSERT_TRUE(Reported(std::chrono::seconds(20)));
  runtime::SandboxExit exit = exit_future_.get();
  EXPECT_EQ(exit.container, "side");
  EXPECT_EQ(exit.exit_code, 7);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_THAT(Capture(), HasReason(Code::kInternal, "WORKLOAD_EXITED"));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
}

TEST_F(AppContainersTest, TheEndOfTheSentryNamesNone) {
  ASSERT_OK(Start());
  EXPECT_EQ(kill(sandbox_->main_pid(), SIGKILL), 0);
  ASSERT_TRUE(Reported(std::chrono::seconds(20)));
  runtime::SandboxExit exit = exit_future_.get();
  EXPECT_EQ(exit.container, "");
  EXPECT_EQ(exit.signal, SIGKILL);
}

TEST_F(AppContainersTest, WhatCannotBeWatchedIsEnded) {
  Mode("wait-_side.a", "fail");
  ASSERT_OK(Start());
  ASSERT_TRUE(Reported(std::chrono::seconds(20)));
  EXPECT_EQ(exit_future_.get().signal, SIGKILL);
}

TEST_F(AppContainersTest, AnEndAfterAFailedCaptureIsNews) {
  ASSERT_OK(Start());
  Mode("checkpoint", "partial");
  ASSERT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_TRUE(failure_.guest_alive);
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0)));
  EXPECT_FALSE(Paused());
  End("_app.a", R"({"exitStatus":0})");
  ASSERT_TRUE(Reported(std::chrono::seconds(20)));
  EXPECT_EQ(exit_future_.get().container, "app");
}

// The worker may not have heard of the end yet.
TEST_F(AppContainersTest, AnImageWithoutOneOfThemIsNeverMade) {
  Mode("wait", "hang");
  ASSERT_OK(Start());
  End("_side.a", "");
  Status status = Capture();
  EXPECT_THAT(status, HasReason(Code::kInternal, "WORKLOAD_EXITED"));
  EXPECT_THAT(status, MessageHas("container side"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/bin/checkpoint.arguments"));
  EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  EXPECT_TRUE(failure_.guest_alive) << "the others are";
  EXPECT_FALSE(Paused());
}

TEST_F(AppContainersTest, WhatDoesNotStandStillIsNotCaptured) {
  ASSERT_OK(Start());
  Mode("pause", "never");
  EXPECT_THAT(Capture(), MessageHas("not paused"));
  EXPECT_TRUE(failure_.guest_alive);
  Mode("pause", "");
  Mode("list", "fail");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_TRUE(failure_.guest_alive);
  EXPECT_FALSE(Paused());
  Mode("list", "");
  EXPECT_OK(Capture());
}

TEST_F(AppContainersTest, WhatDoesNotGoOnIsEnded) {
  ASSERT_OK(Start());
  Mode("checkpoint", "partial");
  Mode("resume", "fail");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_NE(kill(sandbox_->main_pid(), 0), 0);
}

TEST_F(AppContainersTest, ACaptureIsNoNews) {
  ASSERT_OK(Start());
  ASSERT_OK(Capture());
  ASSERT_OK(sandbox_->Stop(Duration::zero()));
  sandbox_.reset();
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0)));
}

TEST_F(AppContainersTest, StopAsksEachContainerFirst) {
  ASSERT_OK(Start());
  ASSERT_OK(sandbox_->Stop(std::chrono::seconds(20)));
  EXPECT_EQ(List("killed.list"), "_app.a TERM\n_side.a TERM\n_third.a TERM\n");
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0)));
}

TEST_F(AppContainersTest, StopEndsWhatDoesNotListen) {
  ASSERT_OK(Start());
  Mode("kill", "fail");
  ASSERT_OK(sandbox_->Stop(std::chrono::milliseconds(100)));
  EXPECT_EQ(List("killed.list"), "");
}

TEST_F(AppContainersTest, B6_ContainersThatRunscHasForgottenEndAllTheSame) {
  ASSERT_OK(Start());
  const pid_t pid = sandbox_->main_pid();
  for (const char* verb : {"list", "ps", "kill", "delete"}) Mode(verb, "fail");
  std::filesystem::remove_all(args_.state_dir + "/runsc");
  EXPECT_OK(sandbox_->Stop(std::chrono::milliseconds(100)));
  EXPECT_NE(kill(pid, 0), 0);
  EXPECT_TRUE(std::filesystem::is_empty(args_.state_dir));
  EXPECT_OK(sandbox_->Stop(Duration::zero())) << "again";
}

TEST_F(AppContainersTest, AFailedStartHasRunTheGuestOnlyIfAContainerRan) {
  Mode("run-_app.a", "fail");
  Status status = Start();
  EXPECT_THAT(status, HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_THAT(status, MessageHas("as asked"));
  EXPECT_FALSE(guest_ran_) << "only the root container ran";
  Mode("run-_app.a", "");
  Mode("run-_third.a", "fail");
  EXPECT_THAT(Start(), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_TRUE(guest_ran_);
}

TEST_F(AppContainersTest, AFailedRestoreHasNotRunTheGuest) {
  WantRestore();
  Mode("restore-_third.a", "fail");
  EXPECT_THAT(Start(), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_FALSE(guest_ran_);
}

TEST_F(AppContainersTest, LimitsOfOneContainerAreRefused) {
  args_.spec.mutable_containers(1)->set_memory_bytes(1 << 20);
  Status status = Start();
  EXPECT_THAT(status, HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(status, MessageHas("container side"));
  EXPECT_FALSE(guest_ran_);
  args_.spec.clear_containers();
  EXPECT_THAT(Start(), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
}

TEST(ParseList, States) {
  ASSERT_OK_AND_ASSIGN(auto states, ParseList(R"([{"id":"_a.r","status":"stopped","pid":-1},
      {"id":"r","status":"paused"}, {"id":"x"}, {"status":"running"}, {"id":1,"status":2}, 3])"));
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"_a.r", "stopped"}, {"r", "paused"}}));
  for (const char* bad : {"", "{}", "null", "["}) {
    EXPECT_THAT(ParseList(bad), HasReason(Code::kInternal, "RUNTIME_FAILED")) << bad;
  }
}

TEST(ParseWait, ExitCode) {
  ASSERT_OK_AND_ASSIGN(int code, ParseWait("{\"id\":\"x\",\"exitStatus\":137}\n"));
  EXPECT_EQ(code, 137);
  for (const char* bad : {"", "{}", "[]", "7", R"({"exitStatus":"7"})", R"({"exitStatus":1.5})"}) {
    EXPECT_THAT(ParseWait(bad), HasReason(Code::kInternal, "RUNTIME_FAILED")) << bad;
  }
}

}  // namespace
}  // namespace torpor::gvisor
