// The edit distance between two words, for messages that suggest a similar name.
#ifndef DIVVY_BASE_EDIT_DISTANCE_H_
#define DIVVY_BASE_EDIT_DISTANCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace divvy {

// Levenshtein's distance in bytes. Pure. Takes time proportional to a.size() * b.size() and memory
// proportional to b.size(), so use it for names and not for long texts.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace divvy

#endif  // DIVVY_BASE_EDIT_DISTANCE_H_
