// The devices that CUDA finds, and the library's only exported function.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/kernel_math.h"
#include "ops/cuda/lost_devices.h"
#include "ops/cuda/nccl.h"

namespace divvy::cuda {
namespace {

// The workspace that cuBLAS allocates by default on the largest devices.
constexpr size_t kWorkspaceBytes = 32 << 20;

cublasOperation_t Flag(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// Events are created once and reused. There is a pool for each device, because CUDA requires an
// event and the stream that records it to be of one device.
class EventPool {
 public:
  cudaEvent_t Take() {
    cudaEvent_t event = nullptr;
    MutexLock lock(mu_);
    if (free_.empty()) {
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    } else {
      event = free_.back();
      free_.pop_back();
    }
    return event;
  }
  void Return(cudaEvent_t event) {
    MutexLock lock(mu_);
    free_.push_back(event);
  }

 private:
  Mutex mu_;
  std::vector<cudaEvent_t> free_ DIVVY_GUARDED_BY(mu_);
};

struct CudaEvent {
  cudaEvent_t event;
  int device;
};

// One stream for each queue and one handle of cuBLAS. A device computes in the order of the calls.
struct CudaDevice {
  // CUDA's number of the device.
  int index = 0;
  // A device that cannot be used keeps its number, but cannot be chosen.
  cudaError_t properties_read = cudaSuccess;
  cudaStream_t streams[kNumQueues] = {};
  cudaStream_t stream = nullptr;  // that of kCompute
  Mutex blas_mu;                  // cuBLAS's handles are for one thread at a time
  cublasHandle_t blas = nullptr;
  // The workspace of cuBLAS, if it must always be the same.
  void* workspace = nullptr;
  // Whether memory comes from a pool, in the order of a queue. Otherwise it comes from cudaMalloc,
  // which waits for the device.
  bool is_pooled = false;
  Fault* fault = nullptr;
  std::string name;
  EventPool events;
  FirstError error;
  LastingError lost;

  explicit CudaDevice(int number) : index(number) {
    cudaDeviceProp properties;
    properties_read = cudaGetDeviceProperties(&properties, index);
    name = properties_read == cudaSuccess ? properties.name : cudaGetErrorString(properties_read);
  }
  // Opening a device takes a part of its memory, so only devices that compute are opened. May be
  // called again after a failure; it then reuses what exists.
  cudaError_t Open() {
    if (fault != nullptr || properties_read != cudaSuccess) return properties_read;
    if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return error;
    for (cudaStream_t& queue : streams) {
      if (queue != nullptr) continue;
      if (const cudaError_t error = cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
          error != cudaSuccess)
        return error;
    }
    stream = streams[static_cast<int>(Queue::kCompute)];
    if (blas == nullptr && cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS)
      return cudaErrorInitializationError;
    if (cublasSetStream(blas, stream) != CUBLAS_STATUS_SUCCESS) return cudaErrorInitializationError;
    // Partial sums of narrow types stay float32 where k is cut.
    cublasSetMathMode(blas,
                      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    if (const cudaError_t error = OpenPool(); error != cudaSuccess) return error;
    Fault* zeroed = nullptr;
    if (const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&zeroed), sizeof(Fault));
        error != cudaSuccess)
      return error;
    if (const cudaError_t error = cudaMemsetAsync(zeroed, 0, sizeof(Fault), stream);
        error != cudaSuccess)
      return error;
    fault = zeroed;
    return cudaSuccess;
  }
  // Some virtual machines and sandboxes have no pools. DIVVY_GPU_PLAIN_MEMORY=1 disables pools, and
  // gpus.cc then caches no memory either, so that compute-sanitizer detects accesses beyond the end
  // of a block.
  cudaError_t OpenPool() {
    const char* const plain = std::getenv("DIVVY_GPU_PLAIN_MEMORY");
    int has_pools = 0;
    if (const cudaError_t error =
            cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, index);
        error != cudaSuccess)
      return error;
    is_pooled = has_pools != 0 && (plain == nullptr || std::strcmp(plain, "1") != 0);
    if (!is_pooled) return cudaSuccess;
    // Freed memory stays with the process. Otherwise each wait would return it to the driver, and
    // the next step would allocate it again.
    cudaMemPool_t pool;
    uint64_t kept_bytes = UINT64_MAX;
    if (const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, index); error != cudaSuccess)
      return error;
    return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes);
  }

  void Note(cudaError_t result) {
    if (result == cudaSuccess || result == cudaErrorNotReady) return;
    error.Note(cudaGetErrorString(result));
    if (LosesDevice(result)) return lost.Set(cudaGetErrorString(result));
    if (result != cudaErrorMemoryAllocation) LookIfLost();
  }
  void Note(cublasStatus_t result) {
    if (result == CUBLAS_STATUS_SUCCESS) return;
    error.Note(result == CUBLAS_STATUS_ALLOC_FAILED ? kOutOfMemory : cublasGetStatusString(result));
    if (result != CUBLAS_STATUS_ALLOC_FAILED) LookIfLost();
  }
  // Notes whether the device is lost. After a sticky error every later call fails; this call has no
  // other reason to fail.
  void LookIfLost() {
    cudaGetLastError();
    const cudaError_t still = stream == nullptr ? cudaSuccess : cudaStreamQuery(stream);
    if (still != cudaSuccess && still != cudaErrorNotReady) lost.Set(cudaGetErrorString(still));
    cudaGetLastError();
  }
  // Memory that is allocated here is then copied to the other device without going through the
  // host, if the machine can do so.
  void LetRead(const CudaDevice& other) {
    int can = 0;
    cudaMemPool_t pool;
    if (is_pooled && cudaDeviceCanAccessPeer(&can, other.index, index) == cudaSuccess && can != 0 &&
        cudaDeviceGetDefaultMemPool(&pool, index) == cudaSuccess) {
      cudaMemAccessDesc access = {};
      access.location.type = cudaMemLocationTypeDevice;
      access.location.id = other.index;
      access.flags = cudaMemAccessFlagsProtReadWrite;
      cudaMemPoolSetAccess(pool, &access, 1);
    }
    cudaGetLastError();  // without peer access, copies go through the host
  }
};

