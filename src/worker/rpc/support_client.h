#pragma once
// The worker's calls to its node agent (torpor.v1.WorkerSupport): registration and exits.
//
// One thread sends in order: first the registration, until it is answered, then exit reports. Each
// is repeated, with a pause that grows from 0.1 to 2 s, until the agent has answered; a refusal
// (INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, PERMISSION_DENIED) drops a report, never the
// registration. At most kReportsMax reports wait; the oldest give way. Thread-safe.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/sync.h"
#include "base/time.h"
#include "torpor/v1/worker.pb.h"
#include "worker/exit_reporter.h"

namespace torpor::worker {

class SupportClient : public ExitReporter {
 public:
  static constexpr size_t kReportsMax = 10000;

  explicit SupportClient(const std::string& socket_path);
  ~SupportClient() override;  // gives up what was not sent

  // Begins to register; `registered` runs once, on the client's thread. Called once.
  void Register(torpor::v1::WorkerInfo info,
                std::function<void(const torpor::v1::RegisterWorkerResponse&)> registered);
  void Report(torpor::v1::ExitReport report) override EXCLUDES(mu_);

 private:
  struct Stub;
  void Run();
  // False when the client is being destroyed.
  bool WaitBeforeRetry(Duration* pause) EXCLUDES(mu_);
  bool DoRegister();
  bool SendReport(const torpor::v1::ExitReport& report);

  const std::unique_ptr<Stub> stub_;
  torpor::v1::WorkerInfo info_;  // set before the thread starts
  std::function<void(const torpor::v1::RegisterWorkerResponse&)> registered_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::deque<torpor::v1::ExitReport> reports_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace torpor::worker
