#pragma once
// The driver's side of the glutton workload: requests, and what their answers must be.
//
// The memory of an actor is known to the driver by two values that no lost write can leave alone:
// the checksum of its array and the cursor of rotating writes. They are learned while the actor
// runs and demanded after it woke.

#include <functional>
#include <string>

#include "base/status.h"
#include "bench/http_client.h"
#include "bench/outcome.h"

namespace torpor::bench {

// Posts to the actor.
using Poster =
    std::function<StatusOr<HttpAnswer>(const std::string& path, const std::string& body)>;

// Belongs to one user, so to one thread.
class Glutton {
 public:
  enum class Verify { kOff, kEcho, kMemory };
  Glutton(Poster poster, Verify verify) : poster_(std::move(poster)), verify_(verify) {}

  // A new array of `bytes`; forgets what was known of an earlier one.
  Outcome Fill(int64_t bytes, const std::string& content);
  // Rewrites the next `bytes` of it. What a later ReadAll finds becomes the expectation.
  Outcome Churn(int64_t bytes, const std::string& content);
  // `bytes` -1 = the whole array, whose checksum is then checked.
  Outcome Read(int64_t bytes);
  Outcome Ping(const std::string& message);

  bool verifies_memory() const { return verify_ == Verify::kMemory && size_ > 0; }
  bool knows_checksum() const { return known_; }

 private:
  Outcome Post(const std::string& path, const std::string& body, HttpAnswer* answer);

  const Poster poster_;
  const Verify verify_;
  int64_t size_ = 0;
  int64_t cursor_ = 0;
  bool known_ = false;  // checksum_ is of the present content
  uint32_t checksum_ = 0;
};

// Posts and measures; the outcome is judged, and the answer has status 0 when there was none.
HttpAnswer PostTo(const Poster& poster, const std::string& path, const std::string& body,
                  Outcome* outcome);
// Fails the outcome if the answer is an error, and decides whether anybody explained it: the
// router's answers carry torpor-reason, the workload's x-server-elapsed-us.
void JudgeAnswer(const HttpAnswer& answer, Outcome* outcome);

}  // namespace torpor::bench