class CudaMath : public KernelMath {
 public:
  // Null, with the reason: there is no device that CUDA can use.
  static std::unique_ptr<CudaMath> Open(std::string& why) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    why = error != cudaSuccess ? cudaGetErrorString(error)
          : count == 0         ? "CUDA finds no device"
                               : "";
    if (!why.empty()) return nullptr;
    auto math = std::make_unique<CudaMath>();
    for (int i = 0; i < count; ++i) math->devices_.push_back(std::make_unique<CudaDevice>(i));
    return math;
  }

  // With a workspace of its own, a handle always chooses the same algorithm and adds in the same
  // order.
  void Configure(const DeviceOptions& options) override {
    KernelMath::Configure(options);
    for (int device = 0; options.deterministic && device < num_devices(); ++device) {
      Use(device);
      CudaDevice& it = *devices_[device];
      MutexLock lock(it.blas_mu);
      if (it.workspace == nullptr) it.Note(cudaMalloc(&it.workspace, kWorkspaceBytes));
      it.Note(cublasSetAtomicsMode(it.blas, CUBLAS_ATOMICS_NOT_ALLOWED));
      it.Note(cublasSetWorkspace(it.blas, it.workspace, kWorkspaceBytes));
    }
  }

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  const char* name(int device) const override { return devices_[device]->name.c_str(); }
  const char* Probe(int device) override {
    const cudaError_t error = devices_[device]->Open();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }
  const char* Choose(const int* devices, int count) override {
    for (int i = 0; i < count; ++i) {
      if (const char* const wrong = Probe(devices[i]); wrong != nullptr) return wrong;
    }
    std::vector<std::unique_ptr<CudaDevice>> chosen;
    for (int i = 0; i < count; ++i) chosen.push_back(std::move(devices_[devices[i]]));
    devices_ = std::move(chosen);
    for (const auto& device : devices_) {
      for (const auto& other : devices_) {
        if (other != device) device->LetRead(*other);
      }
    }
    return nullptr;
  }
  void* Allocate(int device, size_t bytes) override {
    return AllocateFor(device, Queue::kCompute, bytes);
  }
  void Free(int device, void* data) override {
    const Stream stream = Use(device);
    if (devices_[device]->is_pooled) return Note(device, cudaFreeAsync(data, stream.queue));
    MutexLock lock(together_);  // it waits for the device
    Note(device, cudaFree(data));
  }
  // Waits, because it is unknown whether CUDA copies from this memory asynchronously.
  void CopyIn(int device, void* to, const void* from, size_t bytes) override {
    const cudaStream_t stream = Use(device).queue;
    Note(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    Note(device, cudaStreamSynchronize(stream));
  }
  const char* CopyOut(int device, void* to, const void* from, size_t bytes) override {
    Note(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, Use(device).queue));
    return Synchronize(device);
  }
  const char* Synchronize(int device) override {
    Note(device, cudaStreamSynchronize(Use(device).queue));
    return devices_[device]->error.Take();
  }
  // The device itself moves the fault, so a fault found meanwhile is neither lost nor torn.
  Fault TakeFault(int device) override {
    auto* const moved = static_cast<Fault*>(Allocate(device, sizeof(Fault)));
    Fault taken;
    if (moved == nullptr) return taken;
    Zero(device, moved, sizeof(Fault));  // the host copies its padding too
    Fault* const from = fault(device);
    ForEach(Use(device), 1, [=] DIVVY_BODY(int64_t) {
      *moved = *from;
      *from = Fault();
    });
    if (const char* const error = CopyOut(device, &taken, moved, sizeof(taken)); error != nullptr)
      Note(device, error);
    Free(device, moved);
    return taken;
  }
  void* AllocateFor(int device, Queue queue, size_t bytes) override {
    void* data = nullptr;
    const cudaStream_t stream = StreamOf(device, queue);
    const cudaError_t error = devices_[device]->is_pooled ? cudaMallocAsync(&data, bytes, stream)
                                                          : AllocatePlain(&data, bytes);
    if (error == cudaSuccess) return data;
    // Otherwise the next launch of this thread would report it.
    cudaGetLastError();
    if (error != cudaErrorMemoryAllocation) Note(device, error);
    return nullptr;
  }
  void Copy(int device, Queue queue, void* to, const void* from, size_t bytes) override {
    Note(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(device, queue)));
  }
  void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                  size_t bytes) override {
    Note(device, cudaMemcpyPeerAsync(to, CudaIndex(device), from, CudaIndex(from_device), bytes,
                                     StreamOf(device, queue)));
  }
  const Fault* fault_on(int device) const override { return devices_[device]->fault; }
  Event Record(int device, Queue queue) override {
    const cudaStream_t stream = StreamOf(device, queue);
    const cudaEvent_t event = devices_[device]->events.Take();
    Note(device, cudaEventRecord(event, stream));
    return new CudaEvent{event, device};
  }
  void Wait(int device, Queue queue, Event event) override {
    Note(device,
         cudaStreamWaitEvent(StreamOf(device, queue), static_cast<CudaEvent*>(event)->event, 0));
  }
  bool HasCompleted(Event event) override {
    const CudaEvent& it = *static_cast<CudaEvent*>(event);
    Use(it.device);
    const cudaError_t come = cudaEventQuery(it.event);
    // Some versions of CUDA keep this code as the thread's last error.
    if (come == cudaErrorNotReady) cudaGetLastError();
    Note(it.device, come);
    return come != cudaErrorNotReady;
  }
  const char* Await(int device, Event event) override {
    Use(device);
    Note(device, cudaEventSynchronize(static_cast<CudaEvent*>(event)->event));
    return devices_[device]->error.Take();
  }
  void Release(Event event) override {
    const std::unique_ptr<CudaEvent> it(static_cast<CudaEvent*>(event));
    devices_[it->device]->events.Return(it->event);
  }
  void* AllocatePinned(size_t bytes) override {
    void* data = nullptr;
    Use(0);
    MutexLock lock(together_);
    if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return data;
    cudaGetLastError();  // the returned null reports the failure
    return nullptr;
  }
  void FreePinned(void* data) override {
    // A thread without a current device would otherwise create a context on CUDA's first device.
    Use(0);
    MutexLock lock(together_);
    Note(0, cudaFreeHost(data));
  }
  bool CanAllReduce(const int* devices, int count, Element element) override {
    if (NcclIfAny() == nullptr || options().deterministic) return false;
    std::vector<int> chosen;
    for (int i = 0; i < count; ++i) chosen.push_back(CudaIndex(devices[i]));
    MutexLock lock(together_);
    return NcclIfAny()->CanAllReduce(chosen, element);
  }
  bool AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                 Element element, int64_t n) override {
    std::vector<Nccl::Rank> ranks;
    for (int i = 0; i < count; ++i)
      ranks.push_back({CudaIndex(devices[i]), devices_[devices[i]]->stream, from[i], to[i]});
    MutexLock lock(together_);
    const Nccl::Outcome outcome = NcclIfAny()->AllReduce(ranks, element, n);
    for (int i = 0; i < count && outcome == Nccl::Outcome::kBroken; ++i)
      Note(devices[i], "NCCL has failed in the middle of a collective");
    return outcome != Nccl::Outcome::kCannot;
  }
  void BeginRange(const char* name) override { nvtxRangePushA(name); }
  void EndRange() override { nvtxRangePop(); }
  void Note(int device, const char* error) override { devices_[device]->error.Note(error); }
  const char* TakeError(int device) override { return devices_[device]->error.Take(); }
  const char* lost(int device) const override { return devices_[device]->lost.text(); }
  void Zero(int device, void* data, size_t bytes) override {
    Note(device, cudaMemsetAsync(data, 0, bytes, Use(device).queue));
  }
  void MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b,
              const Array& c) override {
    Gemm(device, args, c.element, a.data, b.data, c.data);
  }

 protected:
  Stream Use(int device) override {
    CudaDevice& it = *devices_[device];
    it.Note(cudaSetDevice(it.index));
    return {it.stream, &it.error};
  }
  Fault* fault(int device) override { return devices_[device]->fault; }

  // cuBLAS's matrices are column-major: its c is our c transposed, b^T a^T.
  void Gemm(int device, const MatMulArgs& g, Element element, const void* a, const void* b,
            void* c) override {
    if (g.m == 0 || g.n == 0 || g.batch == 0) return;
    if (g.k == 0)
      return Zero(device, c, static_cast<size_t>(g.batch * g.m * g.n * SizeOf(element)));
    Use(device);
    CudaDevice& it = *devices_[device];
    MutexLock lock(it.blas_mu);
    it.Note(Product(it.blas, g, NumbersOf(element), a, b, c));
  }

 private:
  cudaError_t AllocatePlain(void** data, size_t bytes) {
    MutexLock lock(together_);  // it may wait for the device
    return cudaMalloc(data, bytes);
  }
  static Nccl* NcclIfAny() {
    static Nccl* const nccl = Nccl::Load().release();
    return nccl;
  }
  // Returns the queue's stream, and makes its device current for the calling thread.
  cudaStream_t StreamOf(int device, Queue queue) {
    Use(device);
    return devices_[device]->streams[static_cast<int>(queue)];
  }
  void Note(int device, cudaError_t result) { devices_[device]->Note(result); }
  int CudaIndex(int device) const { return devices_[device]->index; }

  // The types in which a product's numbers are stored and summed.
  struct Numbers {
    cudaDataType_t type;
    cublasComputeType_t compute;
  };
  Numbers NumbersOf(Element element) const {
    switch (element) {
      case Element::kFloat64: return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
      case Element::kFloat16: return {CUDA_R_16F, CUBLAS_COMPUTE_32F};
      case Element::kBFloat16: return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
      default:
        return {CUDA_R_32F, options().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    }
  }

  // A single product has its own function, in which cuBLAS may also split k among the device's
  // cores.
  static cublasStatus_t Product(cublasHandle_t blas, const MatMulArgs& g, Numbers numbers,
                                const void* a, const void* b, void* c) {
    const float one = 1, zero = 0;
    const double one64 = 1, zero64 = 0;
    const bool is_double = numbers.compute == CUBLAS_COMPUTE_64F;
    const void *const alpha_at = is_double ? static_cast<const void*>(&one64) : &one,
                      *const beta_at = is_double ? static_cast<const void*>(&zero64) : &zero;
    const int64_t lda = g.b_transposed ? g.k : g.n, ldb = g.a_transposed ? g.m : g.k;
    if (g.batch == 1) {
      return cublasGemmEx_64(blas, Flag(g.b_transposed), Flag(g.a_transposed), g.n, g.m, g.k,
                             alpha_at, b, numbers.type, lda, a, numbers.type, ldb, beta_at, c,
                             numbers.type, g.n, numbers.compute, CUBLAS_GEMM_DEFAULT);
    }
    return cublasGemmStridedBatchedEx_64(
        blas, Flag(g.b_transposed), Flag(g.a_transposed), g.n, g.m, g.k, alpha_at, b, numbers.type,
        lda, g.k * g.n, a, numbers.type, ldb, g.m * g.k, beta_at, c, numbers.type, g.n, g.m * g.n,
        g.batch, numbers.compute, CUBLAS_GEMM_DEFAULT);
  }

  std::vector<std::unique_ptr<CudaDevice>> devices_;
  // The kernels of one collective, one on each device, wait for each other. A call that waits for
  // devices must not come between the launches of two of them: it would wait for a kernel that it
  // keeps from starting. So this lock is held while a collective is launched. It is also held
  // during calls in which CUDA or NCCL wait for devices: when memory is pinned or given back, and
  // when devices are connected. A launch itself waits for nothing, because NCCL has connected the
  // devices before (in CanAllReduce, as NCCL_RUNTIME_CONNECT=0 asks for). A thread that waits under
  // the lock waits only for complete collectives, and these always finish. The lock also puts the
  // collectives of all threads into one order on all devices. The caller ensures that no copy
  // between devices comes in between (Transfers::together, which is taken before this lock).
  Mutex together_;
};

}  // namespace
}  // namespace divvy::cuda

extern "C" __attribute__((visibility("default"))) divvy::cuda::DeviceMath* divvy_open_device_math(
    int version, const char** why) {
  *why =
      "the library is of another version than the program that loads it: install both from one "
      "build";
  if (version != divvy::cuda::kDeviceMathVersion) return nullptr;
  static divvy::Mutex& mu = *new divvy::Mutex();
  static std::string& reason = *new std::string();
  // Lives as long as the process. If there was no driver yet, it is searched for again.
  static divvy::cuda::CudaMath* math = nullptr;
  divvy::MutexLock lock(mu);
  if (math == nullptr) math = divvy::cuda::CudaMath::Open(reason).release();
  *why = reason.c_str();
  return math;
}
