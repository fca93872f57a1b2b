// torpor internal enter: the start helper of sandboxes under the main program's name, for a look by
// hand. Workers start the small static program torpor-enter, which is the same function.

#include <cstdio>

#include "apps/commands.h"
#include "runtime/gvisor/enter.h"

namespace torpor {

int InternalCommand(const Args& args) {
  if (args.empty() || args[0] != "enter") {
    fprintf(stderr, "usage: torpor internal enter [OPTION]... -- PROGRAM ARG...\n");
    return 2;
  }
  Args words(args.begin() + 1, args.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return gvisor::Enter(pointers.data());
}

}  // namespace torpor
