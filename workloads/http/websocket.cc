#include "workloads/http/websocket.h"

#include <memory>

#include "workloads/base/digest.h"

namespace torpor::workloads::http {
namespace {

constexpr uint8_t kContinuation = 0;
constexpr uint8_t kClose = 8;
constexpr uint8_t kPing = 9;
constexpr uint8_t kPong = 10;
constexpr int kProtocolError = 1002;
constexpr int kTooBig = 1009;

void AppendFrame(uint8_t first_byte, std::string_view payload, std::string* out) {
  out->push_back(static_cast<char>(first_byte));
  const uint64_t size = payload.size();
  if (size < 126) {
    out->push_back(static_cast<char>(size));
  } else {
    const int length_bytes = size < 65536 ? 2 : 8;
    out->push_back(static_cast<char>(length_bytes == 2 ? 126 : 127));
    for (int i = length_bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(size >> (8 * i)));
  }
  *out += payload;
}

class Echo : public Upgraded {
 public:
  bool OnData(std::string_view data, std::string* out) override {
    in_ += data;
    bool open = true;
    while (open && OnFrame(out, &open)) {
    }
    in_.erase(0, used_);
    used_ = 0;
    return open;
  }

 private:
  // Handles one frame; false if it is not complete yet.
  bool OnFrame(std::string* out, bool* open) {
    const std::string_view input = std::string_view(in_).substr(used_);
    if (input.size() < 2) return false;
    const auto first = static_cast<uint8_t>(input[0]);
    const auto second = static_cast<uint8_t>(input[1]);
    size_t header = 2;
    uint64_t size = second & 0x7f;
    if (size >= 126) {
      const size_t length_bytes = size == 126 ? 2 : 8;
      header += length_bytes;
      if (input.size() < header) return false;
      size = 0;
      for (size_t i = 2; i < header; ++i) size = size << 8 | static_cast<uint8_t>(input[i]);
    }
    const int error = Check(first, (second & 0x80) != 0, size);
    if (error != 0) {
      const char code[2] = {static_cast<char>(error >> 8), static_cast<char>(error)};
      AppendFrame(0x80 | kClose, std::string_view(code, 2), out);
      *open = false;
      return true;
    }
    if (input.size() < header + 4 + size) return false;
    std::string payload(input.substr(header + 4, size));
    for (size_t i = 0; i < payload.size(); ++i) payload[i] ^= input[header + i % 4];
    used_ += header + 4 + size;
    *open = Answer(first, payload, out);
    return true;
  }

  // Returns 0 or the close code that the frame deserves.
  int Check(uint8_t first, bool masked, uint64_t size) const {
    const uint8_t opcode = first & 0x0f;
    const bool final = (first & 0x80) != 0;
    if ((first & 0x70) != 0 || !masked) return kProtocolError;
    if (opcode >= kClose) {
      return opcode > kPong || !final || size > 125 ? kProtocolError : 0;
    }
    if (opcode > 2 || (opcode == kContinuation) != in_message_) return kProtocolError;
    return size > kMaxFrameBytes ? kTooBig : 0;
  }

  bool Answer(uint8_t first, std::string_view payload, std::string* out) {
    const uint8_t opcode = first & 0x0f;
    if (opcode == kPing) {
      AppendFrame(0x80 | kPong, payload, out);
    } else if (opcode == kClose) {
      AppendFrame(0x80 | kClose, payload.substr(0, 2), out);
      return false;
    } else if (opcode != kPong) {
      AppendFrame(first, payload, out);
      in_message_ = (first & 0x80) == 0;
    }
    return true;
  }

  std::string in_;
  size_t used_ = 0;
  bool in_message_ = false;  // between the first and the last frame of a fragmented message
};

bool HasToken(std::string_view value, std::string_view lower_token) {
  std::string lower(value);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower.find(lower_token) != std::string::npos;
}

}  // namespace

std::string WebSocketAccept(std::string_view key) {
  const auto digest = Sha1(std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
  return Base64(digest.data(), digest.size());
}

void ServeWebSocketEcho(const Request& request, const Reply& reply) {
  if (!HasToken(request.Header("upgrade"), "websocket") ||
      !HasToken(request.Header("connection"), "upgrade") ||
      request.Header("sec-websocket-version") != "13") {
    Response response = TextResponse(426, "this path speaks WebSocket version 13\n");
    response.headers = {{"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"}};
    return reply.Send(std::move(response));
  }
  const std::string_view key = request.Header("sec-websocket-key");
  if (request.method != "GET" || key.empty()) {
    return reply.Send(TextResponse(400, "bad WebSocket handshake\n"));
  }
  reply.Upgrade({{"Upgrade", "websocket"},
                 {"Connection", "Upgrade"},
                 {"Sec-WebSocket-Accept", WebSocketAccept(key)}},
                std::make_unique<Echo>());
}

}  // namespace torpor::workloads::http
