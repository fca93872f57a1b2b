#pragma once
// A network namespace with an `eth0` as the worker makes one, for tests with real sandboxes.

#include <memory>
#include <string>

#include "base/status.h"

namespace torpor::runtime {

// Everything is removed by the destructor. Needs root and ip(8).
class NetnsFixture {
 public:
  // `index` 0 to 16383 picks names and addresses; distinct per process.
  static StatusOr<std::unique_ptr<NetnsFixture>> Create(int index);
  ~NetnsFixture();

  const std::string& path() const { return path_; }
  const std::string& guest_address() const { return guest_; }
  // Addresses, links and route inside; runsc takes them away at every start.
  Status Prepare() const;

 private:
  NetnsFixture() = default;
  std::string name_, path_, host_link_, host_, guest_;
};

}  // namespace torpor::runtime
