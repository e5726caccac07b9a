// Dense tensors, and the two sparse forms that are built from them. There is no arithmetic here:
// see ops/.
#ifndef DIVVY_TENSOR_TENSOR_H_
#define DIVVY_TENSOR_TENSOR_H_

#include <cstdint>
#include <limits>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy {

// A device that holds values and computes with them, such as "CPU:0" or "GPU:3". Host memory is
// CPU:0. A plain value: nothing checks here that the machine has such a device. A function that
// uses the device reports that.
struct Device {
  enum class Kind : uint8_t { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  int index = 0;
  std::string ToString() const;
  friend bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }
};

// Base class of a cached result that is attached to a tensor's values. See Tensor::SetNote.
class TensorNote {
 public:
  virtual ~TensorNote() = default;
};

// Dense, row-major values on one device. A Tensor is a handle: copying it shares the buffer, and a
// shared buffer is never written. The buffer is freed when its last handle is destroyed and the
// device no longer uses it.
//
// Thread safety is that of std::shared_ptr: several threads may use different copies of one tensor.
// A single handle must not be used while another thread changes it.
//
// T below is a C++ type with a DTypeOf (tensor/dtype.h). A program that uses another T does not
// link. T must be exactly the tensor's type, because nothing is converted; to convert, use Cast of
// ops/ops.h. Only To and ToHost wait for a device.
//
//   ASSIGN_OR_RETURN(Tensor weights, Tensor::Copy<float>({2, 2}, {1, 0, 0, 1}));
//   // Writes to `values` are invisible to every other handle.
//   ASSIGN_OR_RETURN(absl::Span<float> values, weights.mutable_values<float>());
//   // Works for a result on any device.
//   ASSIGN_OR_RETURN(Tensor here, result.To(Device()));
class Tensor {
 public:
  Tensor();  // float32, shape {0}

  // On the CPU: a tensor of rank 0, and one of rank 1. The process ends when there is no memory.
  // For sizes that come from outside the program use Copy, which returns an error instead.
  template <typename T>
  static Tensor Scalar(T value);
  template <typename T>
  static Tensor Vector(absl::Span<const T> values);
  template <typename T>
  static Tensor Vector(std::initializer_list<T> values) {
    return Vector<T>(absl::MakeConstSpan(values.begin(), values.size()));
  }
  // On the CPU. Copies the values, which are in row-major order. InvalidArgument: the shape is
  // invalid, or it does not have as many elements as there are values. ResourceExhausted: no
  // memory.
  template <typename T>
  static absl::StatusOr<Tensor> Copy(Shape shape, absl::Span<const T> values);
  // A new tensor with unspecified contents. InvalidArgument: the shape is invalid or has an unknown
  // dimension (-1), or tensors do not hold the dtype. ResourceExhausted: no memory. Unimplemented:
  // `device` is a GPU and this process uses none (--gpus). NotFound: there is no such GPU.
  static absl::StatusOr<Tensor> Uninitialized(DType dtype, Shape shape, Device device = {});
  // A new tensor on the CPU whose elements are all 0. Errors as Uninitialized.
  static absl::StatusOr<Tensor> Zeros(DType dtype, Shape shape);
  // Wraps memory of the caller, on the host or a device, without a copy. `release` runs when the
  // last handle is destroyed, on the thread that destroys it. Until then the caller must not write
  // to the memory. Without `release` the memory must outlive every handle.
  //
  // InvalidArgument: as Uninitialized. `release` is not called then, and the memory still belongs
  // to the caller. REQUIRES: `data` points to as many bytes as shape and dtype need, row-major and
  // aligned for the dtype; the byte of a bool is 0 or 1.
  static absl::StatusOr<Tensor> Borrow(DType dtype, Shape shape, const void* data, Device device,
                                       std::function<void()> release);

  // These do not block, whatever the device. size_bytes() counts the elements of this tensor, not
  // the buffer that it shares.
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const;
  int64_t size_bytes() const { return shape_.num_elements() * DTypeSize(dtype_); }

  // The only element of a tensor of any rank. InvalidArgument: the tensor has another dtype or
  // another number of elements, or is not on the CPU (call To first).
  template <typename T>
  absl::StatusOr<T> scalar() const;
  // All elements, in row-major order. The span is valid while this handle lives, until it is
  // assigned to or mutable_values is called. InvalidArgument: the tensor has another dtype, or is
  // not on the CPU (call To first).
  template <typename T>
  absl::StatusOr<absl::Span<const T>> values() const;
  // All elements, for writing. A buffer that is shared or borrowed is copied first, so no other
  // handle sees the writes. Do not write through the span after this handle has been copied. Errors
  // as values(). ResourceExhausted: no memory for the copy.
  template <typename T>
  absl::StatusOr<absl::Span<T>> mutable_values();
  // The address of the first element on the tensor's device, for other libraries and for code that
  // has checked dtype(). Valid as long as the span of values(). Null if the tensor has no bytes.
  const void* data() const { return data_; }
  template <typename T>
  const T* data_as() const {
    return static_cast<const T*>(data_);
  }  // REQUIRES: dtype() is T's, on the CPU
  // The buffer, for writing the first values of a new tensor. REQUIRES: the tensor was made by
  // Uninitialized or Zeros in this scope and has not been copied.
  template <typename T>
  T* fresh_data() {
    return static_cast<T*>(const_cast<void*>(data_));
  }

