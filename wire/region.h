// Tensors in memory that a client and a parameter server of one machine share (proto/divvy.proto,
// "Data streams").
#ifndef DIVVY_WIRE_REGION_H_
#define DIVVY_WIRE_REGION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/messages.h"
#include "tensor/tensor.h"

namespace divvy::wire {

// A part of shared memory that holds the tensors of one transfer, in their order. Each tensor
// begins at a multiple of kAlignment. Both processes know all shapes, so no offsets are sent. For
// one thread.
class Region : public PullTarget {
 public:
  static constexpr int64_t kAlignment = 64;
  // The room that a tensor of so many bytes takes. REQUIRES: 0 <= bytes < 2^63 - kAlignment.
  static int64_t RoomFor(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // `keeper` keeps the memory alive; every tensor of the region holds it. REQUIRES: `data` is
  // aligned to kAlignment.
  Region(char* data, int64_t bytes, std::shared_ptr<const void> keeper)
      : data_(data), bytes_(bytes), keeper_(std::move(keeper)) {}

  // The next tensor, which borrows the region's memory as it is. Writing to it before it has been
  // copied is writing to the region. ResourceExhausted: the region ends before it.
  absl::StatusOr<Tensor> Next(DType dtype, Shape shape) override;
  // Copies the tensors into the region from its beginning. REQUIRES: there is RoomFor them.
  void Fill(absl::Span<const Tensor> tensors);
  // Whether the tensors lie in the region as Next has given them, from its beginning.
  bool Holds(absl::Span<const Tensor> tensors) const;

 private:
  char* const data_;
  const int64_t bytes_;
  const std::shared_ptr<const void> keeper_;
  int64_t used_ = 0;
};

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_REGION_H_
