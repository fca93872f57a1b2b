#pragma once
// Calls to the control socket of a sandbox (urpc of gVisor): a unix stream, one JSON object
// {"method", "arg"} per call, descriptors with its first bytes.
//
// One connection per call, closed right after the answer: a sentry stays for seconds as long as a
// client is connected. A failed call says whether the sandbox can have acted on it, because that
// decides what may be done next.
//
// Errors: NOT_FOUND and UNAVAILABLE when nobody listens, DEADLINE_EXCEEDED, else INTERNAL
// RUNTIME_FAILED with the words of the sandbox.

#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace torpor::gvisor {

struct ControlCall {
  std::string method;
  std::string arg;       // JSON
  std::vector<int> fds;  // at most 8; not owned
};

enum class CallEnd {
  kDone,
  kNotSent,  // nothing of the call has reached the sandbox
  kRefused,  // answered with an error
  kUnknown,  // no or no proper answer: it may have happened
};

struct CallResult {
  CallEnd end = CallEnd::kUnknown;
  Status status;       // OK only with kDone
  std::string result;  // JSON, with kDone
};

class ControlSocket {
 public:
  // The socket of container `id` below `root`, which may be longer than a socket address.
  static StatusOr<ControlSocket> Connect(const std::string& root, const std::string& id);

  // The connection is closed afterwards. Thread-compatible.
  CallResult Call(const ControlCall& call, MonotonicTime deadline) &&;

 private:
  explicit ControlSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  Status Send(const ControlCall& call, MonotonicTime deadline, bool* any_sent);

  UniqueFd fd_;
};

// Connect and Call.
CallResult CallSandbox(const std::string& root, const std::string& id, const ControlCall& call,
                       MonotonicTime deadline);

}  // namespace torpor::gvisor
