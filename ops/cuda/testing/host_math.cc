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

HostMath::HostMath(int num_devices) {
  for (int i = 0; i < num_devices; ++i) {
    devices_.push_back(std::make_unique<HostDevice>());
    devices_.back()->name = absl::StrCat("host device ", i);
  }
}

HostMath::~HostMath() {
  for (const auto& device : devices_) {
    MutexLock lock(device->mu);
    for (const auto& [data, bytes] : device->blocks) std::free(data);
  }
}

void HostMath::Log(int device, const std::string& what) {
  if (!keep_log) return;
  MutexLock lock(log_mu_);
  log.push_back(absl::StrCat(device, " ", what));
}

const char* HostMath::Choose(const int* devices, int count) {
  std::vector<std::unique_ptr<HostDevice>> chosen;
  for (int i = 0; i < count; ++i) chosen.push_back(std::move(devices_[devices[i]]));
  devices_ = std::move(chosen);
  return error;
}

size_t HostMath::bytes_in_use(int device) const {
  MutexLock lock(devices_[device]->mu);
  size_t total = 0;
  for (const auto& [data, bytes] : devices_[device]->blocks) total += bytes;
  return total;
}

void* HostMath::Allocate(int device, size_t bytes) {
  if (bytes_in_use(device) + bytes > free_bytes) return nullptr;
  void* const data = std::malloc(bytes);
  std::memset(data, 0xA5, bytes);  // what is not written is seen
  MutexLock lock(devices_[device]->mu);
  devices_[device]->blocks.emplace(data, bytes);
  Log(device, absl::StrCat("allocate ", bytes));
  return data;
}

void HostMath::Free(int device, void* data) {
  MutexLock lock(devices_[device]->mu);
  const bool known = devices_[device]->blocks.erase(data) > 0;
  Log(device, known ? "free" : "free of what it has not");
  if (known) std::free(data);
}

void HostMath::CopyIn(int device, void* to, const void* from, size_t bytes) {
  Log(device, absl::StrCat("in ", bytes));
  std::memcpy(to, from, bytes);
}

const char* HostMath::CopyOut(int device, void* to, const void* from, size_t bytes) {
  Log(device, absl::StrCat("out ", bytes));
  std::memcpy(to, from, bytes);
  return error;
}

const char* HostMath::Synchronize(int) { return error; }

Fault HostMath::TakeFault(int device) { return std::exchange(devices_[device]->fault, Fault()); }

void HostMath::Zero(int device, void* data, size_t bytes) {
  Use(device);
  std::memset(data, 0, bytes);
}

void HostMath::MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b, const Array& c) {
  Gemm(device, args, c.element, a.data, b.data, c.data, /*accumulate=*/false);
}

Stream HostMath::Use(int device) {
  Log(device, "kernels");
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
