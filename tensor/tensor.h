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

struct Device {  // "CPU:0", "GPU:3"
  enum class Kind : uint8_t { kCpu, kGpu };
  Kind kind = Kind::kCpu;
  int index = 0;
  std::string ToString() const;
  friend bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }
};

// Dense, row-major values on one device. A handle: copying shares the buffer, and a shared buffer is never written.
// Thread safety: as for std::shared_ptr. The buffer is freed when its last handle goes, after the device is done with it.
class Tensor {
 public:
  Tensor();  // float32, shape {0}

  template <typename T>
  static Tensor Scalar(T value);
  template <typename T>
  static Tensor Vector(absl::Span<const T> values);
  template <typename T>
  static Tensor Vector(std::initializer_list<T> values) {
    return Vector<T>(absl::MakeConstSpan(values.begin(), values.size()));
  }
  // InvalidArgument: shape and values differ in number, or an invalid shape.
  template <typename T>
  static absl::StatusOr<Tensor> Copy(Shape shape, absl::Span<const T> values);
  // ResourceExhausted: no memory. InvalidArgument: an invalid or unknown (-1) shape, or a dtype tensors do not hold. Contents are unspecified.
  static absl::StatusOr<Tensor> Uninitialized(DType dtype, Shape shape, Device device = {});
  static absl::StatusOr<Tensor> Zeros(DType dtype, Shape shape);
  // Wraps memory of the caller, host or device, without a copy; `release` runs when the last handle goes. The caller must not write to it before.
  static absl::StatusOr<Tensor> Borrow(DType dtype, Shape shape, const void* data, Device device, std::function<void()> release);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Device device() const;
  int64_t size_bytes() const { return shape_.num_elements() * DTypeSize(dtype_); }

  // The one element. InvalidArgument: not one element of type T.
  template <typename T>
  absl::StatusOr<T> scalar() const;
  // All elements, row-major; valid while this handle lives. InvalidArgument: another dtype, or not on the CPU (use To first).
  template <typename T>
  absl::StatusOr<absl::Span<const T>> values() const;
  // Copies first if the buffer is shared or borrowed: no other handle ever sees the write. Errors as values().
  template <typename T>
  absl::StatusOr<absl::Span<T>> mutable_values();
  // For other libraries and for code that has checked dtype(); valid while this handle lives.
  const void* data() const { return data_; }
  template <typename T>
  const T* data_as() const {
    return static_cast<const T*>(data_);
  }  // REQUIRES: dtype() is T's, on the CPU
  // The buffer of a tensor that nobody else holds. REQUIRES: made by Uninitialized or Zeros in this scope, not yet copied.
  template <typename T>
  T* fresh_data() {
    return static_cast<T*>(const_cast<void*>(data_));
  }

  // Asynchronous to a GPU and between GPUs; to the CPU it waits, as ToHost. Unimplemented: a GPU where none is in use (--gpus). InvalidArgument, Internal: what
  // the GPU found wrong before.
  absl::StatusOr<Tensor> To(Device device) const;
  // On a GPU, all that is to be written to the buffer has been told to it: ToHost then waits for this only, and not for what the GPU is told from here on.
  // Without it ToHost is as right, and later. Nothing on the CPU.
  void MarkWritten() const;
  // Shares the buffer; one dimension may be -1. InvalidArgument: another number of elements.
  absl::StatusOr<Tensor> Reshape(Shape shape) const;
  // Rows [begin, end) of axis 0; shares the buffer. InvalidArgument: rank 0, or not 0 <= begin <= end <= rows.
  absl::StatusOr<Tensor> Rows(int64_t begin, int64_t end) const;

  // "float32 [64, 10]".
  std::string ToString() const;

 private:
  struct Buffer;
  friend absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors);
  absl::Status CheckReadable(DType wanted) const;
  absl::Status MakeUnique();

  std::shared_ptr<Buffer> buffer_;
  const void* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::kFloat32;
};

// All of them on the CPU, in their order; those that are there already are the same handles. Copies from GPUs run at once, beside what these compute, each as
// soon as its tensor is written (MarkWritten); returns when all are there. Errors as To.
absl::StatusOr<std::vector<Tensor>> ToHost(absl::Span<const Tensor> tensors);

// The same dtype, shape and bytes. False if either is not on the CPU.
bool BitwiseEqual(const Tensor& a, const Tensor& b);

// Rows of a larger tensor: what a lookup's gradient is. Ids may repeat, in any order; each in [0, num_rows).
struct IndexedSlices {
  Tensor ids;            // int64, [n]
  Tensor rows;           // [n, ...]
  int64_t num_rows = 0;  // of the dense tensor
};

// InvalidArgument: shapes or dtypes that do not fit, num_rows < 0, or an id outside [0, num_rows).
absl::Status Validate(const IndexedSlices& slices);

// A batch of id lists (CSR): list i is ids[row_splits[i] .. row_splits[i+1]). As a Nest: a dict with these three keys.
struct SparseIds {
  Tensor ids;                     // int64, [n]
  Tensor row_splits;              // int64, [batch + 1]
  std::optional<Tensor> weights;  // float32, [n]
};

// InvalidArgument: shapes or dtypes that do not fit, or row_splits that do not rise from 0 to n.
absl::Status Validate(const SparseIds& ids);
// The splits alone, of n things.
absl::Status ValidateRowSplits(const Tensor& row_splits, int64_t n);

}  // namespace divvy

#endif  // DIVVY_TENSOR_TENSOR_H_
