#include "router/h1/head.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace torpor::router {
namespace {

constexpr std::array<bool, 256> MakeTokenTable() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (char c : {'!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kToken = MakeTokenTable();

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Programs behind CGI-like interfaces cannot tell '_' from '-' in names, so neither do we where a
// name is reserved for the router.
bool HasReservedPrefix(std::string_view name, std::string_view prefix) {
  if (name.size() < prefix.size()) return false;
  for (size_t i = 0; i < prefix.size(); ++i) {
    char c = Lower(name[i]);
    if (c == '_') c = '-';
    if (c != prefix[i]) return false;
  }
  return true;
}

FieldId ClassifyReserved(std::string_view name) {
  if (EqualsIgnoreCase(name, "ate-target-actor")) return FieldId::kTargetActor;
  if (EqualsIgnoreCase(name, "torpor-target-port")) return FieldId::kTargetPort;
  if (EqualsIgnoreCase(name, "torpor-park-timeout")) return FieldId::kParkTimeout;
  if (EqualsIgnoreCase(name, "torpor-hibernate")) return FieldId::kHibernate;
  if (EqualsIgnoreCase(name, "torpor-keep-awake")) return FieldId::kKeepAwake;
  return FieldId::kReserved;
}

// `Content_Length` frames nothing for us, but might for such a program: it is not passed on.
bool IsFramingInDisguise(std::string_view name, std::string_view framing) {
  return name.size() == framing.size() && HasReservedPrefix(name, framing);
}

FieldId Classify(std::string_view name) {
  switch (Lower(name.front())) {
    case 'a':
      return HasReservedPrefix(name, "ate-") ? ClassifyReserved(name) : FieldId::kOther;
    case 'c':
      if (EqualsIgnoreCase(name, "content-length")) return FieldId::kContentLength;
      if (IsFramingInDisguise(name, "content-length")) return FieldId::kHopByHop;
      if (EqualsIgnoreCase(name, "connection")) return FieldId::kConnection;
      return FieldId::kOther;
    case 'e':
      return EqualsIgnoreCase(name, "expect") ? FieldId::kExpect : FieldId::kOther;
    case 'f':
      return EqualsIgnoreCase(name, "forwarded") ? FieldId::kForwarded : FieldId::kOther;
    case 'h':
      return EqualsIgnoreCase(name, "host") ? FieldId::kHost : FieldId::kOther;
    case 'k':
      return EqualsIgnoreCase(name, "keep-alive") ? FieldId::kHopByHop : FieldId::kOther;
    case 'p':
      return EqualsIgnoreCase(name, "proxy-connection") ||
                     EqualsIgnoreCase(name, "proxy-authenticate") ||
                     EqualsIgnoreCase(name, "proxy-authorization")
                 ? FieldId::kHopByHop
                 : FieldId::kOther;
    case 's':
      return EqualsIgnoreCase(name, "sec-fetch-site") ? FieldId::kSecFetchSite : FieldId::kOther;
    case 't':
      if (EqualsIgnoreCase(name, "transfer-encoding")) return FieldId::kTransferEncoding;
      if (IsFramingInDisguise(name, "transfer-encoding")) return FieldId::kHopByHop;
      if (EqualsIgnoreCase(name, "te")) return FieldId::kHopByHop;
      if (EqualsIgnoreCase(name, "trailer")) return FieldId::kTrailer;
      if (EqualsIgnoreCase(name, "traceparent")) return FieldId::kTraceparent;
      return HasReservedPrefix(name, "torpor-") ? ClassifyReserved(name) : FieldId::kOther;
    case 'u':
      return EqualsIgnoreCase(name, "upgrade") ? FieldId::kUpgrade : FieldId::kOther;
    case 'x':
      if (EqualsIgnoreCase(name, "x-forwarded-for")) return FieldId::kForwardedFor;
      if (HasReservedPrefix(name, "x-forwarded-")) return FieldId::kForwarded;
      return EqualsIgnoreCase(name, "x-request-id") ? FieldId::kRequestId : FieldId::kOther;
    default:
      return FieldId::kOther;
  }
}

bool IsValueChar(unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); }

// What the framing fields of a message said.
struct FramingFields {
  int lengths = 0;
  int encodings = 0;
  std::string_view length;
  std::string_view encoding;
};

bool ParseLength(std::string_view text, uint64_t* out) {
  // 18 digits cannot overflow and are enough for anybody.
  if (text.empty() || text.size() > 18) return false;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  *out = value;
  return true;
}

Rule CheckFraming(const FramingFields& f, bool http11, Framing* framing, uint64_t* length) {
  if (f.lengths > 0 && f.encodings > 0) return Rule::kLengthAndChunked;
  if (f.lengths > 1) return Rule::kLengthRepeated;
  if (f.encodings > 0) {
    if (f.encodings > 1 || !EqualsIgnoreCase(f.encoding, "chunked")) return Rule::kTransferEncoding;
    if (!http11) return Rule::kOldVersionChunked;
    *framing = Framing::kChunked;
  } else if (f.lengths == 1) {
    if (!ParseLength(f.length, length)) return Rule::kLengthInvalid;
    *framing = Framing::kLength;
  }
  return Rule::kNone;
}

struct ConnectionOptions {
  bool close = false;
  bool keep_alive = false;
  bool upgrade = false;
};

void ReadConnection(std::string_view value, ConnectionOptions* options,
                    std::vector<std::string_view>* names) {
  ForEachListItem(value, [&](std::string_view item) {
    if (EqualsIgnoreCase(item, "close")) {
      options->close = true;
    } else if (EqualsIgnoreCase(item, "keep-alive")) {
      options->keep_alive = true;
    } else if (EqualsIgnoreCase(item, "upgrade")) {
      options->upgrade = true;
    } else {
      names->push_back(item);
    }
  });
}

// Parses the lines after the first one. `rest` ends with the empty line.
Rule ParseFields(std::string_view rest, const HeadLimits& limits, std::vector<Field>* fields) {
  fields->clear();
  while (true) {
    size_t end = rest.find("\r\n");
    if (end == std::string_view::npos) return Rule::kLineBreak;
    if (end == 0) return rest.size() == 2 ? Rule::kNone : Rule::kLineBreak;
    if (fields->size() == limits.fields) return Rule::kTooManyFields;
    Field field;
    Rule rule = ParseFieldLine(rest.substr(0, end), limits, &field);
    if (rule != Rule::kNone) return rule;
    fields->push_back(field);
    rest.remove_prefix(end + 2);
  }
}

bool ReadVersion(std::string_view text, bool* http11) {
  *http11 = text == "HTTP/1.1";
  return *http11 || text == "HTTP/1.0";
}

Rule ParseRequestLine(std::string_view line, const HeadLimits& limits, RequestHead* out) {
  if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
    return Rule::kLineBreak;
  }
  size_t first = line.find(' ');
  size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return Rule::kRequestLine;
  out->method = line.substr(0, first);
  out->target = line.substr(first + 1, last - first - 1);
  if (out->method.size() > 32 || !IsToken(out->method)) return Rule::kMethod;
  if (out->target.size() > limits.uri_bytes) return Rule::kUriTooLong;
  if (out->target.empty()) return Rule::kTarget;
  for (unsigned char c : out->target) {
    if (c <= 0x20 || c >= 0x7f || c == '#') return Rule::kTarget;
  }
  if (!ReadVersion(line.substr(last + 1), &out->http11)) return Rule::kVersion;
  if (out->method == "CONNECT" || out->method == "TRACE") return Rule::kMethodRefused;
  bool absolute = out->target.starts_with("http://") || out->target.starts_with("https://");
  bool star = out->target == "*" && out->method == "OPTIONS";
  if (out->target.front() != '/' && !absolute && !star) return Rule::kTarget;
  return Rule::kNone;
}

template <typename Head>
const Field* FindField(const Head& head, FieldId id) {
  for (const Field& field : head.fields) {
    if (field.id == id) return &field;
  }
  return nullptr;
}

}  // namespace

