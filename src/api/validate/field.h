#pragma once
// A place in a request that is being checked: its path, and where its violations go.
//
//   Field root(&violations, "actor_template");
//   CheckLabel(root.At("metadata").At("name"), metadata.name(), Need::kSet);
//
// A Field is a value; the list must outlive it. The Check functions are the formats and bounds that
// many messages share; lengths are characters (Unicode code points), as in the public API.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"
#include "base/time.h"

namespace torpor::api {

struct Violation {
  std::string reason;  // FIELD_INVALID, UNKNOWN_FIELD, PRECONDITION_MISSING, FIDELITY_UNSUPPORTED
  FieldViolation field;
};

class Field {
 public:
  Field(std::vector<Violation>* violations, std::string path)
      : violations_(violations), path_(std::move(path)) {}

  Field At(std::string_view name) const;
  Field At(int index) const;

  void Fail(std::string_view description) const { FailWith("FIELD_INVALID", description); }
  void FailWith(std::string_view reason, std::string_view description) const;

 private:
  std::vector<Violation>* violations_;
  std::string path_;
};

enum class Need { kSet, kMaybe, kEmpty };
enum class Scope { kAtespaced, kGlobal };

size_t Characters(std::string_view text);

void CheckLabel(const Field& field, const std::string& value, Need need);
void CheckSubdomain(const Field& field, const std::string& value, Need need);
void CheckUuid(const Field& field, const std::string& value, Need need);
// At most `max` characters, no NUL.
void CheckText(const Field& field, const std::string& value, size_t max, Need need);
void CheckCount(const Field& field, int count, int min, int max);
void CheckRange(const Field& field, int64_t value, int64_t min, int64_t max);
// Normalised, and within [min, max]. `zero` also allows 0.
void CheckDuration(const Field& field, const google::protobuf::Duration& value, Duration min,
                   Duration max, bool zero);
// A quantity above 0 of at most 32 characters.
void CheckQuantity(const Field& field, const std::string& value);
// An OCI reference with a sha256 digest, of at most 512 characters.
void CheckImage(const Field& field, const std::string& value);

// These take the parent, so that a missing message is reported by its name.
void CheckRef(const Field& field, bool present, const ateapi::ObjectRef& ref, Scope scope);
void CheckMetadata(const Field& field, bool present, const ateapi::ResourceMetadata& metadata,
                   Scope scope, bool update);
void CheckSelector(const Field& field, bool present, const ateapi::Selector& selector);
void CheckDeleteOptions(const Field& field, const ateapi::DeleteOptions& options);
void CheckPage(const Field& root, int32_t page_size, const std::string& page_token);

}  // namespace torpor::api
