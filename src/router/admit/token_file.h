#pragma once
// An authorizer with a file of bearer tokens, one per line:
//
//   # sha256 of the token                                            may reach
//   2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae demo  # alice
//   fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9 *
//
// A request carries `torpor-authorization: Bearer <token>`. Fields of that prefix never reach an
// actor, and the actor's own `Authorization` is not touched. Several lines may have one token.
//
// Only root or the router's user may be able to write the file. A new version is taken over when
// all of it is right; until then, and when the file is gone, the old one stays in force.

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "router/admit/authorizer.h"

namespace torpor::router {

inline constexpr std::string_view kAuthorizationField = "torpor-authorization";
inline constexpr size_t kTokenLinesMax = 4096;

struct TokenLine {
  std::array<unsigned char, 32> sha256;
  std::string atespace;  // Or "*".
};
// INVALID_ARGUMENT with the number of the line that is wrong, never with what it says.
StatusOr<std::vector<TokenLine>> ParseTokenLines(std::string_view text);

class TokenFile : public Authorizer {
 public:
  // INVALID_ARGUMENT when the file cannot be read, may be written by others or has a wrong line.
  static StatusOr<std::unique_ptr<TokenFile>> Open(std::string path);

  // Takes the same time for every token of one length.
  std::optional<Denial> Authorize(const RequestHead& head, const ActorKey& actor) override
      EXCLUDES(mu_);
  void Refresh() override EXCLUDES(mu_);

 private:
  using Lines = std::vector<TokenLine>;

  explicit TokenFile(std::string path) : path_(std::move(path)) {}
  // False: the file is what it was.
  StatusOr<bool> Load() EXCLUDES(mu_);

  const std::string path_;
  // Of the thread that refreshes.
  bool loaded_ = false;
  std::string text_;  // Compared whole: two changes can have the same time.
  std::string last_error_;

  Mutex mu_;
  std::shared_ptr<const Lines> lines_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
