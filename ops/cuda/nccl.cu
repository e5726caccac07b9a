#include "ops/cuda/nccl.h"

#include <dlfcn.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace divvy::cuda {
namespace {

constexpr int kSuccess = 0, kSum = 0;

// NCCL's number of a type; -1: NCCL does not have it, or sums it in another way than we do.
int TypeOf(Element element) {
  switch (element) {
    case Element::kFloat16: return 6;
    case Element::kFloat32: return 7;
    case Element::kFloat64: return 8;
    case Element::kBFloat16: return 9;
    default: return -1;
  }
}

#if __has_include(<nccl.h>)
static_assert(ncclSuccess == 0 && ncclSum == 0 && ncclFloat16 == 6 && ncclFloat32 == 7 &&
              ncclFloat64 == 8 && ncclBfloat16 == 9);
#endif

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<Nccl> Nccl::Load() {
  // The library stays loaded for as long as the process lives.
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  Interface nccl;
  if (library == nullptr || !Find(library, "ncclCommInitAll", nccl.init_all) ||
      !Find(library, "ncclAllReduce", nccl.all_reduce) ||
      !Find(library, "ncclGroupStart", nccl.group_start) ||
      !Find(library, "ncclGroupEnd", nccl.group_end) ||
      !Find(library, "ncclCommAbort", nccl.abort)) {
    return nullptr;
  }
  return std::unique_ptr<Nccl>(new Nccl(nccl));
}

std::vector<Nccl::Comm>& Nccl::CommsOf(const std::vector<int>& devices) {
  const auto found = comms_.find(devices);
  if (found != comms_.end()) return found->second;
  std::vector<Comm>& comms = comms_[devices];
  comms.resize(devices.size());
  if (nccl_.init_all(comms.data(), static_cast<int>(comms.size()), devices.data()) != kSuccess)
    comms.clear();
  // Otherwise this thread's next launch would report an error that NCCL has met.
  cudaGetLastError();
  return comms;
}

bool Nccl::CanAllReduce(const std::vector<int>& devices, Element element) {
  if (TypeOf(element) < 0) return false;
  MutexLock lock(mu_);
  return !CommsOf(devices).empty();
}

Nccl::Outcome Nccl::AllReduce(const std::vector<Rank>& ranks, Element element, int64_t n) {
  std::vector<int> devices;
  for (const Rank& rank : ranks) devices.push_back(rank.device);
  MutexLock lock(mu_);
  std::vector<Comm>& comms = CommsOf(devices);
  if (comms.empty() || nccl_.group_start() != kSuccess) return Outcome::kCannot;
  bool done = true;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Rank& rank = ranks[i];
    cudaSetDevice(rank.device);
    done = done && nccl_.all_reduce(rank.from, rank.to, static_cast<size_t>(n), TypeOf(element),
                                    kSum, comms[i], rank.stream) == kSuccess;
  }
  if (nccl_.group_end() == kSuccess && done) return Outcome::kQueued;
  // A device whose peers were not queued would wait for them forever.
  for (const Comm comm : comms) nccl_.abort(comm);
  comms.clear();
  cudaGetLastError();
  return Outcome::kBroken;
}

}  // namespace divvy::cuda
