// The interface of a library for a kind of device: its memory, and the arithmetic of ops/backend.h
// on it. This is the boundary of libdivvy_cuda.so. Only plain numbers cross it, and errors as text.
// So the library and the process that loads it share no code and need not be linked together.
#ifndef DIVVY_OPS_CUDA_DEVICE_MATH_H_
#define DIVVY_OPS_CUDA_DEVICE_MATH_H_

#include <cstddef>
#include <cstdint>

#include "ops/cuda/array.h"
#include "ops/math.h"

namespace divvy::cuda {

// Changes whenever a method of DeviceMath, Array, Fault or ops/math.h does.
constexpr int kDeviceMathVersion = 11;

// How products and sums are computed.
struct DeviceOptions {
  // Rounds float32 factors of products to 10 bits of mantissa, to use tensor cores. Sums stay
  // float32.
  bool tf32 = false;
  // Equal inputs give equal bits, whatever runs concurrently: the order of every sum is fixed and
  // not left to the device's scheduling.
  bool deterministic = false;
};

// Bad data that a computation found: the first on its device since the last TakeFault.
struct Fault {
  enum Kind : int32_t {
    kNone,
    kIdOutOfRange,
    kLabelOutOfRange,
    kProbabilityOutOfRange,
    kLabelNotInUnit
  } kind = kNone;
  // The id or the label, and its position among those that were given. For the last two kinds
  // `value` has the bits of a double.
  int64_t value = 0, position = 0;
  // The table or the logits. Its memory may already be freed.
  Array in;
};

// The queues (streams) of a device. A queue runs its operations in the order of the calls,
// concurrently with the other queues. Arithmetic uses kCompute.
enum class Queue : int32_t { kCompute, kIn, kOut, kAcross, kInSmall };
constexpr int kNumQueues = 5;

// A point in a queue: it comes when all earlier operations of the queue are done.
using Event = void*;

// The error text for a lack of memory, in CUDA's words. The job can continue with a smaller amount
// of work at a time. Every other text means that the device itself has failed.
inline constexpr char kOutOfMemory[] = "out of memory";

// internal::RowLists as addresses; null where it has no such tensor.
struct RowListArrays {
  const int64_t* row_splits = nullptr;
  const void* weights = nullptr;
  const void* divisors = nullptr;
};

// The devices of a library. Thread-safe. Calls are asynchronous: each queue runs its operations in
// the order of the calls. Only CopyOut, Synchronize and Await wait. Where no queue is named, it is
// kCompute. Extents may be 0.
//
// Arithmetic is that of internal::Backend (ops/backend.h), with the device as the first argument.
// It takes float16, bfloat16, float32 and float64. The 16-bit types are computed as float32 and
// rounded to nearest even when they are written.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  // Sets the options of all devices for the following calls. REQUIRES: no other call is in
  // progress.
  virtual void Configure(const DeviceOptions& options) = 0;

  // ---- devices and their memory ----
  virtual int num_devices() const = 0;
  virtual const char* name(int device) const = 0;  // "NVIDIA H200"
  // Initializes the device. Returns null, or the reason why it cannot be used; it must not be
  // chosen then. May be called again.
  virtual const char* Probe(int device) = 0;
  // Chooses the devices to use: they become devices 0, 1, ..., and there are no others from then
  // on. Each number is given once. Returns null, or the reason why one of them cannot be used; then
  // no device may be used. Call it once, before any method except the three above.
  virtual const char* Choose(const int* devices, int count) = 0;
  // New memory. Null: no memory is left, or there is an error, which TakeError returns.
  virtual void* Allocate(int device, size_t bytes) = 0;
  // Frees the memory after all operations that were issued to the device before this call.
  virtual void Free(int device, void* data) = 0;
  // Sets a function that frees cached memory. A method calls it when it does not find enough memory
  // for its own work. Null: there is no cache.
  using Reclaim = void (*)(void* context, int device);
  virtual void SetReclaim(Reclaim reclaim, void* context) = 0;
  // Copies host memory to the device. When it returns, `from` may be written to again.
  virtual void CopyIn(int device, void* to, const void* from, size_t bytes) = 0;
  // Copies memory of the device to the host, and waits for kCompute. Returns the error of the
  // device since the last report, or null. The text is valid until the next call of this thread.
  virtual const char* CopyOut(int device, void* to, const void* from, size_t bytes) = 0;
  virtual const char* Synchronize(int device) = 0;
  // Takes the error that the next wait would return; the wait then does not return it. Null: no
  // error so far. Does not wait.
  virtual const char* TakeError(int device) = 0;
  // Not null: this error has made the device unusable for this process. No further operation runs,
  // and every wait returns an error. This never changes back.
  virtual const char* lost(int device) const = 0;
  // Sets the error that the next wait returns, if there is none yet. `error` lives as long as the
  // process; null has no effect.
  virtual void Note(int device, const char* error) = 0;
  // Returns the fault and clears it. REQUIRES: the device has finished its work (CopyOut,
  // Synchronize).
  virtual Fault TakeFault(int device) = 0;

