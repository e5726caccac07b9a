// Marks functions that run on the host and, where nvcc compiles them, on a GPU too. What they call
// must be marked so as well, or be of the language itself.
//
//   DIVVY_HOST_DEVICE inline float Square(float x) { return x * x; }
#ifndef DIVVY_BASE_HOST_DEVICE_H_
#define DIVVY_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define DIVVY_HOST_DEVICE __host__ __device__
#else
#define DIVVY_HOST_DEVICE
#endif

#endif  // DIVVY_BASE_HOST_DEVICE_H_
