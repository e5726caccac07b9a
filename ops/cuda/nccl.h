// NCCL, where the machine has it. Loaded, not linked: a machine with one GPU need not have it.
#ifndef DIVVY_OPS_CUDA_NCCL_H_
#define DIVVY_OPS_CUDA_NCCL_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/array.h"

namespace divvy::cuda {

// Thread-safe.
class Nccl {
 public:
  // Null: there is no libnccl.so.2, or not one that has what is needed.
  static std::unique_ptr<Nccl> Load();

  // What a device brings and takes, and where it is queued.
  struct Rank {
    int device;  // CUDA's number
    cudaStream_t stream;
    const void* from;
    void* to;
  };
  enum class Outcome {
    kQueued,
    // Nothing was queued.
    kCannot,
    // Some of it was queued and will not be done: what the devices hold is worth nothing.
    kBroken,
  };
  // Whether these devices can, with these elements. What is true of devices is found out once: they
  // are made ready for each other, which waits for them.
  bool CanAllReduce(const std::vector<int>& devices, Element element);
  // The elementwise sum of all, to each. REQUIRES: CanAllReduce.
  Outcome AllReduce(const std::vector<Rank>& ranks, Element element, int64_t n);

 private:
  // NCCL's C interface, as its versions 2 have it.
  using Comm = void*;
  struct Interface {
    int (*init_all)(Comm* comms, int count, const int* devices);
    int (*all_reduce)(const void* from, void* to, size_t n, int type, int op, Comm comm,
                      cudaStream_t stream);
    int (*group_start)();
    int (*group_end)();
    int (*abort)(Comm comm);
  };
  explicit Nccl(const Interface& nccl) : nccl_(nccl) {}
  std::vector<Comm>& CommsOf(const std::vector<int>& devices) DIVVY_REQUIRES(mu_);

  const Interface nccl_;
  // calls of a group are one thread's
  Mutex mu_;
  // By devices; empty: they cannot.
  std::map<std::vector<int>, std::vector<Comm>> comms_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_NCCL_H_
