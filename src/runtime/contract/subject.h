#pragma once
// What the contract suite is run over: a runtime and the surroundings that a worker would make.

#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/runtime.h"

namespace torpor::runtime {

class ContractSubject {
 public:
  virtual ~ContractSubject() = default;
  // Called first. NOT_FOUND when this machine lacks what the subject needs: the test is skipped.
  virtual Status Prepare() { return OkStatus(); }
  virtual Runtime& runtime() = 0;
  // A directory of this test's own, removed with the subject.
  virtual const std::string& directory() const = 0;
  // Network, cgroup and whatever else `args` should name, and the bundle of one container `app`.
  virtual void Surround(StartArgs* args) = 0;
  // Sends one request line to the guest, on a new connection, and returns its answer:
  //   next -> the counter after adding one; exit CODE ends the guest
  //   write NAME TEXT, read NAME -> a file in the guest; out TEXT -> a line on standard output
  virtual StatusOr<std::string> Ask(const std::string& line) = 0;
  // Opens a connection to the guest and keeps it; false where there is none.
  virtual bool HoldConnection() = 0;
};

struct SubjectFactory {
  std::string name;
  std::unique_ptr<ContractSubject> (*make)();
};

}  // namespace torpor::runtime
