// Dense values, and the two sparse forms built from them. No arithmetic: that is ops/.
#ifndef DIVVY_TENSOR_TENSOR_H_
#define DIVVY_TENSOR_TENSOR_H_

#include <cstdint>
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

// Where values lie and are computed: "CPU:0", "GPU:3". A plain value: whether the machine has it is
// found out by what is asked to use it. Host memory is CPU:0.
struct Device {
  enum class Kind : uint8_t { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  int index = 0;
  std::string ToString() const;
  friend bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }
};

// See Tensor::SetNote.
class TensorNote {
 public:
  virtual ~TensorNote() = default;
};

// Dense, row-major values on one device. A handle: copying shares the buffer, and a shared buffer
// is never written. Thread safety: as for std::shared_ptr: copies of one tensor may be used by
// several threads, one handle may not while it is changed. The buffer is freed when its last handle
// goes, after the device is done with it.
//
// T below is a type of DTypeOf (tensor/dtype.h), exactly that of the tensor: nothing is converted
// (Cast in ops/ops.h does that). Of any other T the program does not link. Nothing here waits for a
// device but To and ToHost.
//
//   ASSIGN_OR_RETURN(Tensor weights, Tensor::Copy<float>({2, 2}, {1, 0, 0, 1}));
//   // no other handle sees what is written there
//   ASSIGN_OR_RETURN(absl::Span<float> values, weights.mutable_values<float>());
//   // from wherever it lies
//   ASSIGN_OR_RETURN(Tensor here, result.To(Device()));
class Tensor {
 public:
  Tensor();  // float32, shape {0}

  // On the CPU, of rank 0 and of rank 1. Where there is no memory the process ends: for sizes that
  // come from outside there is Copy.
  template <typename T>
  static Tensor Scalar(T value);
  template <typename T>
  static Tensor Vector(absl::Span<const T> values);
  template <typename T>
  static Tensor Vector(std::initializer_list<T> values) {
    return Vector<T>(absl::MakeConstSpan(values.begin(), values.size()));
  }
  // On the CPU; copies the values, row-major. InvalidArgument: shape and values differ in number,
  // or an invalid shape. ResourceExhausted: no memory.
  template <typename T>
  static absl::StatusOr<Tensor> Copy(Shape shape, absl::Span<const T> values);
  // ResourceExhausted: no memory. InvalidArgument: an invalid or unknown (-1) shape, or a dtype
  // tensors do not hold. Unimplemented: a GPU where none is in use (--gpus). NotFound: no such GPU.
  // Contents are unspecified.
  static absl::StatusOr<Tensor> Uninitialized(DType dtype, Shape shape, Device device = {});
  // On the CPU. Errors as Uninitialized.
  static absl::StatusOr<Tensor> Zeros(DType dtype, Shape shape);
  // Wraps memory of the caller, host or device, without a copy; `release` runs when the last handle
  // goes, on the thread that lets it go. The caller must not write to it before. Without `release`
  // the memory must outlive every handle. InvalidArgument, as Uninitialized: `release` is then not
  // called, the memory is still the caller's. REQUIRES: `data` has as many bytes as shape and dtype
  // say, row-major, aligned for the dtype; a bool is 0 or 1.
  static absl::StatusOr<Tensor> Borrow(DType dtype, Shape shape, const void* data, Device device,
                                       std::function<void()> release);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const;
  int64_t size_bytes() const { return shape_.num_elements() * DTypeSize(dtype_); }

  // The one element, whatever the rank. InvalidArgument: not one element of type T, or not on the
  // CPU (use To first).
  template <typename T>
  absl::StatusOr<T> scalar() const;
  // All elements, row-major; valid while this handle lives and is neither assigned to nor asked for
  // mutable_values. InvalidArgument: another dtype, or not on the CPU (use To first).
  template <typename T>
  absl::StatusOr<absl::Span<const T>> values() const;
  // Copies first if the buffer is shared or borrowed: no other handle ever sees the write. The span
  // is good for writing until this handle is copied. Errors as values(); ResourceExhausted: no
  // memory for the copy.
  template <typename T>
  absl::StatusOr<absl::Span<T>> mutable_values();
  // For other libraries and for code that has checked dtype(); valid as values() is. On its device;
  // null where there are no bytes.
  const void* data() const { return data_; }
  template <typename T>
  const T* data_as() const {
    return static_cast<const T*>(data_);
  }  // REQUIRES: dtype() is T's, on the CPU
  // The buffer of a tensor that nobody else holds. REQUIRES: made by Uninitialized or Zeros in this
  // scope, not yet copied.
  template <typename T>
  T* fresh_data() {
    return static_cast<T*>(const_cast<void*>(data_));
  }

