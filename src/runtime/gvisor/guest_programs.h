#pragma once
// Static programs of ours that run inside sandboxes, as bytes.

#include <string_view>

namespace torpor::gvisor {

// Prints 1, 2, 3 ... for ever.
std::string_view SmokeGuest();
// Sleeps for ever: the root container of a sandbox with several containers.
std::string_view PauseGuest();

}  // namespace torpor::gvisor
