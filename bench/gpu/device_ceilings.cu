#include "bench/gpu/device_ceilings.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace divvy::bench {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(EXIT_FAILURE);
}

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasGetStatusString(status));
  std::exit(EXIT_FAILURE);
}

// Fills words with a bit pattern that is a number near 1 or -1, both as two bfloat16 and as one
// float32. Zeros would multiply faster than real data.
__global__ void FillWithNumbers(uint32_t* words, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  uint32_t hash = static_cast<uint32_t>(i) * 2654435761u;
  hash ^= hash >> 15;
  words[i] = (hash & 0x807f807fu) | 0x3f803f80u;
}

// Device memory that grows when needed and is never freed.
struct DeviceBuffer {
  void* data = nullptr;
  int64_t bytes = 0;

  void* AtLeast(int64_t wanted) {
    if (wanted <= bytes) return data;
    if (data != nullptr) Check(cudaFree(data), "cudaFree");
    Check(cudaMalloc(&data, static_cast<size_t>(wanted)), "cudaMalloc");
    bytes = wanted;
    const int64_t words = wanted / 4;
    FillWithNumbers<<<static_cast<unsigned>((words + 255) / 256), 256>>>(
        static_cast<uint32_t*>(data), words);
    return data;
  }
};

class CudaCeilings : public DeviceCeilings {
 public:
  CudaCeilings() {
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cublasCreate(&blas_), "cublasCreate");
    Check(cublasSetStream(blas_, stream_), "cublasSetStream");
  }

  std::string name() const override {
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return properties.name;
  }

  // Uses the mode of ops/cuda/cuda_math.cu: intermediate sums of narrow products are not rounded.
  void Multiply(Precision precision, const std::vector<Product>& products, int times) override {
    const int mode =
        precision == Precision::kTf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH;
    Check(cublasSetMathMode(blas_, static_cast<cublasMath_t>(
                                       mode | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
          "cublasSetMathMode");
    for (int i = 0; i < times; ++i) {
      for (const Product& product : products) MultiplyOnce(precision, product);
    }
    Synchronize();
  }

  void Synchronize() override { Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  // Tensors come from the device's default pool; the process has only one.
  std::optional<int64_t> TakePeakBytes() override {
    cudaMemPool_t pool;
    int has_pools = 0;
    Check(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, 0),
          "cudaDeviceGetAttribute");
    if (has_pools == 0) return std::nullopt;
    uint64_t bytes = 0, none = 0;
    Check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
    Check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &bytes),
          "cudaMemPoolGetAttribute");
    Check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &none),
          "cudaMemPoolSetAttribute");
    if (bytes == 0) return std::nullopt;  // DIVVY_GPU_PLAIN_MEMORY=1
    return static_cast<int64_t>(bytes);
  }

 private:
  // cuBLAS stores matrices by columns, so its c is the transpose of ours.
  void MultiplyOnce(Precision precision, const Product& p) {
    const bool narrow = precision == Precision::kBFloat16;
    const cudaDataType_t type = narrow ? CUDA_R_16BF : CUDA_R_32F;
    const int64_t size = narrow ? 2 : 4;
    const float one = 1, zero = 0;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    const void* const a = a_.AtLeast(p.m * p.k * size);
    const void* const b = b_.AtLeast(p.k * p.n * size);
    void* const c = c_.AtLeast(p.m * p.n * size);
    Check(cublasGemmEx(blas_, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                       p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, type,
                       p.b_transposed ? k : n, a, type, p.a_transposed ? m : k, &zero, c, type, n,
                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  DeviceBuffer a_, b_, c_;
};

}  // namespace

std::unique_ptr<DeviceCeilings> DeviceCeilings::Open(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  why = error != cudaSuccess ? cudaGetErrorString(error) : count == 0 ? "CUDA finds no device" : "";
  if (!why.empty()) return nullptr;
  return std::make_unique<CudaCeilings>();
}

}  // namespace divvy::bench
