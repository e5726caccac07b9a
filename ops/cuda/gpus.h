// The choice of GPUs on which this process computes. Nothing of CUDA is linked: the library that
// computes on GPUs is loaded at run time when GPUs are wanted, so one build runs on every machine.
#ifndef DIVVY_OPS_CUDA_GPUS_H_
#define DIVVY_OPS_CUDA_GPUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/cuda/device_math.h"
#include "tensor/tensor.h"

namespace divvy {

// The flag --gpus: "auto", "all", "none", or numbers as CUDA counts ("0,2").
struct GpuChoice {
  enum class Kind : uint8_t {
    kNone,    // computes on the CPU
    kAuto,    // all usable GPUs, or the CPU if there are none
    kAll,     // all GPUs, at least one
    kListed,  // the GPUs in `listed`
  };
  Kind kind = Kind::kNone;
  std::vector<int> listed = {};
};
// The functions that ABSL_FLAG needs for a flag of this type.
bool AbslParseFlag(absl::string_view text, GpuChoice* choice, std::string* error);
std::string AbslUnparseFlag(const GpuChoice& choice);

struct GpuOptions {
  GpuChoice choice;
  // The limit on each GPU's memory for the tensors of this process; 0: no limit.
  int64_t memory_bytes = 0;
  cuda::DeviceOptions math = {};
};

struct Gpus {
  // GPU:0, GPU:1, ... in the chosen order. Empty: the process computes on the CPU.
  std::vector<Device> devices;
  // "NVIDIA H200"
  std::vector<std::string> names;
  // With kAuto: the reason why none of the library's devices can be used. Empty in a build without
  // the library.
  std::string why_none;
};

// Loads the library for GPUs and puts the chosen GPUs into use by ops/ and tensor/, for the rest of
// the process. Thread-safe; blocks while CUDA starts. May be called again with the same options;
// kNone never changes anything.
//
// The library is the file that DIVVY_CUDA_LIBRARY names; otherwise libdivvy_cuda.so in the folder
// of libdivvy.so or of the executable; otherwise the one that the system's loader finds. In the
// first two cases the file and its folder must belong to root or to this user, and nobody else may
// have write access (base/trusted_file.h). With `auto` an unusable device is skipped, with a
// warning in the log.
//
// Environment variables: DIVVY_GPU_SYNC=1 sets `synchronous` of GpuBackend.
// DIVVY_GPU_PLAIN_MEMORY=1 returns freed memory to the driver at once instead of caching it.
//
// FailedPrecondition: GPUs are wanted, but there is no library, it cannot be loaded, has another
// version or finds no device; or the process already uses GPUs with other options. InvalidArgument:
// a listed device does not exist (the message names those that do), or a limit is below 0. Each
// message says what to do.
absl::StatusOr<Gpus> OpenGpus(const GpuOptions& options);

// Frees the GPU memory that this process has cached for later tensors. Thread-safe.
void TrimGpuMemory();

// The number of GPUs for each worker of a process. Workers share no GPU, and each gets the same
// number; only an embedded cluster has several workers in a process. 0: the workers compute on the
// CPU. With kAuto this is the case if there are more workers than GPUs, and GPUs that do not divide
// evenly stay unused. `replicas_per_worker` 0 means one replica for each GPU. Pure.
// InvalidArgument, with the fix: GPUs that were asked for cannot be divided evenly, or there is
// another number of replicas than of GPUs.
absl::StatusOr<int> GpusPerWorker(const GpuChoice& choice, int num_gpus, int num_workers,
                                  int replicas_per_worker);

// The devices of the replicas of each worker of a process: a GPU for each replica, or the CPU for
// all. The first worker has the first GPUs, and so on. Opens the GPUs and logs once what computes.
// `replicas_per_worker` 0 means as many as a worker has GPUs, or one on the CPU. Errors: those of
// OpenGpus and GpusPerWorker.
absl::StatusOr<std::vector<std::vector<Device>>> OpenReplicaDevices(const GpuOptions& options,
                                                                    int replicas_per_worker,
                                                                    int num_workers);

// A description of a device for people.
struct DeviceDescription {
  std::string device;              // "CPU:0", "GPU:0"
  std::string name;                // of a GPU: "NVIDIA H200"
  int64_t memory_limit_bytes = 0;  // of a GPU: GpuOptions::memory_bytes
  int64_t memory_bytes = 0;        // that tensors hold now; 0 without a limit
};
// Describes a device. Thread-safe; does not wait for the device. REQUIRES: the device is the CPU or
// one that OpenGpus has returned.
DeviceDescription Describe(Device device);

// The number of devices of each kind, in the form of ClusterResolver::num_accelerators: {{"GPU",
// 2}}. Empty if the CPU computes.
std::map<std::string, int> AcceleratorsAmong(const std::vector<Device>& devices);

namespace internal {

// The devices of the library at `path`. For "" the library is searched as OpenGpus does, with
// NotFound if there is none. FailedPrecondition: as OpenGpus.
absl::StatusOr<cuda::DeviceMath*> LoadDeviceMath(const std::string& path);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_OPS_CUDA_GPUS_H_
