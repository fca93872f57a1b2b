#pragma once
// What a user's actor is asked to do, and what must be true of it after a wake.

#include <functional>
#include <memory>
#include <string>

#include "bench/glutton.h"
#include "bench/outcome.h"
#include "bench/scenario.h"

namespace torpor::bench {

// Takes one operation; false when it failed. `always`: also outside the measured window.
using Record = std::function<bool(const std::string& row, const Outcome& outcome, bool always)>;

// Belongs to one user, so to one thread.
class Program {
 public:
  virtual ~Program() = default;
  // Once in an actor's life, while it runs. False when an operation failed; so does Work.
  virtual bool Begin(const Record& record) = 0;
  // The request that wakes an actor which no call wakes.
  virtual Outcome FirstTouch() = 0;
  // After each wake.
  virtual bool Work(const Record& record) = 0;
  // While it is awake.
  virtual const char* PingRow() const = 0;
  virtual Outcome Ping(int64_t number) = 0;
};

// Memory of the glutton: filled, read, rewritten, and checked as far as `verify` says.
std::unique_ptr<Program> MakeMemoryProgram(const Scenario& scenario, Poster poster);
// A file in a durable directory: read twice after each wake, then rewritten. Its digest must be
// that of the last write.
std::unique_ptr<Program> MakeDurDirProgram(const Scenario& scenario, Poster poster);
// The counter: each answer must be the last one plus one, in memory and in its file.
std::unique_ptr<Program> MakeCounterProgram(const Scenario& scenario, Poster poster);
// By the scenario's pattern.
std::unique_ptr<Program> MakeProgram(const Scenario& scenario, Poster poster);

// What a scenario does with a running glutton: reads, rewrites, checks. Each operation goes to
// `record`; false when one failed. Also used on bare sandboxes, so that both sides do the same.
bool WorkOnMemory(Glutton& glutton, const Scenario& scenario,
                  const std::function<void(const std::string& row, const Outcome&)>& record);
Glutton::Verify VerifyOf(const Scenario& scenario);

}  // namespace torpor::bench
