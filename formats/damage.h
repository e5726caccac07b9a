// Errors of files that cannot be read.
#ifndef DIVVY_FORMATS_DAMAGE_H_
#define DIVVY_FORMATS_DAMAGE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace divvy {

// DATA_LOSS: the file is not what was written. The caller adds the file's name.
inline absl::Status Damage(absl::string_view what) { return absl::DataLossError(what); }
// The same of one tensor of the file.
inline absl::Status DamageOf(absl::string_view tensor, absl::string_view what) {
  return Damage(absl::StrCat("tensor \"", tensor, "\": ", what));
}

}  // namespace divvy

#endif  // DIVVY_FORMATS_DAMAGE_H_
