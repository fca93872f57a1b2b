#pragma once
// A runtime without sandboxes, for tests of what stands above it: a guest is an object in this
// process whose memory is a counter and some named texts. Captures write one file, restores read
// it.
//
// A guest answers the request lines of the contract suite through Ask(), and, when the workload has
// an http_port and `serve_http` is set, HTTP/1.1 with keep-alive: GET /readyz is 200, any other
// request adds one to the counter and answers it as text. It listens on all addresses of the
// network namespace it was started in, so a worker's door reaches it like a real one; without a
// namespace it listens on 127.0.0.1 and a port of its own (HttpPort).
//
// Failures are injected per step. Thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/sync.h"
#include "runtime/runtime.h"

namespace torpor::runtime {

class FakeGuest;

class FakeRuntime : public Runtime {
 public:
  struct Options {
    bool serve_http = false;
    std::string version = "1";
  };
  FakeRuntime() : FakeRuntime(Options{}) {}
  explicit FakeRuntime(Options options);
  ~FakeRuntime() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::unique_ptr<Sandbox>> Start(const StartArgs& args,
                                           std::function<void(SandboxExit)> on_exit,
                                           bool* guest_ran) override;
  Status CleanUp(const std::string& sandbox_id, const std::string& state_dir) override;

  // The next call of the step fails. A start that fails this way has not run the guest.
  void FailNextStart(Status status) EXCLUDES(mu_);
  void FailNextCapture(Status status, bool guest_alive) EXCLUDES(mu_);
  void FailNextStop(Status status) EXCLUDES(mu_);
  // Runs at the beginning of each start or capture, without locks; to block or to observe.
  void SetHook(std::function<void(const std::string& step, const std::string& sandbox_id)> hook)
      EXCLUDES(mu_);

  // NOT_FOUND when no such guest runs.
  StatusOr<std::string> Ask(const std::string& sandbox_id, const std::string& line) EXCLUDES(mu_);
  // Ends the guest by itself.
  Status Crash(const std::string& sandbox_id, SandboxExit exit) EXCLUDES(mu_);
  StatusOr<int> HttpPort(const std::string& sandbox_id) EXCLUDES(mu_);
  size_t running() const EXCLUDES(mu_);

 private:
  friend class FakeSandbox;
  StatusOr<std::shared_ptr<FakeGuest>> Find(const std::string& sandbox_id) EXCLUDES(mu_);
  void Forget(const std::string& sandbox_id) EXCLUDES(mu_);
  void RunHook(const std::string& step, const std::string& sandbox_id) EXCLUDES(mu_);
  StatusOr<std::unique_ptr<Sandbox>> StartGuest(const StartArgs& args,
                                                std::function<void(SandboxExit)> on_exit);

  const Options options_;
  Capabilities capabilities_;
  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<FakeGuest>> guests_ GUARDED_BY(mu_);
  Status next_start_ GUARDED_BY(mu_);
  Status next_capture_ GUARDED_BY(mu_);
  bool next_capture_alive_ GUARDED_BY(mu_) = false;
  Status next_stop_ GUARDED_BY(mu_);
  std::function<void(const std::string&, const std::string&)> hook_ GUARDED_BY(mu_);
};

}  // namespace torpor::runtime
