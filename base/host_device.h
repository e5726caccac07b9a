// Marks functions that run on the host and, when nvcc compiles them, also on a GPU. Such a function
// may call only functions that are marked too, and built-in operations.
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
