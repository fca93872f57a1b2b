#pragma once
// What a check found, and what to do about it.

#include <string>
#include <vector>

namespace torpor::doctor {

enum class Level {
  kOk,
  kAdvice,   // works, could be better; or could not be checked
  kProblem,  // something does not or will not work
};

struct Finding {
  Level level = Level::kOk;
  std::string check;   // "cgroups", "local snapshot", ...
  std::string what;    // what is so
  std::string remedy;  // exactly what to do; empty for kOk
};

using Findings = std::vector<Finding>;

}  // namespace torpor::doctor
