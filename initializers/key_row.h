// The initial values of a dynamic table's rows.
#ifndef DIVVY_INITIALIZERS_KEY_ROW_H_
#define DIVVY_INITIALIZERS_KEY_ROW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "initializers/initializer.h"

namespace divvy {

// Whether any key can have a row by this initializer: Constant, RandomUniform, RandomNormal and
// TruncatedNormal. The others depend on the variable's shape, or come from the program.
bool EvaluatedPerKey(const Initializer& initializer);

// Fills `out` with the row of `key`. For a key of at least 0, the bits equal those of FillRows for
// that row, in a variable of the same name and width. Thread-safe and pure; does not fail.
// REQUIRES: EvaluatedPerKey, and Validate is OK for float32.
void FillKeyRow(const Initializer& initializer, const InitializerContext& context, int64_t key,
                absl::Span<float> out);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_KEY_ROW_H_
