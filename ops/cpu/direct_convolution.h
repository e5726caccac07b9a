// Convolutions of images with few channels. The matrix of windows of convolution.cc costs more
// there than the products: each of its elements is used for one multiply-add per output channel
// only.
#ifndef DIVVY_OPS_CPU_DIRECT_CONVOLUTION_H_
#define DIVVY_OPS_CPU_DIRECT_CONVOLUTION_H_

#include <cstdint>

#include "ops/math.h"

namespace divvy::internal {

// Whether DirectConv2D, or DirectConv2DKernelGradient, is to be used: the processor has AVX2 and
// FMA, and by measurements with images of 4 to 28 columns and 1 to 70 outputs it is faster than a
// matrix of windows.
bool IsDirect(const Window2D& window, int64_t outputs);
bool IsGradientDirect(const Window2D& window, int64_t outputs);

// The functions compute with fused multiply-adds, so the bits depend on the processor, as those of
// OpenBLAS do. They do not depend on the number of threads. Block; thread-safe.

// y[batch, out_height, out_width, outputs] = the convolution of x with
// kernel[height, width, channels, outputs]. REQUIRES: IsDirect.
void DirectConv2D(const Window2D& window, int64_t outputs, const float* x, const float* kernel,
                  float* y);

// The derivative by the kernel, where `gradient` is the one by y.
// REQUIRES: IsGradientDirect.
void DirectConv2DKernelGradient(const Window2D& window, int64_t outputs, const float* x,
                                const float* gradient, float* dkernel);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_DIRECT_CONVOLUTION_H_
