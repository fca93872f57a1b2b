// Heads: whatever is accepted must survive being written anew and read again, with the same
// framing. Otherwise the next reader could see another message than we did.

#include <cstdint>
#include <cstdlib>

#include "router/h1/rewrite.h"
#include "router/upstream/door.h"

using namespace torpor::router;

namespace {

void Require(bool condition) {
  if (!condition) abort();
}

void Request(std::string_view bytes) {
  RequestHead head;
  if (ParseRequestHead(bytes, HeadLimits(), &head) != Rule::kNone) return;
  RequestRewrite rewrite;
  rewrite.target = "/";
  rewrite.actor = "a/b";
  rewrite.client = "127.0.0.1";
  rewrite.request_id = "id";
  rewrite.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  std::string out;
  WriteRequestHead(head, rewrite, &out);
  HeadScanner scanner;
  Require(scanner.Scan(out) == HeadScanner::State::kComplete && scanner.size() == out.size());
  RequestHead again;
  HeadLimits roomy;
  roomy.head_bytes *= 2;
  roomy.fields *= 2;
  Require(ParseRequestHead(out, roomy, &again) == Rule::kNone);
  Require(again.framing == head.framing && again.length == head.length);
  int actors = 0;
  for (const Field& field : again.fields) {
    if (field.id == FieldId::kTargetActor) ++actors;
    Require(field.id != FieldId::kReserved);
  }
  Require(actors == 1);
}

void Response(std::string_view bytes) {
  ResponseHead head;
  if (ParseResponseHead(bytes, kResponseLimits, false, &head) != Rule::kNone) return;
  ResponseRewrite rewrite;
  rewrite.request_id = "id";
  rewrite.framing = head.framing;
  std::string out;
  WriteResponseHead(head, rewrite, &out);
  HeadLimits roomy = kResponseLimits;
  roomy.head_bytes *= 2;
  roomy.fields *= 2;
  ResponseHead again;
  Require(ParseResponseHead(out, roomy, false, &again) == Rule::kNone);
  Require(again.framing == head.framing && again.status == head.status);
  if (head.framing == Framing::kLength) Require(again.length == head.length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HeadScanner scanner;
  if (scanner.Scan(bytes) != HeadScanner::State::kComplete) return 0;
  bytes = bytes.substr(0, scanner.size());
  Request(bytes);
  Response(bytes);
  ParseDoorAnswer(bytes);
  return 0;
}
