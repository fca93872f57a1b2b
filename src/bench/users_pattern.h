#pragma once
// Users, each with an actor and a thread; what several patterns begin with.

#include <memory>
#include <vector>

#include "bench/memory_watch.h"
#include "bench/pattern.h"
#include "bench/user.h"

namespace torpor::bench {

class UsersPattern : public Pattern {
 public:
  explicit UsersPattern(PatternContext context);

  Status SetUp(const WhileRunning& running) override;
  Status Run() override;

 protected:
  UserWorld WorldOfUsers();
  // All users at once; returns when all have ended.
  void ForAll(const std::function<void(User&)>& work);
  // How many users there should be at this moment of the window.
  int64_t UsersWanted(Duration elapsed) const;
  // Sleeps beside one actor that was woken, and reads what it is charged.
  void LookAtResumed();
  void NoteThoseWhoGaveUp();

  PatternContext context_;
  const Scenario& scenario_;
  std::unique_ptr<MemoryWatch> memory_;  // null for guests without sandbox
  std::vector<std::unique_ptr<User>> users_;
  std::atomic<int64_t> hibernations_{0};
};

}  // namespace torpor::bench
