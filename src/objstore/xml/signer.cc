#include "objstore/xml/signer.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/log.h"

namespace torpor::objstore {
namespace {

std::string Digest(const EVP_MD* md, std::string_view bytes) {
  std::string out(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size,
                   md, nullptr) == 1);
  out.resize(size);
  return out;
}

std::string Hmac(std::string_view key, std::string_view text) {
  std::string out(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr);
  out.resize(size);
  return out;
}

std::string Hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

// "20130524T000000Z"
std::string CompactTime(WallTime now) {
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace

std::string CanonicalQuery(Query query) {
  for (auto& [name, value] : query) {
    name = PercentEncode(name, false);
    value = PercentEncode(value, false);
  }
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) {
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", name, value);
  }
  return out;
}

void Authorize(const SignArgs& args, const Credentials& credentials, Headers* headers) {
  const Dialect& dialect = *args.dialect;
  const std::string prefix = dialect.header_prefix;
  if (!credentials.bearer.empty()) {
    headers->emplace_back("authorization", "Bearer " + credentials.bearer);
    return;
  }
  const std::string time = CompactTime(args.now);
  const std::string date = time.substr(0, 8);
  headers->emplace_back(prefix + "date", time);
  headers->emplace_back(prefix + "content-sha256", args.payload_hash);
  if (!credentials.session_token.empty()) {
    headers->emplace_back(prefix + "security-token", credentials.session_token);
  }
  std::map<std::string, std::string> fields(headers->begin(), headers->end());
  fields["host"] = std::string(args.host);
  std::string canonical = fmt::format("{}\n{}\n{}\n", args.method, args.path, args.query);
  std::string names;
  for (const auto& [name, value] : fields) {
    canonical += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  canonical += fmt::format("\n{}\n{}", names, args.payload_hash);

  const std::string scope =
      fmt::format("{}/{}/{}/{}", date, args.region, dialect.service, dialect.terminator);
  const std::string to_sign = fmt::format("{}\n{}\n{}\n{}", dialect.algorithm, time, scope,
                                          Hex(Digest(EVP_sha256(), canonical)));
  std::string key = dialect.key_prefix + credentials.secret_key;
  for (std::string_view step :
       {std::string_view(date), args.region, std::string_view(dialect.service),
        std::string_view(dialect.terminator)}) {
    key = Hmac(key, step);
  }
  headers->emplace_back(
      "authorization",
      fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", dialect.algorithm,
                  credentials.access_key, scope, names, Hex(Hmac(key, to_sign))));
}

std::string Md5Base64(std::string_view bytes) {
  const std::string digest = Digest(EVP_md5(), bytes);
  std::string out(64, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(digest.data()),
                                   static_cast<int>(digest.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

}  // namespace torpor::objstore
