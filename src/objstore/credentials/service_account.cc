#include "objstore/credentials/service_account.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <nlohmann/json.hpp>

#include "model/reasons.h"
#include "objstore/credentials/token_endpoint.h"

namespace torpor::objstore {
namespace {

constexpr char kScope[] = "https://www.googleapis.com/auth/devstorage.read_write";

std::string Base64Url(std::string_view bytes) {
  std::string out(4 * (bytes.size() / 3 + 1) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  while (!out.empty() && out.back() == '=') out.pop_back();
  for (char& c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return out;
}

Status BadKey(const std::string& path) {
  return Fail(reasons::kStoreDenied,
              fmt::format("{} is not the key of a service account; make one with gcloud iam "
                          "service-accounts keys create",
                          path));
}

// header.claims.signature
StatusOr<std::string> SignedClaim(const std::string& private_key_pem, const std::string& claims) {
  const std::string text = Base64Url(R"({"alg":"RS256","typ":"JWT"})") + "." + Base64Url(claims);
  std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(private_key_pem.data(), static_cast<int>(private_key_pem.size())), BIO_free);
  // The empty password: a key that wants one is refused instead of asked for on a terminal.
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")), EVP_PKEY_free);
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                  EVP_MD_CTX_free);
  std::string signature(1024, '\0');
  size_t size = signature.size();
  const bool signed_well =
      key != nullptr && EVP_PKEY_base_id(key.get()) == EVP_PKEY_RSA &&
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  if (!signed_well) return Fail(reasons::kFieldInvalid, "not a private RSA key");
  signature.resize(size);
  return text + "." + Base64Url(signature);
}

}  // namespace

StatusOr<Credentials> ParseTokenAnswer(std::string_view text, WallTime asked) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  Credentials out;
  if (json.is_object()) {
    auto token = json.find("access_token");
    if (token != json.end() && token->is_string()) out.bearer = token->get<std::string>();
    auto seconds = json.find("expires_in");
    if (seconds != json.end() && seconds->is_number_unsigned()) {
      out.expires = asked + std::chrono::seconds(seconds->get<uint32_t>());
    }
  }
  if (out.bearer.empty()) return Fail(reasons::kFieldInvalid, "no token in the answer");
  return out;
}

StatusOr<Credentials> ServiceAccountToken(HttpClient* http, std::string_view text,
                                          const std::string& path, WallTime now) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return BadKey(path);
  auto field = [&](const char* name) {
    auto it = json.find(name);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const std::string uri = field("token_uri");
  if (field("client_email").empty() || uri.rfind("http", 0) != 0) return BadKey(path);
  const int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  const nlohmann::json claims = {{"iss", field("client_email")},
                                 {"scope", kScope},
                                 {"aud", uri},
                                 {"iat", seconds},
                                 {"exp", seconds + 3600}};
  auto claim = SignedClaim(field("private_key"),
                           claims.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!claim.ok()) return BadKey(path);
  const std::string body =
      "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=" + *claim;
  HttpRequest request;
  request.method = "POST";
  request.url = uri;
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = body;
  ASSIGN_OR_RETURN(std::string answer, AskEndpoint(http, std::move(request)));
  auto token = ParseTokenAnswer(answer, now);
  if (token.ok()) return token;
  return Fail(reasons::kStoreDenied,
              fmt::format("there was no token for the service account of {}", path));
}

}  // namespace torpor::objstore
