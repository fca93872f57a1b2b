#include "apps/store_settings.h"

namespace torpor {

void DeclareRemoteStores(Options* o, objstore::RemoteOptions* remote) {
  o->String("s3-endpoint", &remote->s3_endpoint,
            "where s3:// buckets are, http(s)://HOST[:PORT] (default Amazon's of the region)");
  o->String("s3-region", &remote->s3_region,
            "region of s3:// buckets (default AWS_REGION, else us-east-1)");
  o->Choice("s3-addressing", &remote->s3_addressing, {"auto", "path", "virtual"},
            "where the bucket's name stands in a request: path, or virtual for the host; auto is "
            "path with s3-endpoint");
  o->String("s3-credentials-file", &remote->s3_credentials_file,
            "file of AWS keys that the users torpor and torpor-mover can read (default: the "
            "environment, the usual places)");
  o->String("s3-profile", &remote->s3_profile,
            "section of the file of AWS keys (default AWS_PROFILE, else default)");
  o->String(
      "gcs-endpoint", &remote->gcs_endpoint,
      "where gs:// buckets are, http(s)://HOST[:PORT] (default https://storage.googleapis.com)");
  o->String("gcs-credentials-file", &remote->gcs_credentials_file,
            "file of a service account's key, or of HMAC keys as boto has them (default: the "
            "environment, the usual places)");
}

std::vector<std::pair<std::string, std::string>> RemoteStoreFlags(
    const objstore::RemoteOptions& remote) {
  const objstore::RemoteOptions defaults;
  std::vector<std::pair<std::string, std::string>> out;
  auto add = [&](const char* name, const std::string& value, const std::string& usual) {
    if (value != usual) out.emplace_back(name, value);
  };
  add("s3-endpoint", remote.s3_endpoint, defaults.s3_endpoint);
  add("s3-region", remote.s3_region, defaults.s3_region);
  add("s3-addressing", remote.s3_addressing, defaults.s3_addressing);
  add("s3-credentials-file", remote.s3_credentials_file, defaults.s3_credentials_file);
  add("s3-profile", remote.s3_profile, defaults.s3_profile);
  add("gcs-endpoint", remote.gcs_endpoint, defaults.gcs_endpoint);
  add("gcs-credentials-file", remote.gcs_credentials_file, defaults.gcs_credentials_file);
  return out;
}

bool IsStoreVariable(std::string_view entry) {
  for (std::string_view prefix : {"AWS_", "GOOGLE_"}) {
    if (entry.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

}  // namespace torpor
