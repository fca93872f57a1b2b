#include <nlohmann/json.hpp>

#include "model/reasons.h"
#include "objstore/credentials/credentials.h"
#include "objstore/credentials/key_file.h"
#include "objstore/credentials/token_endpoint.h"

namespace torpor::objstore {
namespace {

constexpr char kInstanceEndpoint[] = "http://169.254.169.254";
constexpr char kContainerEndpoint[] = "http://169.254.170.2";

// The answer of both endpoints. No part of it goes into a message.
StatusOr<Credentials> ParseAnswer(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  Credentials out;
  if (json.is_object()) {
    auto field = [&](const char* name) {
      auto it = json.find(name);
      return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    out.access_key = field("AccessKeyId");
    out.secret_key = field("SecretAccessKey");
    out.session_token = field("Token");
    out.expires = ParseRfc3339Seconds(field("Expiration"));
  }
  if (out.access_key.empty() || out.secret_key.empty()) {
    return Fail(reasons::kStoreDenied,
                "the endpoint of this machine handed out no keys; give its role the right to use "
                "the bucket");
  }
  return out;
}

class AwsSource : public CredentialSource {
 public:
  AwsSource(CredentialSettings settings, Environment environment, HttpClient* http)
      : settings_(std::move(settings)), environment_(std::move(environment)), http_(http) {}

  StatusOr<Credentials> Fetch() override {
    Credentials out;
    out.access_key = environment_("AWS_ACCESS_KEY_ID");
    out.secret_key = environment_("AWS_SECRET_ACCESS_KEY");
    out.session_token = environment_("AWS_SESSION_TOKEN");
    // A file that the settings name is meant more than the environment is.
    if (settings_.file.empty() && !out.access_key.empty() && !out.secret_key.empty()) return out;
    auto from_file = FromFile();
    if (from_file.status().code() != Code::kNotFound) return from_file;
    const std::string relative = environment_("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    if (!relative.empty()) return FromContainer(kContainerEndpoint + relative);
    const std::string full = environment_("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!full.empty()) return FromContainer(full);
    if (environment_("AWS_EC2_METADATA_DISABLED") == "true") return None();
    return FromInstance();
  }

 private:
  static Status None() {
    return Fail(reasons::kStoreDenied,
                "there are no credentials for s3; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or s3-credentials-file");
  }

  // NOT_FOUND when no file was named and there is none at the usual place.
  StatusOr<Credentials> FromFile() {
    std::string path = settings_.file;
    if (path.empty()) path = environment_("AWS_SHARED_CREDENTIALS_FILE");
    const bool named = !path.empty();
    if (!named) path = environment_("HOME") + "/.aws/credentials";
    std::string profile = settings_.profile;
    if (profile.empty()) profile = environment_("AWS_PROFILE");
    if (profile.empty()) profile = "default";
    auto text = ReadFileOfKeys(path);
    // The home of a system user is often out of reach.
    if (!text.ok() && !named) return Error(Code::kNotFound, "UNKNOWN", "no file of keys");
    if (text.status().code() == Code::kNotFound) {
      return Fail(reasons::kStoreDenied, fmt::format("the file of keys {} does not exist", path));
    }
    if (!text.ok()) return text.status();
    KeyFile file = ParseKeyFile(*text);
    auto& section = file[profile];
    Credentials out;
    out.access_key = section["aws_access_key_id"];
    out.secret_key = section["aws_secret_access_key"];
    out.session_token = section["aws_session_token"];
    if (!out.access_key.empty() && !out.secret_key.empty()) return out;
    return Fail(reasons::kStoreDenied,
                fmt::format("the file of keys {} has no aws_access_key_id and "
                            "aws_secret_access_key in section [{}]",
                            path, profile));
  }

  StatusOr<Credentials> FromContainer(const std::string& url) {
    std::string authorization = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const std::string file = environment_("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (!file.empty()) {
      ASSIGN_OR_RETURN(authorization, ReadTokenFile(file));
    }
    Headers headers;
    if (!authorization.empty()) headers.emplace_back("authorization", authorization);
    ASSIGN_OR_RETURN(std::string text, AskMachine(http_, "GET", url, std::move(headers)));
    return ParseAnswer(text);
  }

  StatusOr<Credentials> FromInstance() {
    std::string base = environment_("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    while (!base.empty() && base.back() == '/') base.pop_back();
    const bool usual = base.empty();
    if (usual) base = kInstanceEndpoint;
    auto token = AskMachine(http_, "PUT", base + "/latest/api/token",
                            {{"x-aws-ec2-metadata-token-ttl-seconds", "300"}});
    // Away from such machines nobody answers there.
    if (!token.ok()) return usual ? None() : token.status();
    const Headers headers = {{"x-aws-ec2-metadata-token", *token}};
    const std::string roles = base + "/latest/meta-data/iam/security-credentials/";
    ASSIGN_OR_RETURN(std::string role, AskMachine(http_, "GET", roles, headers));
    role.resize(std::min(role.find('\n'), role.size()));
    ASSIGN_OR_RETURN(std::string text,
                     AskMachine(http_, "GET", roles + PercentEncode(role, false), headers));
    return ParseAnswer(text);
  }

  const CredentialSettings settings_;
  const Environment environment_;
  HttpClient* const http_;
};

}  // namespace

std::unique_ptr<CredentialSource> AwsCredentials(CredentialSettings settings,
                                                 Environment environment, HttpClient* http) {
  return std::make_unique<AwsSource>(std::move(settings), std::move(environment), http);
}

}  // namespace torpor::objstore
