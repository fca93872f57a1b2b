#pragma once
// A runtime and a network for tests of the worker: guests are threads of this process that answer
// HTTP on loopback, and what they and the runtime do is scripted per actor.
//
// Thread-safe.

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/sync.h"
#include "runtime/runtime.h"
#include "worker/network/actor_network.h"

namespace torpor::worker {

struct Script {
  Status start_error;
  bool guest_ran = false;  // with start_error
  int status = 200;        // what the guest answers
  bool listens = true;
  bool exits_at_start = false;  // with code 3, after a line on standard error
  Status capture_error;
  bool alive_after_capture_error = false;
};

class ScriptedGuest;

class ScriptedRuntime : public runtime::Runtime, public NetworkProvider {
 public:
  ScriptedRuntime();
  ~ScriptedRuntime() override;

  Script& script() { return script_; }  // of the guests started next; set between calls only

  const runtime::Capabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::unique_ptr<runtime::Sandbox>> Start(
      const runtime::StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit,
      bool* guest_ran) override;
  std::string PreparationKey(const runtime::StartArgs& args) const override EXCLUDES(mu_);
  StatusOr<std::unique_ptr<runtime::PreparedSandbox>> Prepare(
      const runtime::StartArgs& args) override EXCLUDES(mu_);
  Status CleanUp(const std::string& sandbox_id, const std::string&) override EXCLUDES(mu_);

  StatusOr<std::shared_ptr<ActorNetwork>> Create(const std::string& actor_uid) override;

  // How sandboxes are made in advance; at any time.
  struct Preparation {
    std::string key;  // of every restore of MEMORY; empty = it cannot
    Status prepare_error;
    Status restore_error;
    bool guest_ran = false;         // with restore_error
    std::function<void()> on_make;  // runs inside each Prepare, without locks
  };
  void SetPreparation(Preparation preparation) EXCLUDES(mu_);
  // Those that wait have died.
  void KillPrepared() EXCLUDES(mu_);
  int made() const EXCLUDES(mu_);       // sandboxes in advance, ever
  int discarded() const EXCLUDES(mu_);  // of those
  int starts() const EXCLUDES(mu_);     // the other way
  std::set<std::string> cleaned_up() const EXCLUDES(mu_);

  // The guest ends by itself.
  void EndGuest(const std::string& uid, int exit_code, const std::string& container = "");
  runtime::StartArgs last_start() const EXCLUDES(mu_);
  int networks() const EXCLUDES(mu_);                        // that exist
  int prepared() const EXCLUDES(mu_);                        // how often addresses were set
  int requests(const std::string& uid) const EXCLUDES(mu_);  // the guest has answered

 private:
  friend class ScriptedNetwork;
  friend class ScriptedSandbox;
  friend class ScriptedPrepared;
  std::shared_ptr<ScriptedGuest> GuestOf(const std::string& uid) const EXCLUDES(mu_);

  runtime::Capabilities capabilities_;
  Script script_;
  mutable Mutex mu_;
  runtime::StartArgs last_start_ GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<ScriptedGuest>> guests_ GUARDED_BY(mu_);
  Preparation preparation_ GUARDED_BY(mu_);
  int deaths_ GUARDED_BY(mu_) = 0;
  int made_ GUARDED_BY(mu_) = 0;
  int discarded_ GUARDED_BY(mu_) = 0;
  int starts_ GUARDED_BY(mu_) = 0;
  std::set<std::string> cleaned_up_ GUARDED_BY(mu_);
  int networks_ GUARDED_BY(mu_) = 0;
  int prepared_ GUARDED_BY(mu_) = 0;
};

}  // namespace torpor::worker
