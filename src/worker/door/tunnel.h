#pragma once
// One direction of an open connection: bytes from one non-blocking socket to another.
//
// Meant for edge-triggered epoll: Pump moves bytes until one side would block, or the budget is
// used up. Copies through a buffer of the caller instead of splicing through a pipe: a pipe would
// take two more descriptors per direction, and for the small messages of a warm request both need
// the same number of system calls. Belongs to one thread.

#include <cstddef>
#include <string>

namespace torpor::worker {

class Tunnel {
 public:
  Tunnel() = default;
  Tunnel(int from, int to) : from_(from), to_(to) {}

  enum class Result {
    kBlocked,   // waits for an event
    kAgain,     // the budget is used up; call again
    kFinished,  // end of stream was read, everything was written, the peer's end was shut down
    kBroken,    // an error on either side
  };
  // `buffer` is scratch space. `*moved` grows by the bytes read.
  Result Pump(char* buffer, size_t buffer_size, size_t* moved);

  // What epoll said about the sockets. After a hang-up reads go on until they return 0.
  void SetReadable(bool hung_up) {
    readable_ = true;
    hung_up_ = hung_up_ || hung_up;
  }
  void SetWritable() { writable_ = true; }
  bool finished() const { return finished_; }

 private:
  Result Flush();

  int from_ = -1;
  int to_ = -1;
  bool readable_ = true;
  bool writable_ = true;
  bool hung_up_ = false;
  bool ended_ = false;
  bool finished_ = false;
  std::string pending_;  // read, and not taken by the other side
};

}  // namespace torpor::worker
