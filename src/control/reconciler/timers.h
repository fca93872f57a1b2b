#pragma once
// Named timers on wall time. Used by one thread; the caller asks for what is due.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"

namespace torpor::control {

class Timers {
 public:
  // Replaces the timer of that name.
  void Set(const std::string& name, WallTime at) {
    Cancel(name);
    due_.emplace(at, name);
    times_[name] = at;
  }
  void Cancel(const std::string& name) {
    auto it = times_.find(name);
    if (it == times_.end()) return;
    due_.erase({it->second, name});
    times_.erase(it);
  }
  // Takes those that are due, earliest first.
  std::vector<std::string> TakeDue(WallTime now) {
    std::vector<std::string> names;
    while (!due_.empty() && due_.begin()->first <= now) {
      names.push_back(due_.begin()->second);
      times_.erase(names.back());
      due_.erase(due_.begin());
    }
    return names;
  }
  WallTime next() const { return due_.empty() ? WallTime::max() : due_.begin()->first; }

 private:
  std::set<std::pair<WallTime, std::string>> due_;
  std::map<std::string, WallTime> times_;
};

}  // namespace torpor::control
