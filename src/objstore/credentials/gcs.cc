#include "model/reasons.h"
#include "objstore/credentials/credentials.h"
#include "objstore/credentials/key_file.h"
#include "objstore/credentials/service_account.h"
#include "objstore/credentials/token_endpoint.h"

namespace torpor::objstore {
namespace {

constexpr char kMetadataHost[] = "metadata.google.internal";
constexpr char kTokenPath[] = "/computeMetadata/v1/instance/service-accounts/default/token";

class GcsSource : public CredentialSource {
 public:
  GcsSource(CredentialSettings settings, Environment environment, HttpClient* http)
      : settings_(std::move(settings)), environment_(std::move(environment)), http_(http) {}

  StatusOr<Credentials> Fetch() override {
    if (!settings_.file.empty()) return FromFile(settings_.file);
    Credentials out;
    out.access_key = environment_("GOOGLE_STORAGE_ACCESS_KEY_ID");
    out.secret_key = environment_("GOOGLE_STORAGE_SECRET_ACCESS_KEY");
    if (!out.access_key.empty() && !out.secret_key.empty()) return out;
    const std::string file = environment_("GOOGLE_APPLICATION_CREDENTIALS");
    return file.empty() ? FromInstance() : FromFile(file);
  }

 private:
  // HMAC keys as boto has them, or the key of a service account.
  StatusOr<Credentials> FromFile(const std::string& path) {
    auto text = ReadFileOfKeys(path);
    if (text.status().code() == Code::kNotFound) {
      return Fail(reasons::kStoreDenied, fmt::format("the file of keys {} does not exist", path));
    }
    if (!text.ok()) return text.status();
    if (text->find_first_not_of(" \t\r\n") == text->find('{') && !text->empty()) {
      return ServiceAccountToken(http_, *text, path, Clock::Real()->WallNow());
    }
    KeyFile file = ParseKeyFile(*text);
    auto& section = file["Credentials"];
    Credentials out;
    out.access_key = section["gs_access_key_id"];
    out.secret_key = section["gs_secret_access_key"];
    if (!out.access_key.empty() && !out.secret_key.empty()) return out;
    return Fail(reasons::kStoreDenied,
                fmt::format("the file of keys {} is not the key of a service account and has no "
                            "gs_access_key_id and gs_secret_access_key in section [Credentials]",
                            path));
  }

  StatusOr<Credentials> FromInstance() {
    std::string host = environment_("GCE_METADATA_HOST");
    const bool usual = host.empty();
    if (usual) host = kMetadataHost;
    const WallTime asked = Clock::Real()->WallNow();
    auto text =
        AskMachine(http_, "GET", "http://" + host + kTokenPath, {{"metadata-flavor", "Google"}});
    if (!text.ok() && usual) {
      return Fail(reasons::kStoreDenied,
                  "there are no credentials for gs; set GOOGLE_APPLICATION_CREDENTIALS or "
                  "gcs-credentials-file to the file of a service account's key");
    }
    if (!text.ok()) return text.status();
    auto token = ParseTokenAnswer(*text, asked);
    if (token.ok()) return token;
    return Fail(reasons::kStoreDenied,
                "the metadata server of this machine handed out no token; give the machine a "
                "service account with the scope of Cloud Storage");
  }

  const CredentialSettings settings_;
  const Environment environment_;
  HttpClient* const http_;
};

}  // namespace

std::unique_ptr<CredentialSource> GcsCredentials(CredentialSettings settings,
                                                 Environment environment, HttpClient* http) {
  return std::make_unique<GcsSource>(std::move(settings), std::move(environment), http);
}

}  // namespace torpor::objstore
