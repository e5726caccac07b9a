// Derivatives compared with finite differences, for tests of operations.
#ifndef DIVVY_OPS_TESTING_GRADIENT_CHECK_H_
#define DIVVY_OPS_TESTING_GRADIENT_CHECK_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "ops/gradient_tape.h"

namespace divvy {

// A function of leaves: what an operation, or a whole model, makes of them. A result that is no
// scalar is summed, each element with a weight of its own, so that no error hides behind symmetry.
using Differentiable = std::function<Var(GradientTape& tape, const std::vector<Var>& leaves)>;

// OK if the tape's gradient of every element of every leaf agrees with (f(x + h) - f(x - h)) / 2h
// to within 1e-6 (relative above 1). Otherwise Internal, with the element and both numbers, or the
// error of `function`. `function` gets its leaves on `device`. REQUIRES: float64 leaves on the CPU,
// and no kink of `function` within h = 1e-5 of them.
absl::Status CheckGradients(const Differentiable& function, const std::vector<Tensor>& leaves,
                            Device device = {});

}  // namespace divvy

#endif  // DIVVY_OPS_TESTING_GRADIENT_CHECK_H_
