#include "ops/cuda/testing/host_math.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy::cuda {
namespace {

template <typename T>
void Multiply(const MatMulArgs& g, const T* a, const T* b, T* c, bool accumulate) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = accumulate ? c[i * g.n + j] : T(0);
      for (int64_t k = 0; k < g.k; ++k)
        sum += static_cast<double>(a[g.a_transposed ? k * g.m + i : i * g.k + k]) * static_cast<double>(b[g.b_transposed ? j * g.k + k : k * g.n + j]);
      c[i * g.n + j] = static_cast<T>(sum);
    }
  }
}

}  // namespace

HostMath::~HostMath() {
  for (HostDevice& device : devices_) {
    for (const auto& [data, bytes] : device.blocks) std::free(data);
  }
}

size_t HostMath::bytes_in_use(int device) const {
  size_t total = 0;
  for (const auto& [data, bytes] : devices_[device].blocks) total += bytes;
  return total;
}

void* HostMath::Allocate(int device, size_t bytes) {
  if (bytes_in_use(device) + bytes > free_bytes) return nullptr;
  void* const data = std::malloc(bytes);
  std::memset(data, 0xA5, bytes);  // what is not written is seen
  devices_[device].blocks.emplace(data, bytes);
  log.push_back(absl::StrCat(device, " allocate ", bytes));
  return data;
}

void HostMath::Free(int device, void* data) {
  const auto block = devices_[device].blocks.find(data);
  log.push_back(absl::StrCat(device, block == devices_[device].blocks.end() ? " free of what it has not" : " free"));
  if (block == devices_[device].blocks.end()) return;
  devices_[device].blocks.erase(block);
  std::free(data);
}

void HostMath::CopyIn(int device, void* to, const void* from, size_t bytes) {
  log.push_back(absl::StrCat(device, " in ", bytes));
  std::memcpy(to, from, bytes);
}

const char* HostMath::CopyOut(int device, void* to, const void* from, size_t bytes) {
  log.push_back(absl::StrCat(device, " out ", bytes));
  std::memcpy(to, from, bytes);
  return error;
}

const char* HostMath::Synchronize(int) { return error; }

Fault HostMath::TakeFault(int device) { return std::exchange(devices_[device].fault, Fault()); }

void HostMath::Zero(int device, void* data, size_t bytes) {
  Use(device);
  std::memset(data, 0, bytes);
}

void HostMath::MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b, const Array& c) {
  Gemm(device, args, c.element, a.data, b.data, c.data, /*accumulate=*/false);
}

Stream HostMath::Use(int device) {
  log.push_back(absl::StrCat(device, " kernels"));
  return nullptr;
}

void HostMath::Gemm(int device, const MatMulArgs& g, Element element, const void* a, const void* b, void* c, bool accumulate) {
  Use(device);
  WithFloating(element, [&](auto t) {
    using T = decltype(t);
    for (int64_t i = 0; i < g.batch; ++i) {
      Multiply(g, static_cast<const T*>(a) + i * g.m * g.k, static_cast<const T*>(b) + i * g.k * g.n, static_cast<T*>(c) + i * g.m * g.n, accumulate);
    }
  });
}

}  // namespace divvy::cuda
