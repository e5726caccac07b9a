// NCCL, if the machine has it. It is loaded at run time and not linked, since a machine with one
// GPU need not have it.
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
  // Loads the library. Null: there is no libnccl.so.2, or it lacks a function that is needed.
  static std::unique_ptr<Nccl> Load();

  // The part of one device: its input, its output, and its stream.
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
    // Some of it was queued and will not complete: the contents of the outputs are unspecified.
    kBroken,
  };
  // Whether these devices can reduce these elements. The devices are checked once: the first call
  // connects them to each other and waits for them.
  bool CanAllReduce(const std::vector<int>& devices, Element element);
  // Writes the elementwise sum of all inputs to each output. REQUIRES: CanAllReduce.
  Outcome AllReduce(const std::vector<Rank>& ranks, Element element, int64_t n);

 private:
  // The C interface of NCCL 2.
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
  // All calls of a group must come from one thread.
  Mutex mu_;
  // By devices. Empty: these devices cannot reduce.
  std::map<std::vector<int>, std::vector<Comm>> comms_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_NCCL_H_
