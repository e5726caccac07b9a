// The inverse of the normal distribution function.
#ifndef DIVVY_INITIALIZERS_NORMAL_H_
#define DIVVY_INITIALIZERS_NORMAL_H_

namespace divvy {

// The x for which a standard normal variable is below x with `probability`. REQUIRES: 0 <
// probability < 1. Relative error about 1e-15. Source: Wichura, "Algorithm AS 241: the percentage
// points of the normal distribution", Applied Statistics 37 (1988).
double NormalQuantile(double probability);

// The standard normal distribution function.
double NormalProbability(double x);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_NORMAL_H_
