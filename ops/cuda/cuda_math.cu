// The devices that CUDA finds, and the library's one door.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/kernel_math.h"
#include "ops/cuda/nccl.h"

namespace divvy::cuda {
namespace {

constexpr size_t kWorkspaceBytes = 32 << 20;  // what cuBLAS takes for itself on the largest devices

cublasOperation_t Flag(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// Events are made once and used again. Those of a device: CUDA wants an event and the stream that records it on the same.
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

// One stream for each queue, one handle: a device computes in the order of the calls.
struct CudaDevice {
  int index = 0;  // CUDA's
  cudaStream_t streams[kNumQueues] = {};
  cudaStream_t stream = nullptr;  // that of kCompute
  cublasHandle_t blas = nullptr;
  Fault* fault = nullptr;
  std::string name;
  EventPool events;
  void* workspace = nullptr;                                            // of cuBLAS, where it must always be the same
  Mutex mu;                                                             // cuBLAS's handles are for one thread at a time
  cublasStatus_t product DIVVY_GUARDED_BY(mu) = CUBLAS_STATUS_SUCCESS;  // the first that failed

  cudaError_t Find(int number) {
    index = number;
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error == cudaSuccess) name = properties.name;
    return error;
  }
  // Takes a part of its memory, so only those are opened that compute.
  cudaError_t Open() {
    if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return error;
    for (cudaStream_t& queue : streams) {
      if (const cudaError_t error = cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking); error != cudaSuccess) return error;
    }
    stream = streams[static_cast<int>(Queue::kCompute)];
    if (cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS || cublasSetStream(blas, stream) != CUBLAS_STATUS_SUCCESS) return cudaErrorInitializationError;
    // Partial sums of narrow types stay float32 where k is cut.
    cublasSetMathMode(blas, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    if (const cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&fault), sizeof(Fault), stream); error != cudaSuccess) return error;
    return cudaMemsetAsync(fault, 0, sizeof(Fault), stream);
  }
};

