#include "bench/gpu/overlap.h"

#include <algorithm>
#include <cmath>

namespace divvy::bench {

double HiddenPart(double copies, double computation, double both) {
  return (copies + computation - both) / std::min(copies, computation);
}

int ComputationsPerCopy(double copy, double computation) {
  return std::max(1, static_cast<int>(std::lround(copy / computation)));
}

}  // namespace divvy::bench
