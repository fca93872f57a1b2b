#pragma once
// Waits until a guest's network stack has seen everything that was sent to it before.
//
// A blocking call; needs no thread.

#include <vector>

#include "base/time.h"
#include "worker/door/route.h"

namespace torpor::worker {

// Two connection requests, one after the other, to port 0, on which nobody can listen. Segments of
// one link arrive in order, so the refusal of the first says that the guest's stack had whatever
// was sent before it, and that our kernel has seen, and where nobody waited any more has reset,
// what the guest answered; the refusal of the second says that the guest had these resets.
// Afterwards no endpoint of the guest is half open, and connections that we reset have failed for
// the guest, whether or not its programs have run since.
//
// False when the deadline passed, or one of `wake_fds` became readable, before that.
bool WaitUntilSettled(const DialFunction& dial, MonotonicTime deadline,
                      const std::vector<int>& wake_fds, Clock* clock);

}  // namespace torpor::worker
