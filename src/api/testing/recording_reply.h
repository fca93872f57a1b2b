#pragma once
// An HttpReply that keeps what it is given.

#include <string>
#include <utility>

#include "api/http/handler.h"

namespace torpor::api {

class RecordingReply : public HttpReply {
 public:
  void Send(HttpResponse response) override {
    ++answers;
    sent = std::move(response);
  }
  void Begin(HttpResponse head) override {
    ++answers;
    sent = std::move(head);
  }
  void Write(std::string chunk, std::function<void(bool)> written) override {
    sent.body += chunk;
    written(!gone);
  }
  void End() override { ended = true; }
  void OnGone(std::function<void()> gone_in) override { on_gone = std::move(gone_in); }

  std::string Header(std::string_view name) const {
    for (const auto& [key, value] : sent.headers) {
      if (key == name) return value;
    }
    return "";
  }

  int answers = 0;
  HttpResponse sent;
  bool ended = false;
  bool gone = false;
  std::function<void()> on_gone;
};

}  // namespace torpor::api
