#pragma once
// What a verb works with: settings, the connection, the printers.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ateapi/ateapi.grpc.pb.h"
#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::cli {

// Set by flags and environment before a verb runs; constant afterwards.
struct Settings {
  std::string endpoint;    // empty = found from `dir`
  std::string token_file;  // empty = <dir>/token
  std::string dir;         // data directory of the local torpor up
  std::string atespace = "default";
  bool all_atespaces = false;
  std::string output = "table";  // table | wide | json | yaml | name
  std::string timeout;           // duration; empty = the verb's default
  bool quiet = false;
  bool no_color = false;
  bool show_secrets = false;
};

// Belongs to one thread.
class Session {
 public:
  explicit Session(Settings settings) : settings_(std::move(settings)) {}

  const Settings& settings() const { return settings_; }
  // The actor named on the command line: NAME or ATESPACE/NAME.
  ateapi::ObjectRef Ref(const std::string& name) const;

  ateapi::Control::Stub& control();
  torpor::v1::Ops::Stub& ops();
  // Where the calls go, for error messages and `status`.
  std::string endpoint() const;

  // Calls one unary method and waits for it. Ctrl-C and the timeout end the waiting, not the
  // operation.
  template <typename Request, typename Response>
  Status Call(void (ateapi::Control::StubInterface::async_interface::*method)(
                  grpc::ClientContext*, const Request*, Response*,
                  std::function<void(grpc::Status)>),
              const Request& request, Response* response) {
    return Wait([&](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
      (control().async()->*method)(context, &request, response, std::move(done));
    });
  }
  template <typename Request, typename Response>
  Status Call(void (torpor::v1::Ops::StubInterface::async_interface::*method)(
                  grpc::ClientContext*, const Request*, Response*,
                  std::function<void(grpc::Status)>),
              const Request& request, Response* response) {
    return Wait([&](grpc::ClientContext* context, std::function<void(grpc::Status)> done) {
      (ops().async()->*method)(context, &request, response, std::move(done));
    });
  }
  // The calls from here on wait for an operation of `actor` (ATESPACE/NAME), which goes on when the
  // waiting ends. `progress` is shown while a call lasts longer than a second, on a terminal only:
  // called again and again, it returns what to show ("RESTORE on gvisor-0").
  void BeginOperation(std::string actor, std::function<std::string()> progress) {
    actor_ = std::move(actor);
    progress_ = std::move(progress);
  }
  void EndOperation() { BeginOperation("", nullptr); }

  // A context with deadline and credentials, for streams.
  std::unique_ptr<grpc::ClientContext> NewContext(Duration timeout);
  StatusOr<Duration> Timeout(Duration fallback) const;

 private:
  using Starter = std::function<void(grpc::ClientContext*, std::function<void(grpc::Status)>)>;
  Status Wait(const Starter& start);
  // CANCELLED or DEADLINE_EXCEEDED: nobody waits any more.
  Status StoppedWaiting(Code code, Duration waited) const;
  void Connect();

  const Settings settings_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ateapi::Control::Stub> control_;
  std::unique_ptr<torpor::v1::Ops::Stub> ops_;
  std::string actor_;
  std::function<std::string()> progress_;
};

// Prints `error: WHAT (REASON): what to do next` and returns the exit code of the status.
int Report(const Status& status);
int ExitCodeOf(const Status& status);
// Of the command line itself: exit code 2.
inline constexpr char kWrongUsage[] = "WRONG_USAGE";
// The same as one JSON object, {"error": {"code", "reason", "message", "advice", "metadata",
// "exitCode"}}; Report prints it after ReportAsJson, which `-o json` sets before any verb runs.
std::string ErrorJson(const Status& status);
void ReportAsJson();

// Whether Ctrl-C was pressed since the first call or sleep.
bool Interrupted();
// Sleeps; false when Ctrl-C was pressed, before or meanwhile.
bool SleepUnlessInterrupted(Duration d);

}  // namespace torpor::cli