const Field* RequestHead::Find(FieldId id) const { return FindField(*this, id); }
const Field* ResponseHead::Find(FieldId id) const { return FindField(*this, id); }

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return kToken[static_cast<unsigned char>(c)]; });
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

HeadScanner::State HeadScanner::Scan(std::string_view bytes) {
  while (scanned_ < bytes.size()) {
    const char* from = bytes.data() + scanned_;
    size_t left = bytes.size() - scanned_;
    const void* lf = memchr(from, '\n', left);
    size_t line_bytes = lf ? static_cast<size_t>(static_cast<const char*>(lf) - from) : left;
    if (memchr(from, '\0', line_bytes) != nullptr) return State::kBad;
    scanned_ += line_bytes;
    if (lf == nullptr) return State::kMore;
    if (scanned_ == 0 || bytes[scanned_ - 1] != '\r' || scanned_ - 1 < line_start_) {
      return State::kBad;
    }
    ++scanned_;
    if (scanned_ - line_start_ == 2) {
      // An empty line first would be a message without a start line.
      if (line_start_ == 0) return State::kBad;
      size_ = scanned_;
      return State::kComplete;
    }
    line_start_ = scanned_;
  }
  return State::kMore;
}

Rule ParseFieldLine(std::string_view line, const HeadLimits& limits, Field* out) {
  if (line.empty()) return Rule::kFieldName;
  if (line.front() == ' ' || line.front() == '\t') return Rule::kObsFold;
  if (line.size() > limits.field_bytes) return Rule::kFieldTooLarge;
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return Rule::kFieldName;
  out->name = line.substr(0, colon);
  if (out->name.back() == ' ' || out->name.back() == '\t') return Rule::kSpaceBeforeColon;
  if (!IsToken(out->name)) return Rule::kFieldName;
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  for (unsigned char c : value) {
    if (c == '\r' || c == '\n' || c == '\0') return Rule::kLineBreak;
    if (!IsValueChar(c)) return Rule::kFieldValue;
  }
  out->value = value;
  out->id = Classify(out->name);
  return Rule::kNone;
}