class CudaMath : public KernelMath {
 public:
  // Null, with the reason: there is no device that CUDA can use.
  static std::unique_ptr<CudaMath> Open(std::string& why) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    auto math = std::make_unique<CudaMath>();
    for (int i = 0; error == cudaSuccess && i < count; ++i) {
      math->devices_.push_back(std::make_unique<CudaDevice>());
      error = math->devices_.back()->Find(i);
    }
    if (error == cudaSuccess && count > 0) return math;
    why = error == cudaSuccess ? "CUDA finds no device" : cudaGetErrorString(error);
    return nullptr;
  }

  // With a workspace of its own a handle always chooses the same algorithm, and adds in the same order.
  void Configure(const DeviceOptions& options) override {
    KernelMath::Configure(options);
    for (int device = 0; options.deterministic && device < num_devices(); ++device) {
      Use(device);
      CudaDevice& it = *devices_[device];
      MutexLock lock(it.mu);
      if (it.workspace == nullptr && cudaMalloc(&it.workspace, kWorkspaceBytes) != cudaSuccess) it.product = CUBLAS_STATUS_ALLOC_FAILED;
      cublasStatus_t status = cublasSetAtomicsMode(it.blas, CUBLAS_ATOMICS_NOT_ALLOWED);
      if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetWorkspace(it.blas, it.workspace, kWorkspaceBytes);
      if (it.product == CUBLAS_STATUS_SUCCESS) it.product = status;
    }
  }

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  const char* name(int device) const override { return devices_[device]->name.c_str(); }
  const char* Choose(const int* devices, int count) override {
    std::vector<std::unique_ptr<CudaDevice>> chosen;
    for (int i = 0; i < count; ++i) {
      chosen.push_back(std::move(devices_[devices[i]]));
      if (const cudaError_t error = chosen.back()->Open(); error != cudaSuccess) return cudaGetErrorString(error);
    }
    devices_ = std::move(chosen);
    return nullptr;
  }
  void* Allocate(int device, size_t bytes) override { return AllocateFor(device, Queue::kCompute, bytes); }
  void Free(int device, void* data) override { cudaFreeAsync(data, Use(device)); }
  void CopyIn(int device, void* to, const void* from, size_t bytes) override { cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, Use(device)); }
  const char* CopyOut(int device, void* to, const void* from, size_t bytes) override {
    const cudaError_t copied = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, Use(device));
    return copied == cudaSuccess ? Synchronize(device) : cudaGetErrorString(copied);
  }
  const char* Synchronize(int device) override {
    const Stream stream = Use(device);
    const cudaError_t queued = cudaGetLastError();
    return WrongOn(device, queued, cudaStreamSynchronize(stream));
  }
  Fault TakeFault(int device) override {
    Fault taken;
    const Stream stream = Use(device);
    cudaMemcpyAsync(&taken, devices_[device]->fault, sizeof(taken), cudaMemcpyDeviceToHost, stream);
    cudaMemsetAsync(devices_[device]->fault, 0, sizeof(taken), stream);
    cudaStreamSynchronize(stream);
    return taken;
  }
  void* AllocateFor(int device, Queue queue, size_t bytes) override {
    void* data = nullptr;
    if (cudaMallocAsync(&data, bytes, StreamOf(device, queue)) == cudaSuccess) return data;
    cudaGetLastError();  // it is told by the null
    return nullptr;
  }
  void Copy(int device, Queue queue, void* to, const void* from, size_t bytes) override {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(device, queue));
  }
  void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from, size_t bytes) override {
    cudaMemcpyPeerAsync(to, CudaIndex(device), from, CudaIndex(from_device), bytes, StreamOf(device, queue));
  }
  const Fault* fault_on(int device) const override { return devices_[device]->fault; }
  Event Record(int device, Queue queue) override {
    const cudaStream_t stream = StreamOf(device, queue);
    const cudaEvent_t event = devices_[device]->events.Take();
    cudaEventRecord(event, stream);
    return new CudaEvent{event, device};
  }
  void Wait(int device, Queue queue, Event event) override { cudaStreamWaitEvent(StreamOf(device, queue), static_cast<CudaEvent*>(event)->event, 0); }
  bool HasCome(Event event) override { return cudaEventQuery(static_cast<CudaEvent*>(event)->event) != cudaErrorNotReady; }
  const char* Await(int device, Event event) override {
    Use(device);
    const cudaError_t queued = cudaGetLastError();
    return WrongOn(device, queued, cudaEventSynchronize(static_cast<CudaEvent*>(event)->event));
  }
  void Release(Event event) override {
    const std::unique_ptr<CudaEvent> it(static_cast<CudaEvent*>(event));
    devices_[it->device]->events.Return(it->event);
  }
  void* AllocatePinned(size_t bytes) override {
    void* data = nullptr;
    Use(0);
    if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return data;
    cudaGetLastError();  // it is told by the null
    return nullptr;
  }
  void FreePinned(void* data) override { cudaFreeHost(data); }
  bool AllReduce(const int* devices, int count, const void* const* from, void* const* to, Element element, int64_t n) override {
    static Nccl* const nccl = Nccl::Load().release();
    if (nccl == nullptr || options().deterministic) return false;
    std::vector<Nccl::Rank> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back({CudaIndex(devices[i]), devices_[devices[i]]->stream, from[i], to[i]});
    return nccl->AllReduce(ranks, element, n);
  }
  void BeginRange(const char* name) override { nvtxRangePushA(name); }
  void EndRange() override { nvtxRangePop(); }
  void Zero(int device, void* data, size_t bytes) override { cudaMemsetAsync(data, 0, bytes, Use(device)); }
  void MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b, const Array& c) override {
    Gemm(device, args, c.element, a.data, b.data, c.data, /*accumulate=*/false);
  }

 protected:
  Stream Use(int device) override {
    cudaSetDevice(devices_[device]->index);
    return devices_[device]->stream;
  }
  Fault* fault(int device) override { return devices_[device]->fault; }

  // cuBLAS's matrices stand in columns: what it takes for c is our c transposed, b^T a^T.
  void Gemm(int device, const MatMulArgs& g, Element element, const void* a, const void* b, void* c, bool accumulate) override {
    if (g.m == 0 || g.n == 0 || g.batch == 0) return;
    if (g.k == 0) return accumulate ? void() : Zero(device, c, static_cast<size_t>(g.batch * g.m * g.n * SizeOf(element)));
    Use(device);
    CudaDevice& it = *devices_[device];
    MutexLock lock(it.mu);
    const cublasStatus_t status = Product(it.blas, g, NumbersOf(element), a, b, c, accumulate);
    if (it.product == CUBLAS_STATUS_SUCCESS) it.product = status;
  }

 private:
  // The queue's stream; its device is the calling thread's from here on.
  cudaStream_t StreamOf(int device, Queue queue) {
    Use(device);
    return devices_[device]->streams[static_cast<int>(queue)];
  }
  const char* WrongOn(int device, cudaError_t queued, cudaError_t done) {
    if (queued != cudaSuccess) return cudaGetErrorString(queued);
    if (done != cudaSuccess) return cudaGetErrorString(done);
    CudaDevice& it = *devices_[device];
    MutexLock lock(it.mu);
    return it.product == CUBLAS_STATUS_SUCCESS ? nullptr : cublasGetStatusString(it.product);
  }
  int CudaIndex(int device) const { return devices_[device]->index; }

  // How a product's numbers lie in memory and are summed.
  struct Numbers {
    cudaDataType_t type;
    cublasComputeType_t compute;
  };
  Numbers NumbersOf(Element element) const {
    switch (element) {
      case Element::kFloat64: return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
      case Element::kFloat16: return {CUDA_R_16F, CUBLAS_COMPUTE_32F};
      case Element::kBFloat16: return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
      default: return {CUDA_R_32F, options().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    }
  }

  // One product by its own function, for which cuBLAS may also cut k among the device's cores.
  static cublasStatus_t Product(cublasHandle_t blas, const MatMulArgs& g, Numbers numbers, const void* a, const void* b, void* c, bool accumulate) {
    const float one = 1, beta = accumulate ? 1 : 0;
    const double one64 = 1, beta64 = beta;
    const bool is_double = numbers.compute == CUBLAS_COMPUTE_64F;
    const void *const alpha_at = is_double ? static_cast<const void*>(&one64) : &one, *const beta_at = is_double ? static_cast<const void*>(&beta64) : &beta;
    const int64_t lda = g.b_transposed ? g.k : g.n, ldb = g.a_transposed ? g.m : g.k;
    if (g.batch == 1) {
      return cublasGemmEx_64(blas, Flag(g.b_transposed), Flag(g.a_transposed), g.n, g.m, g.k, alpha_at, b, numbers.type, lda, a, numbers.type, ldb, beta_at, c,
                             numbers.type, g.n, numbers.compute, CUBLAS_GEMM_DEFAULT);
    }
    return cublasGemmStridedBatchedEx_64(blas, Flag(g.b_transposed), Flag(g.a_transposed), g.n, g.m, g.k, alpha_at, b, numbers.type, lda, g.k * g.n, a,
                                         numbers.type, ldb, g.m * g.k, beta_at, c, numbers.type, g.n, g.m * g.n, g.batch, numbers.compute, CUBLAS_GEMM_DEFAULT);
  }

  std::vector<std::unique_ptr<CudaDevice>> devices_;
};

}  // namespace
}  // namespace divvy::cuda

extern "C" __attribute__((visibility("default"))) divvy::cuda::DeviceMath* divvy_open_device_math(int version, const char** why) {
  *why = "the library is of another version than what loads it: install both from one build";
  if (version != divvy::cuda::kDeviceMathVersion) return nullptr;
  static std::string reason;
  static divvy::cuda::CudaMath* const math = divvy::cuda::CudaMath::Open(reason).release();  // for as long as the process lives
  *why = reason.c_str();
  return math;
}
