// Which GPUs this process computes on. Nothing of CUDA is linked: what computes there is a library
// that is loaded when GPUs are wanted, so that one build runs on every machine.
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
    kNone,    // the CPU computes
    kAuto,    // all there are, perhaps none
    kAll,     // all, at least one
    kListed,  // these
  };
  Kind kind = Kind::kNone;
  std::vector<int> listed = {};
};
// Found by ABSL_FLAG.
bool AbslParseFlag(absl::string_view text, GpuChoice* choice, std::string* error);
std::string AbslUnparseFlag(const GpuChoice& choice);

struct GpuOptions {
  GpuChoice choice;
  // Of each GPU for this process' tensors; 0: no limit.
  int64_t memory_bytes = 0;
  cuda::DeviceOptions math = {};
};

struct Gpus {
  // GPU:0, GPU:1, ... in the order chosen; empty: the CPU computes
  std::vector<Device> devices;
  // "NVIDIA H200"
  std::vector<std::string> names;
  // kAuto, where the library is there and none of its devices can be used. Empty in a build without
  // it
  std::string why_none;
};

// Loads the library of the machine's GPUs and takes those chosen into use by ops/ and tensor/, for
// as long as the process lives. The library is the file that DIVVY_CUDA_LIBRARY names, else
// libdivvy_cuda.so in the folder of libdivvy.so or of the executable, else where the system's
// loader finds it. The first two must be files, in folders, that belong to root or to this user and
// that nobody else may write (base/trusted_file.h). With `auto` a device that cannot be used is
// left out, with a warning in the log. DIVVY_GPU_SYNC=1 in the environment: GpuBackend's
// `synchronous`. DIVVY_GPU_PLAIN_MEMORY=1: freed memory goes back to the driver at once and is not
// kept. Thread-safe; blocks for as long as CUDA takes to start. To be asked again with the same
// options; kNone never changes anything. FailedPrecondition: there is no library, it cannot be
// loaded, is of another version or finds no device, though GPUs are asked for; or the process uses
// GPUs already, by other options. InvalidArgument: a listed device does not exist (names those that
// do), or a limit below 0. Each says what to do.
absl::StatusOr<Gpus> OpenGpus(const GpuOptions& options);

// Gives back to the GPUs in use what this process keeps of their memory for later tensors.
// Thread-safe.
void TrimGpuMemory();

// How many of `num_gpus` each of a process' workers has, which share none: several workers, which
// only an embedded cluster has, are dealt as many each. 0: the CPU computes. With kAuto that is so
// where there are more workers than GPUs, and what does not go round is left over.
// `replicas_per_worker`: 0 for whatever comes out. Pure. InvalidArgument, each with its fix: GPUs
// that were asked for cannot be dealt out evenly, or another number of replicas than of GPUs.
absl::StatusOr<int> GpusPerWorker(const GpuChoice& choice, int num_gpus, int num_workers,
                                  int replicas_per_worker);

// Where the replicas of each of a process' workers compute: each on a GPU of its own, or all on the
// CPU. The first worker has the first GPUs, and so on. Opens the GPUs, and says once in the log
// what computes. `replicas_per_worker`: 0 for as many as there are GPUs for a worker, or one.
// Errors: those of OpenGpus and of GpusPerWorker.
absl::StatusOr<std::vector<std::vector<Device>>> OpenReplicaDevices(const GpuOptions& options,
                                                                    int replicas_per_worker,
                                                                    int num_workers);

// A device for people to read about.
struct DeviceDescription {
  std::string device;              // "CPU:0", "GPU:0"
  std::string name;                // of a GPU: "NVIDIA H200"
  int64_t memory_limit_bytes = 0;  // of a GPU: GpuOptions::memory_bytes
  int64_t memory_bytes = 0;        // that tensors hold of it now, where there is a limit
};
// Thread-safe; does not wait for the device. REQUIRES: it is the CPU, or OpenGpus has given it.
DeviceDescription Describe(Device device);

// As ClusterResolver::num_accelerators has them: {{"GPU", 2}}; empty where the CPU computes.
std::map<std::string, int> AcceleratorsAmong(const std::vector<Device>& devices);

namespace internal {

// The devices of the library `path` ("": looked for as OpenGpus says, and NotFound if there is
// none). FailedPrecondition: as OpenGpus.
absl::StatusOr<cuda::DeviceMath*> LoadDeviceMath(const std::string& path);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_OPS_CUDA_GPUS_H_