  // The same values on `device`; this very handle where they are there already. Asynchronous to a
  // GPU and between GPUs: what is computed there waits for them by itself, and a buffer of the CPU
  // is held until it has been read. To the CPU it waits, as ToHost. Unimplemented, NotFound,
  // ResourceExhausted: as Uninitialized. InvalidArgument, Internal: what the GPU found wrong
  // before.
  absl::StatusOr<Tensor> To(Device device) const;
  // On a GPU, all that is to be written to the buffer has been told to it: ToHost then waits for
  // this only, and not for what the GPU is told from here on. Without it ToHost is as right, and
  // later. Nothing on the CPU.
  void MarkWritten() const;
  // Shares the buffer; one dimension may be -1, and stands for what the others leave.
  // InvalidArgument: another number of elements, two dimensions of -1, or one beside a 0, which
  // leaves nothing to tell it by.
  absl::StatusOr<Tensor> Reshape(Shape shape) const;
  // Rows [begin, end) of axis 0; shares the buffer. InvalidArgument: rank 0, or not 0 <= begin <=
  // end <= rows.
  absl::StatusOr<Tensor> Rows(int64_t begin, int64_t end) const;

  // "float32 [64, 10]".
  std::string ToString() const;

  // What somebody has worked out of these values, for whoever holds a handle of the same values of
  // the same buffer. Null: nothing. The values do not change as long as it counts. Thread-safe.
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

// All of them on the CPU, in their order; those that are there already are the same handles. Copies
// from GPUs run at once, beside what these compute, each as soon as its tensor is written
// (MarkWritten); returns when all are there. Errors as To.
absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors);
// All of them on `device`, in their order, as To. To a GPU the small ones of the CPU travel
// together: one copy and one piece of memory, which is freed with the last of them.
absl::StatusOr<std::vector<Tensor>> ToDevice(absl::Span<const Tensor> tensors, Device device);

// The same dtype, shape and bytes: a NaN equals the same NaN, and 0 is not -0. False if either is
// not on the CPU.
bool BitwiseEqual(const Tensor& a, const Tensor& b);

// Rows of a larger tensor: what a lookup's gradient is (tf.IndexedSlices). Ids may repeat, in any
// order; each in [0, num_rows). A plain record: nothing is checked before Validate.
struct IndexedSlices {
  Tensor ids;            // int64, [n]
  Tensor rows;           // [n, ...]
  int64_t num_rows = 0;  // of the dense tensor
};

// InvalidArgument: shapes or dtypes that do not fit, num_rows < 0, an id outside [0, num_rows), or
// ids that are not on the CPU. The rows may lie anywhere.
absl::Status Validate(const IndexedSlices& slices);

// A batch of id lists (CSR, as tf.RaggedTensor has it): list i is ids[row_splits[i] ..
// row_splits[i+1]). As a Nest: a dict with these three keys.
//
//   {{3, 1}, {}, {7}}  is  ids {3, 1, 7}, row_splits {0, 2, 2, 3}
struct SparseIds {
  Tensor ids;                     // int64, [n]
  Tensor row_splits;              // int64, [batch + 1]
  std::optional<Tensor> weights;  // float32, [n]
};

// InvalidArgument: shapes or dtypes that do not fit, row_splits that do not rise from 0 to n, or
// ids or row_splits that are not on the CPU. The ids' values are not looked at: which of them a
// table has is the lookup's business.
absl::Status Validate(const SparseIds& ids);
// The splits alone, of n things. Errors as above.
absl::Status ValidateRowSplits(const Tensor& row_splits, int64_t n);

}  // namespace divvy

#endif  // DIVVY_TENSOR_TENSOR_H_
