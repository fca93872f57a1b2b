#pragma once
// A glutton in memory, with one byte per page, that can lose its state as a broken restore would.

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/http_client.h"
#include "glutton/glutton.pb.h"

namespace torpor::bench {

class FakeGlutton {
 public:
  static constexpr int64_t kPage = 4096;

  StatusOr<HttpAnswer> Post(const std::string& path, const std::string& body) {
    ++requests;
    if (!next_error.empty()) return Answer(503, std::exchange(next_error, ""), true);
    if (path == "/writeram") return Write(body);
    if (path == "/readram") return Read(body);
    ::glutton::PingRequest request;
    request.ParseFromString(body);
    ::glutton::PingResponse response;
    response.set_message(request.message() + echo_suffix);
    return Answer(200, response.SerializeAsString(), false);
  }

  std::vector<uint8_t> pages;
  int64_t cursor = 0;
  uint8_t next_byte = 1;
  int requests = 0;
  std::string next_error;   // torpor-reason of the next answer
  std::string echo_suffix;  // makes echoes wrong

 private:
  static HttpAnswer Answer(int status, const std::string& text, bool from_router) {
    HttpAnswer answer;
    answer.status = status;
    answer.headers[from_router ? "torpor-reason" : "x-server-elapsed-us"] =
        from_router ? text : "1500";
    answer.body = text;
    return answer;
  }
  StatusOr<HttpAnswer> Write(const std::string& body) {
    ::glutton::WriteRAMRequest request;
    request.ParseFromString(body);
    auto count = static_cast<size_t>(std::stoll(request.size()) / kPage);
    if (request.write_mode() == ::glutton::WRITE_MODE_TRUNCATE) {
      pages.assign(count, 0);
      cursor = 0;
      for (uint8_t& page : pages) page = next_byte++;
    } else {
      if (pages.empty()) return Answer(404, "no array", false);
      for (size_t i = 0; i < count; ++i) {
        pages[(static_cast<size_t>(cursor / kPage) + i) % pages.size()] = next_byte++;
      }
      cursor = (cursor + static_cast<int64_t>(count) * kPage) %
               (static_cast<int64_t>(pages.size()) * kPage);
    }
    HttpAnswer answer = Answer(200, "", false);
    answer.headers["x-glutton-cursor"] = std::to_string(cursor);
    return answer;
  }
  StatusOr<HttpAnswer> Read(const std::string& body) {
    ::glutton::ReadRAMRequest request;
    request.ParseFromString(body);
    if (pages.empty()) return Answer(404, "no array", false);
    size_t count = pages.size();
    if (!request.size().empty()) {
      count = std::min(count, static_cast<size_t>(std::stoll(request.size()) / kPage));
    }
    uint8_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum ^= pages[i];
    ::glutton::ReadRAMResponse response;
    response.set_size(static_cast<int64_t>(count) * kPage);
    response.set_checksum(sum);
    return Answer(200, response.SerializeAsString(), false);
  }
};

}  // namespace torpor::bench
