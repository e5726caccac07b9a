// How much of copies to a device is hidden behind what the device computes meanwhile.
#ifndef DIVVY_BENCH_GPU_OVERLAP_H_
#define DIVVY_BENCH_GPU_OVERLAP_H_

namespace divvy::bench {

// The part of the shorter of two pieces of work that disappears behind the longer one. All three
// are times: of the copies alone, of the computation alone, and of both told at once. 0: one
// follows the other. 1: the shorter costs nothing. Below 0: both at once take longer than one after
// the other. REQUIRES: all above 0.
double HiddenPart(double copies, double computation, double both);

// How many computations of this length take about as long as a copy: the figure says most where
// both are equal. At least 1. REQUIRES: both above 0.
int ComputationsPerCopy(double copy, double computation);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_OVERLAP_H_
