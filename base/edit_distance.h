// How far apart two words are: what near names in messages go by.
#ifndef DIVVY_BASE_EDIT_DISTANCE_H_
#define DIVVY_BASE_EDIT_DISTANCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace divvy {

// Levenshtein's distance, in bytes. Takes time and memory as a.size() * b.size() and b.size(): for
// names, not for texts.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace divvy

#endif  // DIVVY_BASE_EDIT_DISTANCE_H_
