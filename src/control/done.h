#pragma once
// How asynchronous calls of the control plane answer.

#include <functional>

#include "base/status.h"

namespace torpor::control {

// Called exactly once, from any thread; must not block. It may call back into the object that
// calls it.
template <typename T>
using Done = std::function<void(StatusOr<T>)>;
using DoneStatus = std::function<void(Status)>;

}  // namespace torpor::control