Rule ParseRequestHead(std::string_view head, const HeadLimits& limits, RequestHead* out) {
  size_t line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return Rule::kRequestLine;
  // A too long target is told apart from other too long heads.
  if (line_end > limits.uri_bytes + 64) return Rule::kUriTooLong;
  Rule rule = ParseRequestLine(head.substr(0, line_end), limits, out);
  if (rule != Rule::kNone) return rule;
  if (head.size() > limits.head_bytes) return Rule::kHeadTooLarge;
  rule = ParseFields(head.substr(line_end + 2), limits, &out->fields);
  if (rule != Rule::kNone) return rule;

  out->connection_names.clear();
  out->expect_continue = false;
  out->framing = Framing::kNone;
  out->length = 0;
  FramingFields framing;
  ConnectionOptions connection;
  std::string_view upgrade;
  int hosts = 0;
  for (const Field& field : out->fields) {
    if (field.id == FieldId::kContentLength) {
      ++framing.lengths;
      framing.length = field.value;
    } else if (field.id == FieldId::kTransferEncoding) {
      ++framing.encodings;
      framing.encoding = field.value;
    } else if (field.id == FieldId::kConnection) {
      ReadConnection(field.value, &connection, &out->connection_names);
    } else if (field.id == FieldId::kUpgrade) {
      upgrade = field.value;
    } else if (field.id == FieldId::kHost) {
      ++hosts;
    } else if (field.id == FieldId::kExpect) {
      if (!EqualsIgnoreCase(field.value, "100-continue")) return Rule::kExpect;
      out->expect_continue = out->http11;
    }
  }
  if (hosts > 1 || (hosts == 0 && out->http11)) return Rule::kHost;
  rule = CheckFraming(framing, out->http11, &out->framing, &out->length);
  if (rule != Rule::kNone) return rule;
  out->keep_alive = !connection.close && (out->http11 || connection.keep_alive);
  // An upgrade to HTTP/2 would carry requests past this router's rules, and one with a body has no
  // clear point at which the protocol changes: both are passed on as ordinary requests.
  bool body = out->framing == Framing::kChunked || out->length > 0;
  bool http2 = false;
  ForEachListItem(upgrade, [&](std::string_view p) { http2 |= HasReservedPrefix(p, "h2"); });
  out->wants_upgrade = connection.upgrade && !upgrade.empty() && out->http11 && !body && !http2;
  return Rule::kNone;
}

Rule ParseResponseHead(std::string_view head, const HeadLimits& limits, bool to_head_request,
                       ResponseHead* out) {
  if (head.size() > limits.head_bytes) return Rule::kHeadTooLarge;
  size_t line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return Rule::kStatusLine;
  std::string_view line = head.substr(0, line_end);
  if (line.size() < 12 || line[8] != ' ' || !ReadVersion(line.substr(0, 8), &out->http11)) {
    return Rule::kStatusLine;
  }
  uint64_t status = 0;
  if (!ParseLength(line.substr(9, 3), &status) || status < 100 || status > 599) {
    return Rule::kStatusLine;
  }
  if (line.size() > 12 && line[12] != ' ') return Rule::kStatusLine;
  out->status = static_cast<int>(status);
  out->reason = line.size() > 13 ? line.substr(13) : std::string_view();
  for (unsigned char c : out->reason) {
    if (!IsValueChar(c)) return Rule::kStatusLine;
  }
  Rule rule = ParseFields(head.substr(line_end + 2), limits, &out->fields);
  if (rule != Rule::kNone) return rule;

  out->connection_names.clear();
  out->framing = Framing::kNone;
  out->length = 0;
  FramingFields framing;
  ConnectionOptions connection;
  for (const Field& field : out->fields) {
    if (field.id == FieldId::kContentLength) {
      ++framing.lengths;
      framing.length = field.value;
    } else if (field.id == FieldId::kTransferEncoding) {
      ++framing.encodings;
      framing.encoding = field.value;
    } else if (field.id == FieldId::kConnection) {
      ReadConnection(field.value, &connection, &out->connection_names);
    }
  }
  rule = CheckFraming(framing, out->http11, &out->framing, &out->length);
  if (rule != Rule::kNone) return rule;
  out->has_length = framing.lengths == 1;
  out->keep_alive = !connection.close && (out->http11 || connection.keep_alive);
  if (to_head_request || out->status < 200 || out->status == 204 || out->status == 304) {
    out->framing = Framing::kNone;
  } else if (out->framing == Framing::kNone) {
    out->framing = Framing::kUntilClose;
  }
  return Rule::kNone;
}

}  // namespace torpor::router
