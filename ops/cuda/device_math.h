// What a library for a kind of device offers: its memory, and the arithmetic of ops/backend.h
// there. The boundary of libdivvy_cuda.so: plain numbers cross it, and errors as text, so that the
// library and what loads it share no code and need not have been linked together.
#ifndef DIVVY_OPS_CUDA_DEVICE_MATH_H_
#define DIVVY_OPS_CUDA_DEVICE_MATH_H_

#include <cstddef>
#include <cstdint>

#include "ops/cuda/array.h"
#include "ops/math.h"

namespace divvy::cuda {

// Changes whenever a method of DeviceMath, Array, Fault or ops/math.h does.
constexpr int kDeviceMathVersion = 11;

// How products and sums are taken.
struct DeviceOptions {
  // factors of float32 are rounded to 10 bits of mantissa, for tensor cores; sums stay float32
  bool tf32 = false;
  // equal inputs give equal bits, whatever runs beside them: no sum's order is left to the device's
  // scheduling
  bool deterministic = false;
};

// What a computation has found wrong with its data; the first on its device since it was last
// asked.
struct Fault {
  enum Kind : int32_t {
    kNone,
    kIdOutOfRange,
    kLabelOutOfRange,
    kProbabilityOutOfRange,
    kLabelNotInUnit
  } kind = kNone;
  // The id or the label (of the last two kinds the bits of a double), and where it stands among
  // those that were given.
  int64_t value = 0, position = 0;
  // The table or the logits; its memory may be gone.
  Array in;
};

// What is told to one queue of a device is done in that order, beside what its other queues do.
// Arithmetic goes to kCompute.
enum class Queue : int32_t { kCompute, kIn, kOut, kAcross, kInSmall };
constexpr int kNumQueues = 5;

// A point in a queue: all that it was told before.
using Event = void*;

// What a wait tells where memory was short, CUDA's words for it: the job goes on with less at a
// time. Any other text is the device's own trouble.
inline constexpr char kOutOfMemory[] = "out of memory";

// The numbers of internal::RowLists; null where it has none.
struct RowListArrays {
  const int64_t* row_splits = nullptr;
  const void* weights = nullptr;
  const void* divisors = nullptr;
};

// Thread-safe. Each queue does what it is told in the order of the calls, later; a call returns
// before. Only CopyOut, Synchronize and Await wait. Extents may be 0. Where no queue is named it is
// kCompute. Arithmetic is as internal::Backend (ops/backend.h) says, with the device as the first
// argument. It takes float16, bfloat16, float32 and float64; the narrow two are computed with as
// float32 and rounded when they are written, to nearest even.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  // For all devices, from here on. REQUIRES: no other call is under way.
  virtual void Configure(const DeviceOptions& options) = 0;

  // ---- devices and their memory ----
  virtual int num_devices() const = 0;
  virtual const char* name(int device) const = 0;  // "NVIDIA H200"
  // Makes the device ready; null, or what is wrong with it: then it cannot be chosen. It may be
  // asked again.
  virtual const char* Probe(int device) = 0;
  // The devices of these numbers, each given once, are from now on devices 0, 1, ..., and there are
  // no others. Null, or what is wrong with one of them: then no device may be used. To be called
  // once, before anything but the three methods above.
  virtual const char* Choose(const int* devices, int count) = 0;
  // Null: no memory is left, or what TakeError says.
  virtual void* Allocate(int device, size_t bytes) = 0;
  // After all that the device has been told to do with it.
  virtual void Free(int device, void* data) = 0;
  // What gives memory back that is kept for later: asked by a method that finds too little for its
  // own work. Null: nobody keeps any.
  using Reclaim = void (*)(void* context, int device);
  virtual void SetReclaim(Reclaim reclaim, void* context) = 0;
  // `from` may be written to again when it returns.
  virtual void CopyIn(int device, void* to, const void* from, size_t bytes) = 0;
  // Waits for kCompute. What the device has done wrong since it was last asked, else null; the text
  // is good until the next call of this thread.
  virtual const char* CopyOut(int device, void* to, const void* from, size_t bytes) = 0;
  virtual const char* Synchronize(int device) = 0;
  // What the next wait would tell, which then tells it no more; null: nothing so far. Does not
  // wait.
  virtual const char* TakeError(int device) = 0;
  // Not null: after this error nothing that this process tells the device is done any more, and
  // every wait tells an error. It stays so.
  virtual const char* lost(int device) const = 0;
  // What the next wait is to tell, if there is nothing yet. `error` lives as long as the process;
  // null: nothing.
  virtual void Note(int device, const char* error) = 0;
  // Forgets it. REQUIRES: the device is done (CopyOut, Synchronize).
  virtual Fault TakeFault(int device) = 0;

