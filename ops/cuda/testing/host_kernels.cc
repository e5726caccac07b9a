// The kernels, compiled for the host.
#include "ops/cuda/cast.cu"
#include "ops/cuda/convolution.cu"
#include "ops/cuda/duplicates.cu"
#include "ops/cuda/elementwise.cu"
#include "ops/cuda/movement.cu"
#include "ops/cuda/reduce.cu"
#include "ops/cuda/rows.cu"
