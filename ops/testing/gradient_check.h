// CheckGradients: compares derivatives with finite differences, for tests of operations.
#ifndef DIVVY_OPS_TESTING_GRADIENT_CHECK_H_
#define DIVVY_OPS_TESTING_GRADIENT_CHECK_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "ops/gradient_tape.h"

namespace divvy {

// A function of leaves, such as an operation or a whole model. A result that is not a scalar is
// summed with a different weight for each element, so that symmetry hides no error.
using Differentiable = std::function<Var(GradientTape& tape, const std::vector<Var>& leaves)>;

// OK if, for every element of every leaf, the tape's gradient agrees with (f(x + h) - f(x - h)) /
// 2h to within 1e-6 (relative above 1). Otherwise Internal with the element and both numbers, or
// the error of `function`. `function` gets its leaves on `device`. REQUIRES: the leaves are float64
// and on the CPU, and `function` is smooth within h = 1e-5 of them.
absl::Status CheckGradients(const Differentiable& function, const std::vector<Tensor>& leaves,
                            Device device = {});

}  // namespace divvy

#endif  // DIVVY_OPS_TESTING_GRADIENT_CHECK_H_
