// A tensor whose bytes lie in several places.
#ifndef DIVVY_TENSOR_SCATTERED_TENSOR_H_
#define DIVVY_TENSOR_SCATTERED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/tensor.h"

namespace divvy {

// The values of a tensor on the CPU, row-major, as a sequence of pieces: the messages in which they
// arrived, or the blocks of a shard. A piece may end within an element, and may begin at any
// address. Not thread-safe while pieces are added; afterwards immutable, and so thread-safe.
class ScatteredTensor {
 public:
  // Without any piece. REQUIRES: the shape is valid and has no unknown dimension.
  ScatteredTensor(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {}

  // Appends bytes. `keeper` keeps them alive and unchanged. REQUIRES: the pieces together have no
  // more bytes than the tensor.
  void Add(absl::string_view bytes, std::shared_ptr<const void> keeper);
  // Appends a copy. For short pieces: each piece that is kept costs some hundred bytes here and at
  // its keeper.
  void AddCopy(absl::string_view bytes);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size_bytes() const { return shape_.num_elements() * DTypeSize(dtype_); }
  // Dtype and shape, such as "float32 [64, 10]".
  std::string ToString() const;
  // All bytes, as tensors of kUInt8 that share the memory of the pieces.
  std::vector<Tensor> Pieces() const;
  // The same values in one place. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> Joined() const;

  // Copies bytes [begin, begin + size). REQUIRES: these bytes have been added.
  void CopyTo(int64_t begin, int64_t size, char* to) const;

 private:
  struct Piece {
    const char* data;
    // where it ends among all bytes
    int64_t end;
    std::shared_ptr<const void> keeper;
  };
  int64_t added() const { return pieces_.empty() ? 0 : pieces_.back().end; }

  DType dtype_;
  Shape shape_;
  std::vector<Piece> pieces_;
  // Where pieces are copied to, and how much of it is used.
  std::shared_ptr<char[]> chunk_;
  size_t chunk_bytes_ = 0, used_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_TENSOR_SCATTERED_TENSOR_H_
