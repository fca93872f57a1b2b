#include "objstore/xml/remote_stores.h"

#include "model/reasons.h"
#include "objstore/xml/xml_store.h"

namespace torpor::objstore {
namespace {

// What all buckets of one opener share.
struct Shared {
  Shared(std::unique_ptr<CredentialSource> source, std::shared_ptr<HttpClient> http_client)
      : http(std::move(http_client)), credentials(std::move(source), Clock::Real()) {}
  const std::shared_ptr<HttpClient> http;
  CredentialCache credentials;
};

Status CheckEndpoint(std::string_view name, std::string_view text) {
  for (std::string_view scheme : {"https://", "http://"}) {
    if (text.rfind(scheme, 0) != 0) continue;
    const std::string_view host = text.substr(scheme.size());
    const bool clean = std::all_of(host.begin(), host.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("-.:[]").find(c) != std::string_view::npos;
    });
    if (!host.empty() && clean) return OkStatus();
  }
  return Fail(reasons::kFieldInvalid,
              fmt::format("{} must be http:// or https:// and a host with its port, without user, "
                          "path or query",
                          name));
}

std::string FirstOf(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

StatusOr<BucketPlace> PlaceOfBucket(const Dialect& dialect, const RemoteOptions& options,
                                    const std::string& bucket, const Environment& environment) {
  BucketPlace place;
  const bool s3 = std::string_view(dialect.scheme) == kS3Dialect.scheme;
  if (!s3) {
    place.endpoint = FirstOf({options.gcs_endpoint, "https://storage.googleapis.com"});
    place.region = "auto";
    place.path_style = true;
    RETURN_IF_ERROR(CheckEndpoint("gcs-endpoint", place.endpoint));
    return place;
  }
  place.region = FirstOf({options.s3_region, environment("AWS_REGION"),
                          environment("AWS_DEFAULT_REGION"), "us-east-1"});
  const bool word = std::all_of(place.region.begin(), place.region.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!word) return Fail(reasons::kFieldInvalid, "s3-region must be a word like eu-central-1");
  place.endpoint =
      FirstOf({options.s3_endpoint, fmt::format("https://s3.{}.amazonaws.com", place.region)});
  RETURN_IF_ERROR(CheckEndpoint("s3-endpoint", place.endpoint));
  // Other servers rarely have a name for each bucket, and no certificate covers a bucket with dots.
  place.path_style = options.s3_addressing == "path" ||
                     (options.s3_addressing == "auto" &&
                      (!options.s3_endpoint.empty() || bucket.find('.') != std::string::npos));
  return place;
}

StatusOr<StoreRegistry::Opener> RemoteOpener(const Dialect& dialect, const RemoteOptions& options,
                                             std::vector<Uri> allowed,
                                             const Environment& environment) {
  const bool s3 = std::string_view(dialect.scheme) == kS3Dialect.scheme;
  auto http = std::make_shared<HttpClient>();
  auto source = s3 ? AwsCredentials({options.s3_credentials_file, options.s3_profile}, environment,
                                    http.get())
                   : GcsCredentials({options.gcs_credentials_file, ""}, environment, http.get());
  auto shared = std::make_shared<Shared>(std::move(source), http);
  std::map<std::string, std::shared_ptr<ObjectStore>> stores;
  for (const Uri& uri : allowed) {
    if (stores.count(uri.bucket) > 0) continue;
    ASSIGN_OR_RETURN(BucketPlace place, PlaceOfBucket(dialect, options, uri.bucket, environment));
    BucketOptions bucket;
    bucket.dialect = &dialect;
    bucket.bucket = uri.bucket;
    bucket.endpoint = place.endpoint;
    bucket.path_style = place.path_style;
    bucket.region = place.region;
    bucket.retry.give_up_after = options.give_up_after;
    stores[uri.bucket] = std::make_shared<XmlStore>(
        std::make_unique<XmlClient>(std::move(bucket), shared->http.get(), &shared->credentials,
                                    Clock::Real()),
        shared);
  }
  return StoreRegistry::Opener([allowed, stores](const Uri& uri) -> StatusOr<Place> {
    for (const Uri& outer : allowed) {
      if (IsAtOrBelow(uri, outer)) return Place{stores.at(uri.bucket), uri.path};
    }
    return Fail(reasons::kStoreDenied,
                fmt::format("{} is not in --allowed-storage; use an address that is, or allow it",
                            uri.ToString()));
  });
}

}  // namespace torpor::objstore
