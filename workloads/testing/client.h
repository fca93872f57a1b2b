#pragma once

// A blocking HTTP/1.1 client over one loopback connection, which can also send broken bytes.
// Every read has a deadline of 20 seconds. Not thread-safe.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/base/io.h"

namespace torpor::workloads::testing {

struct Answer {
  int status = 0;                              // 0: no complete answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class Client {
 public:
  explicit Client(uint16_t port);

  bool connected() const { return fd_.ok(); }

  // Sends a request and reads its answer.
  Answer Do(const std::string& method, const std::string& target, const std::string& body = "",
            const std::string& more_headers = "");
  Answer Get(const std::string& target) { return Do("GET", target); }

  bool SendRaw(std::string_view bytes);
  Answer ReadAnswer(bool head_only = false);

  // Exactly `size` bytes, or fewer at the end of the connection.
  std::string ReadBytes(size_t size);

  // True if the peer closes without sending anything more.
  bool AtEnd();

 private:
  bool Fill();
  std::string TakeLine();

  UniqueFd fd_;
  std::string in_;
};

}  // namespace torpor::workloads::testing
