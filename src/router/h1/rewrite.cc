#include "router/h1/rewrite.h"

#include <algorithm>

#include <fmt/format.h>

namespace torpor::router {
namespace {

void Append(std::string* out, std::string_view name, std::string_view value) {
  out->append(name).append(": ").append(value).append("\r\n");
}

// What the router adds is smaller; growing step by step would cost more than this.
constexpr size_t kOwnFields = 512;

size_t SizeOf(const std::vector<Field>& fields) {
  size_t size = 0;
  for (const Field& field : fields) size += field.name.size() + field.value.size() + 4;
  return size;
}

void AppendLength(std::string* out, uint64_t length) {
  fmt::format_int digits(length);
  Append(out, "Content-Length", std::string_view(digits.data(), digits.size()));
}

bool Named(const std::vector<std::string_view>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(),
                     [name](std::string_view n) { return EqualsIgnoreCase(n, name); });
}

bool DropFromRequest(const Field& field, const RequestHead& head, bool trusted) {
  switch (field.id) {
    case FieldId::kOther:
    case FieldId::kSecFetchSite:
      return !head.connection_names.empty() && Named(head.connection_names, field.name);
    case FieldId::kForwarded:
      return !trusted;
    case FieldId::kHost:
      return false;
    default:
      return true;
  }
}

bool DropFromResponse(const Field& field, const ResponseHead& head) {
  switch (field.id) {
    case FieldId::kContentLength:
    case FieldId::kTransferEncoding:
    case FieldId::kConnection:
    case FieldId::kUpgrade:
    case FieldId::kHopByHop:
    case FieldId::kTrailer:
    case FieldId::kTargetActor:
    case FieldId::kTargetPort:
    case FieldId::kParkTimeout:
    case FieldId::kHibernate:
    case FieldId::kKeepAwake:
    case FieldId::kReserved:
      return true;
    default:
      return !head.connection_names.empty() && Named(head.connection_names, field.name);
  }
}

}  // namespace

bool IsUsableRequestId(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != ',' && c != '\\';
  });
}

void WriteRequestHead(const RequestHead& head, const RequestRewrite& rewrite, std::string* out) {
  out->clear();
  out->reserve(SizeOf(head.fields) + rewrite.target.size() + kOwnFields);
  out->append(head.method).append(" ").append(rewrite.target).append(" HTTP/1.1\r\n");
  std::string_view forwarded_for;
  bool has_proto = false;
  bool has_host = false;
  std::string_view host;
  for (const Field& field : head.fields) {
    if (field.id == FieldId::kHost) host = field.value;
    if (field.id == FieldId::kForwardedFor && rewrite.trusted_client) forwarded_for = field.value;
    if (DropFromRequest(field, head, rewrite.trusted_client)) continue;
    has_proto |= EqualsIgnoreCase(field.name, "x-forwarded-proto");
    has_host |= EqualsIgnoreCase(field.name, "x-forwarded-host");
    Append(out, field.name, field.value);
  }
  // An HTTP/1.0 client may name the actor in a header only; to the actor we speak HTTP/1.1.
  if (head.Find(FieldId::kHost) == nullptr) Append(out, "Host", "");
  if (head.framing == Framing::kLength) AppendLength(out, head.length);
  if (head.framing == Framing::kChunked) {
    Append(out, "Transfer-Encoding", "chunked");
    const Field* trailer = head.Find(FieldId::kTrailer);
    if (trailer != nullptr) Append(out, "Trailer", trailer->value);
  }
  if (head.expect_continue) Append(out, "Expect", "100-continue");
  if (head.wants_upgrade) {
    Append(out, "Connection", "Upgrade");
    Append(out, "Upgrade", head.Find(FieldId::kUpgrade)->value);
  }
  Append(out, "ate-target-actor", rewrite.actor);
  out->append("x-forwarded-for: ");
  if (!forwarded_for.empty()) out->append(forwarded_for).append(", ");
  out->append(rewrite.client).append("\r\n");
  if (!has_proto) Append(out, "x-forwarded-proto", "http");
  if (!has_host) Append(out, "x-forwarded-host", host);
  Append(out, "x-request-id", rewrite.request_id);
  Append(out, "traceparent", rewrite.traceparent);
  out->append("\r\n");
}

void WriteResponseHead(const ResponseHead& head, const ResponseRewrite& rewrite, std::string* out) {
  out->clear();
  out->reserve(SizeOf(head.fields) + kOwnFields);
  out->append("HTTP/1.1 ");
  fmt::format_int status(head.status);
  out->append(status.data(), status.size()).append(" ").append(head.reason).append("\r\n");
  bool has_request_id = false;
  for (const Field& field : head.fields) {
    if (DropFromResponse(field, head)) continue;
    has_request_id |= field.id == FieldId::kRequestId;
    Append(out, field.name, field.value);
  }
  if (rewrite.upgrade) {
    Append(out, "Connection", "Upgrade");
    const Field* upgrade = head.Find(FieldId::kUpgrade);
    if (upgrade != nullptr) Append(out, "Upgrade", upgrade->value);
  } else {
    bool length_without_body = head.framing == Framing::kNone && head.status != 204;
    if (head.has_length && (rewrite.framing == Framing::kLength || length_without_body)) {
      AppendLength(out, head.length);
    }
    if (rewrite.framing == Framing::kChunked) {
      Append(out, "Transfer-Encoding", "chunked");
      const Field* trailer = head.Find(FieldId::kTrailer);
      if (trailer != nullptr) Append(out, "Trailer", trailer->value);
    }
    if (rewrite.close) {
      Append(out, "Connection", "close");
    } else if (!rewrite.client_http11) {
      Append(out, "Connection", "keep-alive");
    }
  }
  if (!rewrite.server_timing.empty()) Append(out, "Server-Timing", rewrite.server_timing);
  if (!has_request_id) Append(out, "x-request-id", rewrite.request_id);
  out->append("\r\n");
}

void WriteInterimHead(const ResponseHead& head, std::string* out) {
  out->clear();
  fmt::format_int status(head.status);
  out->append("HTTP/1.1 ").append(status.data(), status.size()).append(" ");
  out->append(head.reason).append("\r\n");
  for (const Field& field : head.fields) {
    if (field.id == FieldId::kOther) Append(out, field.name, field.value);
  }
  out->append("\r\n");
}

}  // namespace torpor::router