  // The same values on `device`. Returns this same handle if they are already there. A copy to a
  // GPU or between GPUs is asynchronous: computations on the target wait for it, and the source
  // buffer on the CPU is kept until it has been read. A copy to the CPU blocks, as ToHost does.
  //
  // Unimplemented, NotFound, ResourceExhausted: as Uninitialized. Any copy, above all one to the
  // CPU, may also return the error of an earlier computation on the GPU. InvalidArgument: it found
  // bad data, such as an id out of range. ResourceExhausted: it found too little memory for its own
  // work; use smaller batches. Internal: it failed. Unavailable: this process has lost the GPU for
  // good and must be restarted.
  absl::StatusOr<Tensor> To(Device device) const;
  // Declares that every computation that writes this buffer has been issued to the GPU. ToHost then
  // waits only for these computations, and not for work that is issued later. ToHost is also
  // correct without this call, but may wait longer. Does nothing on the CPU.
  void MarkWritten() const;
  // The same elements in another shape; shares the buffer. One dimension may be -1 and is inferred
  // from the others. InvalidArgument: the number of elements differs, or two dimensions are -1, or
  // one is -1 beside a 0, so that it cannot be inferred.
  absl::StatusOr<Tensor> Reshape(Shape shape) const;
  // Rows [begin, end) along axis 0; shares the buffer. InvalidArgument: the rank is 0, or 0 <=
  // begin <= end <= rows does not hold.
  absl::StatusOr<Tensor> Rows(int64_t begin, int64_t end) const;

  // Dtype and shape, such as "float32 [64, 10]". The values are not shown.
  std::string ToString() const;

  // Attaches a result that was computed from these values, so that every handle of the same values
  // in the same buffer can find it. Replaces the former note of the buffer. note() is null if there
  // is none. Writing through mutable_values removes the note. Has no effect on a tensor without a
  // buffer. Thread-safe.
  void SetNote(std::shared_ptr<const TensorNote> note) const;
  std::shared_ptr<const TensorNote> note() const;

 private:
  struct Buffer;
  friend absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors);
  friend absl::StatusOr<std::vector<Tensor>> ToDevice(absl::Span<const Tensor> tensors,
                                                      Device device);
  Tensor PartOf(const Tensor& packed, int64_t offset) const;
  absl::Status CheckReadable(DType wanted) const;
  absl::Status MakeUnique();

  std::shared_ptr<Buffer> buffer_;
  const void* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::kFloat32;
};

// The tensors on the CPU, in the same order. A tensor that is already there keeps its handle.
// Copies from GPUs run concurrently with the GPUs' computations; each starts when its tensor has
// been written (MarkWritten). Blocks until all have arrived. Errors as To.
absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors);
// The tensors on `device`, in the same order; otherwise as To. Tensors of the CPU that are smaller
// than 64 KiB travel to a GPU together: in one copy and into one allocation, which is freed with
// the last of them.
absl::StatusOr<std::vector<Tensor>> ToDevice(absl::Span<const Tensor> tensors, Device device);

// Whether dtype, shape and bytes are the same. So a NaN equals a NaN of the same bits, and 0 does
// not equal -0. False if either tensor is not on the CPU.
bool BitwiseEqual(const Tensor& a, const Tensor& b);

// Some rows of a larger tensor, such as the gradient of a lookup (tf.IndexedSlices). Ids may repeat
// and come in any order; each is in [0, num_rows). A plain record: nothing is checked before
// Validate is called.
struct IndexedSlices {
  // `num_rows` of a dynamic table: every number is an id, and there is no dense tensor.
  static constexpr int64_t kAnyId = std::numeric_limits<int64_t>::max();
  Tensor ids;            // int64, [n]
  Tensor rows;           // [n, ...]
  int64_t num_rows = 0;  // rows of the dense tensor
};

// InvalidArgument: shapes or dtypes do not fit together, num_rows < 0, an id is outside [0,
// num_rows) unless num_rows is kAnyId, or the ids are not on the CPU. The rows may be on any
// device.
absl::Status Validate(const IndexedSlices& slices);

// A batch of lists of ids, in the form of tf.RaggedTensor (CSR): list i is ids[row_splits[i]] to
// ids[row_splits[i + 1] - 1]. As a Nest it is a dict with these three keys.
//
//   {{3, 1}, {}, {7}}  is  ids {3, 1, 7}, row_splits {0, 2, 2, 3}
struct SparseIds {
  Tensor ids;                     // int64, [n]
  Tensor row_splits;              // int64, [batch + 1]
  std::optional<Tensor> weights;  // float32, [n]
};

// InvalidArgument: shapes or dtypes do not fit together, row_splits do not rise from 0 to n, or ids
// or row_splits are not on the CPU. The values of the ids are not checked here; the lookup checks
// them against its table.
absl::Status Validate(const SparseIds& ids);
// Checks row_splits alone, for lists that hold n elements in total. Errors as Validate(SparseIds).
absl::Status ValidateRowSplits(const Tensor& row_splits, int64_t n);

}  // namespace divvy

#endif  // DIVVY_TENSOR_TENSOR_H_
