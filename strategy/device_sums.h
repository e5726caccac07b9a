// Sums of tensors on the GPUs of one worker, computed on the GPUs.
#ifndef DIVVY_STRATEGY_DEVICE_SUMS_H_
#define DIVVY_STRATEGY_DEVICE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "strategy/per_replica.h"
#include "tensor/tensor.h"

namespace divvy::internal {

class Collectives;

// Collects tensors and then sums them together. Small tensors of one dtype that are on the same
// GPUs are packed and copied as one piece.
//
// Each pack is summed on one GPU, in replica order; the GPUs take turns. So the result has the same
// bits as on the CPU, and the same bits in each run. OnEachGpu is an exception: it uses the GPU
// vendor's library (Collectives) if the machine has it, each replica has its own GPU, and
// CommunicationOptions do not ask for kRing. That library chooses its own order of additions, so
// the bits may differ. Not thread-safe.
class DeviceSums {
 public:
  // sum / divisor, on the device of `sum`. Does not wait for the GPU. REQUIRES: CanSum(sum).
  static absl::StatusOr<Tensor> Quotient(const Tensor& sum, size_t divisor);

  explicit DeviceSums(ReduceOp op, const CommunicationOptions& options = {});

  // Whether `value` can be summed on a GPU: it is on one, has a floating-point dtype and is not
  // empty. The other replicas' values must be on GPUs as well.
  static bool CanSum(const Tensor& value);
  // Adds one tensor of each replica, in replica order. Returns the number of this sum. REQUIRES:
  // CanSum of each; the same dtype and shape.
  size_t Add(std::vector<Tensor> values);
  size_t size() const { return values_.size(); }

  // The sums or means on the CPU, by number. Waits for the GPUs. Errors: those of ToHost.
  absl::StatusOr<std::vector<Tensor>> OnCpu() &&;
  // For each replica, the sums or means by number, on the device of its own values. Does not wait
  // for the GPUs.
  absl::StatusOr<std::vector<std::vector<Tensor>>> OnEachGpu() &&;

 private:
  struct Pack {
    std::vector<size_t> numbers;
    int64_t elements = 0;
    // One for each replica, [elements], on the device of its values. Set only while they are
    // summed.
    std::vector<Tensor> terms;
    // [elements]
    Tensor sum;
  };
  std::vector<Pack> MakePacks() const;
  absl::Status Fill(Pack& pack) const;
  absl::StatusOr<Tensor> Packed(const Pack& pack, size_t replica) const;
  absl::Status SumPack(size_t turn, Pack& pack) const;
  absl::StatusOr<Tensor> SumOf(const Pack& pack, Device device) const;
  // Sums with the vendor's library. Empty: no library is used.
  absl::StatusOr<std::vector<Tensor>> AllReduced(const Pack& pack) const;
  absl::Status Unpack(const Pack& pack, const Tensor& sum, std::vector<Tensor>& by_number) const;

  const ReduceOp op_;
  const int64_t bytes_per_pack_;
  // Null: no library is used.
  const Collectives* const collectives_;
  std::vector<std::vector<Tensor>> values_;  // by number, then by replica
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_DEVICE_SUMS_H_