  // ---- queues: copies beside the computation ----
  // New memory that `queue` may use at once. Another queue may use it after it has waited for an
  // event of this queue. Free it with Free.
  virtual void* AllocateFor(int device, Queue queue, size_t bytes) = 0;
  // Copies between the device's memory and the host's, or within the device. It runs concurrently
  // with other copies only if the host memory is pinned; otherwise the call may wait for it.
  // Neither memory may be touched before an event says that the copy is done.
  virtual void Copy(int device, Queue queue, void* to, const void* from, size_t bytes) = 0;
  // Copies memory of another device to `device`, on a queue of `device`. Goes through the host if
  // the two devices cannot access each other.
  virtual void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                          size_t bytes) = 0;
  // The address in the device's memory of the fault that TakeFault returns.
  virtual const Fault* fault_on(int device) const = 0;
  // The present point of the queue. The caller must call Release.
  virtual Event Record(int device, Queue queue) = 0;
  // Makes the queue wait for the event, which may be of any queue of any device. The call itself
  // does not wait.
  virtual void Wait(int device, Queue queue, Event event) = 0;
  virtual bool HasCompleted(Event event) = 0;
  // Waits for an event of this device. Returns an error as CopyOut does.
  virtual const char* Await(int device, Event event) = 0;
  // Destroys the event. A queue that waits for it still does.
  virtual void Release(Event event) = 0;
  // Pinned memory of the host, which devices copy without waiting. Null: the host has no more. The
  // call is slow, so keep the memory and reuse it.
  virtual void* AllocatePinned(size_t bytes) = 0;
  // REQUIRES: no copy from or to it is in progress.
  virtual void FreePinned(void* data) = 0;

  // ---- several devices ----
  // Whether AllReduce supports these elements on these devices. False if the library cannot, or if
  // DeviceOptions asks for a fixed order of sums. The first call for a set of devices may block.
  virtual bool CanAllReduce(const int* devices, int count, Element element) = 0;
  // Writes the elementwise sum of all from[...] to to[i] on devices[i]; the order of additions is
  // unspecified. Returns false, and does nothing, if it could not after all. REQUIRES: two or more
  // devices, each once; CanAllReduce; and while it runs nobody makes a device wait for an event of
  // another (Transfers::together).
  virtual bool AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                         Element element, int64_t n) = 0;

  // ---- for profilers ----
  virtual void BeginRange(const char* name) = 0;
  virtual void EndRange() = 0;  // ends the innermost range of this thread

  // ---- arithmetic ----
  // An operand of Binary and AddThen, and x of Broadcast, may be a number without an address
  // (Array::value).
  virtual void Unary(int device, internal::UnaryOp op, const Array& x, const Array& y) = 0;
  virtual void UnaryGradient(int device, internal::UnaryOp op, const Array& kept,
                             const Array& gradient, const Array& dx) = 0;
  virtual void UnaryGradientAndSums(int device, internal::UnaryOp op, const Array& kept,
                                    const Array& gradient, const Array& dx, const Array& sums) = 0;
  virtual void Binary(int device, internal::BinaryOp op, const Array& a, const Array& b,
                      const Array& y) = 0;
  virtual void AddThen(int device, internal::UnaryOp op, const Array& a, const Array& b,
                       const Array& y) = 0;
  virtual void Broadcast(int device, const Array& x, double scale, const Array& y) = 0;
  virtual void SumTo(int device, const Array& x, double scale, const Array& y) = 0;
  virtual void MaxTo(int device, const Array& x, const Array& y) = 0;
  virtual void SumOfSquares(int device, const Array& x, double* sum) = 0;  // sum: device memory
  virtual void Dropout(int device, uint64_t key, double rate, const Array& x, const Array& y) = 0;

  virtual void MatMul(int device, const internal::MatMulArgs& args, const Array& a, const Array& b,
                      const Array& c) = 0;

  virtual void Softmax(int device, const Array& x, const Array& y) = 0;
  virtual void SoftmaxGradient(int device, const Array& y, const Array& gradient,
                               const Array& dx) = 0;
  virtual void Normalize(int device, internal::Norm norm, double epsilon, const Array& x,
                         const Array& y) = 0;
  virtual void NormalizeGradient(int device, internal::Norm norm, double epsilon, const Array& x,
                                 const Array& gradient, const Array& dx) = 0;

  virtual void Conv2D(int device, const internal::Window2D& window, const Array& x,
                      const Array& kernel, const Array& y) = 0;
  virtual void Conv2DInputGradient(int device, const internal::Window2D& window,
                                   const Array& kernel, const Array& gradient, const Array& dx) = 0;
  virtual void Conv2DKernelGradient(int device, const internal::Window2D& window, const Array& x,
                                    const Array& gradient, const Array& dkernel) = 0;
  virtual void MaxPool(int device, const internal::Window2D& window, const Array& x,
                       const Array& y) = 0;
  virtual void MaxPoolGradient(int device, const internal::Window2D& window, const Array& x,
                               const Array& y, const Array& gradient, const Array& dx) = 0;

  // A label out of range, or a probability outside [0, 1], is a Fault; its loss is 0.
  virtual void SoftmaxCrossEntropy(int device, const Array& logits, const Array& labels,
                                   const Array& loss, const Array& softmax) = 0;
  virtual void SoftmaxCrossEntropyGradient(int device, const Array& labels, const Array& gradient,
                                           const Array& softmax) = 0;
  // A label outside [0, 1] is a Fault; its loss is 0.
  virtual void SigmoidCrossEntropy(int device, const Array& logits, const Array& labels,
                                   const Array& loss) = 0;
  virtual void SigmoidCrossEntropyGradient(int device, const Array& logits, const Array& labels,
                                           const Array& gradient, const Array& dx) = 0;

  virtual void Cast(int device, const Array& x, const Array& y) = 0;
  virtual void CopyBlocks(int device, const void* from, int64_t from_stride, void* to,
                          int64_t to_stride, int64_t block_bytes, int64_t rows) = 0;
  virtual void Zero(int device, void* data, size_t bytes) = 0;
  virtual void Permute(int device, const Array& x, const int* axes, const Array& y) = 0;
  // An id out of range is a Fault; its row is 0.
  virtual void GatherRows(int device, const Array& x, const int64_t* ids, const Array& y) = 0;
  virtual void ScatterAddRows(int device, const int64_t* ids, const Array& rows,
                              const Array& y) = 0;
  // Writes to `unique` the distinct ids among the n ids, rising, then zeros, and to unique[n] their
  // number. Row i of `sums`, which has the shape of `rows`, is the sum of the rows with id
  // unique[i], added in the order in which they stand.
  virtual void SumDuplicates(int device, const int64_t* ids, const Array& rows, int64_t* unique,
                             const Array& sums) = 0;
  virtual void LowerTriangles(int device, const Array& x, const Array& y) = 0;
  virtual void SymmetricFromTriangles(int device, const Array& y, const Array& x) = 0;
  virtual void CombineRows(int device, const RowListArrays& lists, const Array& x,
                           const Array& y) = 0;
  virtual void SpreadRows(int device, const RowListArrays& lists, const Array& y,
                          const Array& x) = 0;
  virtual void ClipRows(int device, const Array& x, double max_norm, const Array& y) = 0;
  virtual void ClipRowsGradient(int device, const Array& x, double max_norm, const Array& gradient,
                                const Array& dx) = 0;
};

// libdivvy_cuda.so exports one function of this type under this name. It returns the devices of the
// library; no device is in use before Choose. Every call returns the same object. Null: there are
// no devices; `why` has the reason.
using OpenDeviceMath = DeviceMath* (*)(int version, const char** why);
constexpr char kOpenDeviceMath[] = "divvy_open_device_math";

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_DEVICE_MATH_H_
