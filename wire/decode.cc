#include "wire/decode.h"

#include <cmath>

#include "absl/strings/match.h"
#include "protocol/error.h"
#include "wire/text.h"

namespace divvy::wire {

absl::Status Invalid(absl::string_view field, absl::string_view why) {
  return MakeError(Reason::kInvalid, absl::StrCat(field, ": ", Escaped(why)));
}

absl::Status In(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  // Whether the refusal concerns the field itself, or an element of it.
  const bool is_own =
      absl::StartsWith(status.message(), ":") || absl::StartsWith(status.message(), "[");
  return MakeError(Reason::kInvalid, absl::StrCat(field, is_own ? "" : ".", status.message()));
}

absl::Status AsInvalid(const absl::Status& status) {
  return status.ok() ? status : Invalid("", status.message());
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, ", not in [", low, ", ", high, "]"));
}

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes)
    return Invalid(field, absl::StrCat("has ", name.size(), " bytes, not 1 to ", kMaxNameBytes));
  // Names appear in logs and on terminals, where control characters could change the text around
  // them.
  return Escaped(name) == name ? absl::OkStatus() : Invalid(field, "has control characters");
}

absl::Status CheckFinite(absl::string_view field, double value) {
  return std::isfinite(value) ? absl::OkStatus() : Invalid(field, "is not a finite number");
}

absl::Status CheckCount(absl::string_view field, size_t count, size_t most) {
  if (count <= most) return absl::OkStatus();
  return Invalid(field, absl::StrCat("has ", count, " elements, more than ", most));
}

}  // namespace divvy::wire
