// The initial values of a dynamic table's rows.
#ifndef DIVVY_INITIALIZERS_KEY_ROW_H_
#define DIVVY_INITIALIZERS_KEY_ROW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "initializers/initializer.h"

namespace divvy {

// Whether any key can have a row by this initializer: Constant, RandomUniform, RandomNormal and
// TruncatedNormal. The others depend on the number of rows, which a table does not have.
bool EvaluatedPerKey(const Initializer& initializer);

// Fills `out` with the row of `key`. For a key that is a row's number, it has the bits that
// FillRows gives for that row of a variable as wide. Thread-safe and pure; does not fail. REQUIRES:
// EvaluatedPerKey, and Validate is OK for float32.
void FillKeyRow(const Initializer& initializer, const InitializerContext& context, int64_t key,
                absl::Span<float> out);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_KEY_ROW_H_
