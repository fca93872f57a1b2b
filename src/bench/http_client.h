#pragma once
// A small HTTP/1.1 client with keep-alive, over whatever socket a dialer makes: TCP to the router,
// a tunnel through a worker's door, a bare sandbox's network.
//
// Nothing is ever sent twice: a connection that breaks is an error of that request. A connection
// belongs to one thread. Errors: UNAVAILABLE when no answer or half an answer came,
// DEADLINE_EXCEEDED; none of them carries a reason, as no server gave one. A status of 400 and
// above is an answer, not an error.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace torpor::bench {

struct HttpRequest {
  std::string method = "POST";
  std::string path = "/";
  std::string host;
  std::string content_type;  // empty = not sent
  std::string body;
  std::vector<std::pair<std::string, std::string>> fields;  // more of the head
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  // Empty when there is no such header.
  std::string Header(const std::string& name) const;
};

// A non-blocking stream socket, connected or connecting.
using Dialer = std::function<StatusOr<UniqueFd>(MonotonicTime deadline)>;

// `address` is host:port with a numeric host.
Dialer DialTcp(const std::string& address);
// Through the door that listens at `address` ("unix:<path>").
Dialer DialDoor(const std::string& address, const std::string& uid, int64_t generation, int port);

class HttpConnection {
 public:
  explicit HttpConnection(Dialer dialer) : dialer_(std::move(dialer)) {}

  // Connects when there is no open connection, or the server has closed it since.
  StatusOr<HttpAnswer> Exchange(const HttpRequest& request, MonotonicTime deadline);
  void Close() { fd_.Reset(); }

 private:
  StatusOr<HttpAnswer> ExchangeOn(const HttpRequest& request, MonotonicTime deadline);
  Status Send(std::string_view bytes, MonotonicTime deadline);
  Status Receive(MonotonicTime deadline);  // at least one byte into buffer_
  StatusOr<HttpAnswer> ReadAnswer(MonotonicTime deadline, bool* keep);
  Status ReadLine(std::string* line, MonotonicTime deadline);
  Status ReadBytes(size_t count, std::string* out, MonotonicTime deadline);
  Status ReadChunks(std::string* out, MonotonicTime deadline);

  const Dialer dialer_;
  UniqueFd fd_;
  std::string buffer_;  // received and not used
};

}  // namespace torpor::bench
