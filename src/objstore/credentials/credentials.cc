#include "objstore/credentials/credentials.h"

#include <cstdlib>

namespace torpor::objstore {
namespace {

constexpr Duration kBeforeExpiry = std::chrono::minutes(5);
constexpr Duration kRetryPause = std::chrono::seconds(10);
// Keys of a file or of the environment are read again now and then: they may have been replaced.
constexpr Duration kReread = std::chrono::minutes(1);

}  // namespace

std::string Hide(std::string text, const Credentials& credentials) {
  for (const std::string* secret :
       {&credentials.secret_key, &credentials.session_token, &credentials.bearer}) {
    if (secret->empty()) continue;
    for (size_t at = text.find(*secret); at != std::string::npos; at = text.find(*secret, at)) {
      text.replace(at, secret->size(), "[redacted]");
    }
  }
  return text;
}

std::string ReadEnvironment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<Credentials> CredentialCache::Get() {
  MutexLock lock(&mu_);
  const WallTime now = clock_->WallNow();
  if (current_.has_value() && now < next_fetch_) return *current_;
  auto fetched = source_->Fetch();
  if (fetched.ok()) {
    current_ = std::move(*fetched);
    next_fetch_ = now + kReread;
    if (current_->expires.has_value()) {
      next_fetch_ = std::max(now + kRetryPause, *current_->expires - kBeforeExpiry);
    }
    return *current_;
  }
  const bool still_good =
      current_.has_value() && (!current_->expires.has_value() || now < *current_->expires);
  if (!still_good) return fetched.status();
  next_fetch_ = now + kRetryPause;
  return *current_;
}

void CredentialCache::Refused(const Credentials& refused) {
  MutexLock lock(&mu_);
  if (!current_.has_value()) return;
  const bool same = current_->secret_key == refused.secret_key &&
                    current_->session_token == refused.session_token &&
                    current_->bearer == refused.bearer;
  if (same) current_.reset();
}

}  // namespace torpor::objstore
