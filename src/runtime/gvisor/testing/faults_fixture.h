#pragma once
// The runtime over a scripted runsc, for tests of failures.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "runtime/gvisor/gvisor_runtime.h"
#include "runtime/gvisor/leftovers.h"

namespace torpor::gvisor {

// Each verb does what the file <verb>-<container id>.mode or else <verb>.mode beside the script
// says; the sentry is a shell that blocks. Of several containers only the root one has a sentry;
// another one ends when the file ended.<id> appears beside the script, which is what `wait` then
// prints.
inline constexpr char kScript[] = R"sh(#!/bin/sh
here=$(dirname "$0")
for a; do
  case $a in
    --root=*) root=$a ;;
    --log=*) log=${a#--log=} ;;
    -bundle=*) bundle=${a#-bundle=} ;;
    -pid-file=*) pid_file=${a#-pid-file=} ;;
    -image-path=*) image=${a#-image-path=} ;;
    run|restore|checkpoint|ps|wait|list|pause|resume) verb=$a ;;
    kill) verb=$a; id=$(echo "$*" | sed 's/.* kill //; s/ .*//') ;;
    *) [ "$verb" = kill ] || id=$a ;;
  esac
done
start() {
  echo "$verb $id" >> "$here/started.list"
  case $bundle in */bundle-*) return ;; esac
  rm -f "$here/started"
  PATH=$here:$PATH runsc-sandbox -c ': > "$0/started"; read x < "$0/fifo"; exit 5' "$here" $root &
  echo $! > "${pid_file:-/dev/null}"
  while [ ! -e "$here/started" ]; do sleep 0.01; done
}
[ "$verb" = checkpoint ] && echo "$*" > "$here/checkpoint.arguments"
end_sentry() { pid=$(cat "$here/../state/pid"); kill -9 $pid
  while kill -0 $pid 2>/dev/null; do sleep 0.01; done; }
say() { echo '{"msg":"'"$1"'","level":"error"}' > "$log"; }
mode=$(cat "$here/$verb-$id.mode" 2>/dev/null || cat "$here/$verb.mode" 2>/dev/null)
case $verb:$mode in
  run:|restore:) start; exit 0 ;;
  run:leave) start; say "half way"; exit 128 ;;
  run:nopid) pid_file=; start; exit 0 ;;
  *:hang) exec sleep 100 ;;
  *:fail) say "as asked"; exit 128 ;;
  checkpoint:) printf 'gVisorSFx' > "$image/checkpoint.img"; kill -9 $(cat "$here/../state/pid") ;;
  checkpoint:stay) printf 'gVisorSFx' > "$image/checkpoint.img" ;;
  checkpoint:empty) end_sentry ;;
  checkpoint:partial) echo junk > "$image/pages.img"; say "as asked"; exit 128 ;;
  checkpoint:die) end_sentry; say "as asked"; exit 128 ;;
  ps:) exit 0 ;;
  pause:) : > "$here/paused" ;;
  pause:never) say "not paused"; exit 128 ;;
  resume:) rm "$here/paused" ;;
  list:) [ -e "$here/paused" ] || exit 1
    sep='['; for c in app side third; do
      s=running; [ -e "$here/ended._$c.a" ] && s=stopped
      printf '%s{"id":"_%s.a","status":"%s"}' "$sep" $c $s; sep=','; done; echo ']' ;;
  wait:) while [ ! -e "$here/ended.$id" ]; do
      kill -0 $(cat "$here/../state/pid") || exit 128; sleep 0.01; done
    cat "$here/ended.$id" ;;
  kill:) echo "$id $a" >> "$here/killed.list"; echo '{"exitStatus":143}' > "$here/ended.tmp"
    mv "$here/ended.tmp" "$here/ended.$id" ;;
esac
)sh";

// Ignores the surroundings and executes what follows "--".
inline constexpr char kHelper[] =
    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";

inline MonotonicTime In(std::chrono::milliseconds ms) {
  return std::chrono::steady_clock::now() + ms;
}

class FaultsTest : public testing::Test {
 protected:
  FaultsTest() : directory_("/tmp/torpor-faults-" + RandomHex(6)) {
    for (const char* part : {"bin", "state", "image", "bundles/app"}) {
      std::filesystem::create_directories(directory_ + "/" + part);
    }
    Program("runsc", kScript);
    Program("helper", kHelper);
    std::filesystem::create_symlink("/bin/sh", directory_ + "/bin/runsc-sandbox");
    EXPECT_EQ(mkfifo((directory_ + "/bin/fifo").c_str(), 0600), 0);
    std::ofstream(directory_ + "/bundles/app/config.json") << R"({"root": {"path": "rootfs"}})";
    args_.sandbox_id = "a";
    args_.spec.add_containers()->set_name("app");
    args_.bundles_dir = directory_ + "/bundles";
    args_.state_dir = directory_ + "/state";
    args_.deadline = In(std::chrono::seconds(30));
    capture_.capture_dir = directory_ + "/image";
    capture_.deadline = args_.deadline;
    auto reaper = os::Reaper::Start();
    EXPECT_OK(reaper);
    reaper_ = std::move(*reaper);
    GvisorRuntime::Settings settings;
    settings.target.binary = directory_ + "/bin/runsc";
    settings.target.platform = "systrap";
    settings.target.features.checkpoint_flags = {"direct"};
    settings.target.captures = metrics_.Counter("captures", "", {"isolated"});
    settings.helper = directory_ + "/bin/helper";
    runtime_ = std::make_unique<GvisorRuntime>(settings, reaper_.get());
  }
  ~FaultsTest() override {
    if (sandbox_ != nullptr) {
      EXPECT_OK(sandbox_->Stop(Duration::zero()));
    }
    EXPECT_THAT(FindByRoot(directory_ + "/state/runsc"), testing::IsEmpty());
    EXPECT_TRUE(std::filesystem::is_empty(args_.state_dir));
    sandbox_.reset();
    runtime_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Program(const std::string& name, const std::string& text) {
    std::string path = directory_ + "/bin/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0755);
  }
  void Mode(const std::string& verb, const std::string& mode) {
    std::ofstream(directory_ + "/bin/" + verb + ".mode") << mode;
  }
  Status Start() {
    auto sandbox = runtime_->Start(
        args_, [this](runtime::SandboxExit exit) { exit_.set_value(exit); }, &guest_ran_);
    if (!sandbox.ok()) return sandbox.status();
    sandbox_ = std::move(*sandbox);
    return OkStatus();
  }
  Status Capture() { return sandbox_->Capture(capture_, &failure_).status(); }
  bool Reported(std::chrono::milliseconds within) {
    return exit_future_.wait_for(within) == std::future_status::ready;
  }

  const std::string directory_;
  runtime::StartArgs args_;
  runtime::CaptureArgs capture_;
  MetricRegistry metrics_;
  std::unique_ptr<os::Reaper> reaper_;
  std::unique_ptr<GvisorRuntime> runtime_;
  std::unique_ptr<runtime::Sandbox> sandbox_;
  std::promise<runtime::SandboxExit> exit_;
  std::future<runtime::SandboxExit> exit_future_ = exit_.get_future();
  runtime::CaptureFailure failure_;
  bool guest_ran_ = false;
};

}  // namespace torpor::gvisor
