// The part of copies to a device that overlaps with the device's computation.
#ifndef DIVVY_BENCH_GPU_OVERLAP_H_
#define DIVVY_BENCH_GPU_OVERLAP_H_

namespace divvy::bench {

// The part of the shorter of two pieces of work that is hidden behind the longer one. The arguments
// are times: of the copies alone, of the computation alone, and of both started at once. 0: one
// follows the other. 1: the shorter costs nothing. Below 0: both at once take longer than one after
// the other. REQUIRES: all are above 0.
double HiddenPart(double copies, double computation, double both);

// The number of computations that take about as long as a copy, at least 1. HiddenPart is most
// meaningful if both times are equal. REQUIRES: both are above 0.
int ComputationsPerCopy(double copy, double computation);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_OVERLAP_H_