  // ---- queues: copies beside the computation ----
  // Memory that `queue` may use at once, and another queue once it has waited for an event of this
  // one. Freed as any other.
  virtual void* AllocateFor(int device, Queue queue, size_t bytes) = 0;
  // Between the device's memory and the host's, or within the device. A copy runs beside others
  // only where the host's part is pinned; else the call may wait for it. Neither may be touched
  // before an event says so.
  virtual void Copy(int device, Queue queue, void* to, const void* from, size_t bytes) = 0;
  // To `device`, one of whose queues it is, from memory of another device; by way of the host where
  // the two cannot reach each other.
  virtual void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                          size_t bytes) = 0;
  // What TakeFault takes, in the device's memory.
  virtual const Fault* fault_on(int device) const = 0;
  // To be released.
  virtual Event Record(int device, Queue queue) = 0;
  // The queue goes on when the event, of any queue of any device, has come.
  virtual void Wait(int device, Queue queue, Event event) = 0;
  virtual bool HasCome(Event event) = 0;
  // Waits for an event of this device. As CopyOut, what the device has done wrong.
  virtual const char* Await(int device, Event event) = 0;
  // A queue that was told to wait for it does so all the same.
  virtual void Release(Event event) = 0;
  // Memory of the host that no device waits for when it copies; null: the host gives no more. Slow,
  // so it is kept and used again.
  virtual void* AllocatePinned(size_t bytes) = 0;
  // REQUIRES: no copy of it is under way.
  virtual void FreePinned(void* data) = 0;

  // ---- several devices ----
  // Whether AllReduce takes such elements from these devices: not where the library cannot, or
  // where DeviceOptions asks for one order. May block when it is first asked about these devices.
  virtual bool CanAllReduce(const int* devices, int count, Element element) = 0;
  // to[i] on devices[i] becomes the elementwise sum of all from[...], added in any order. False,
  // and nothing is done: it could not after all. REQUIRES: two devices or more, each once;
  // CanAllReduce; until it returns no device is told to wait for another's event
  // (Transfers::together).
  virtual bool AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                         Element element, int64_t n) = 0;

  // ---- for profilers ----
  virtual void BeginRange(const char* name) = 0;
  virtual void EndRange() = 0;  // of the innermost on this thread

  // ---- arithmetic ----
  // An operand of Binary and AddThen, and x of Broadcast, may be a number without a place
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
  virtual void SumOfSquares(int device, const Array& x, double* sum) = 0;  // `sum` is the device's
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

  // A label out of range is a Fault, and its loss 0; so is a probability that is not in [0, 1].
  virtual void SoftmaxCrossEntropy(int device, const Array& logits, const Array& labels,
                                   const Array& loss, const Array& softmax) = 0;
  virtual void SoftmaxCrossEntropyGradient(int device, const Array& labels, const Array& gradient,
                                           const Array& softmax) = 0;
  // So is a label that is not in [0, 1].
  virtual void SigmoidCrossEntropy(int device, const Array& logits, const Array& labels,
                                   const Array& loss) = 0;
  virtual void SigmoidCrossEntropyGradient(int device, const Array& logits, const Array& labels,
                                           const Array& gradient, const Array& dx) = 0;

  virtual void Cast(int device, const Array& x, const Array& y) = 0;
  virtual void CopyBlocks(int device, const void* from, int64_t from_stride, void* to,
                          int64_t to_stride, int64_t block_bytes, int64_t rows) = 0;
  virtual void Zero(int device, void* data, size_t bytes) = 0;
  virtual void Permute(int device, const Array& x, const int* axes, const Array& y) = 0;
  // An id out of range is a Fault, and its row 0.
  virtual void GatherRows(int device, const Array& x, const int64_t* ids, const Array& y) = 0;
  virtual void ScatterAddRows(int device, const int64_t* ids, const Array& rows,
                              const Array& y) = 0;
  // unique: the n ids rising, each once, and at [n] how many there are. Row i of `sums`, which is
  // like `rows`, is the sum of the rows with id unique[i], in the order in which they stand.
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

// libdivvy_cuda.so exports one function of this type under this name: the library's devices, none
// of which is in use before one is chosen; null, with the reason: there are none. The same object
// at each call.
using OpenDeviceMath = DeviceMath* (*)(int version, const char** why);
constexpr char kOpenDeviceMath[] = "divvy_open_device_math";

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_DEVICE_MATH_H_
