#pragma once
// Keeps gRPC's own threads, and keeps them awake, for the life of the process.

namespace torpor::rpc {

// Two habits of the threads that run callbacks in gRPC 1.51 (CallbackAlternativeCQ):
// - They end with the last channel or server that uses them, and such an end can abort the process
//   (a thread releases the completion queue after it was deleted).
// - A thread that saw nothing for 1 s sleeps for 100 ms, in which it hears nothing. When all sleep,
//   a call waits for them: a wake after a second of quiet took 100 ms longer. An event every half
//   second leaves one of them awake.
// Called by Connect and by everything that starts a server; any thread, cheap after the first time.
void KeepCallbackThreads();

}  // namespace torpor::rpc
