// The inverse of the normal distribution function.
#ifndef DIVVY_INITIALIZERS_NORMAL_H_
#define DIVVY_INITIALIZERS_NORMAL_H_

namespace divvy {

// The quantile function of the standard normal distribution: the x with P(X < x) = `probability`.
// REQUIRES: 0 < probability < 1. Relative error about 1e-15. Pure. Source: Wichura, "Algorithm AS
// 241: the percentage points of the normal distribution", Applied Statistics 37 (1988).
double NormalQuantile(double probability);

// The distribution function of the standard normal distribution: P(X < x). Pure.
double NormalProbability(double x);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_NORMAL_H_
