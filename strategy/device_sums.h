// Sums of what the GPUs of one worker hold, taken there.
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

// Tensors are collected first and summed together: small ones of a dtype that lie on the same GPUs
// are packed, once, and travel in one piece. Each pack is summed on one of the GPUs, which take
// turns, one replica's after the other's: so its results have the bits that the CPU would give, and
// the same in each run. But what OnEachGpu gives is summed by the library that the GPUs' maker has
// for it (Collectives) where the machine has one, each replica has a GPU of its own and
// CommunicationOptions do not ask for kRing: in an order that it chooses, so the bits may be
// others. Not thread-safe.
class DeviceSums {
 public:
  // Where it lies. Does not wait. REQUIRES: CanSum(sum).
  static absl::StatusOr<Tensor> Quotient(const Tensor& sum, size_t divisor);

  explicit DeviceSums(ReduceOp op, const CommunicationOptions& options = {});

  // Whether it would be summed on a GPU if the other replicas' are: it lies on one, and its dtype
  // is one that GPUs compute with.
  static bool CanSum(const Tensor& value);
  // One of each replica. Returns their number. REQUIRES: CanSum of each; of one dtype and shape.
  size_t Add(std::vector<Tensor> values);
  size_t size() const { return values_.size(); }

  // The sums or means, by number. Waits for them. Errors: those of ToHost.
  absl::StatusOr<std::vector<Tensor>> OnCpu() &&;
  // For each replica, those by number, where its own values lie. Does not wait.
  absl::StatusOr<std::vector<std::vector<Tensor>>> OnEachGpu() &&;

 private:
  struct Pack {
    std::vector<size_t> numbers;
    int64_t elements = 0;
    // By replica, [elements], where the replica's values lie; only while they are summed.
    std::vector<Tensor> terms;
    // [elements]
    Tensor sum;
  };
  std::vector<Pack> MakePacks() const;
  absl::Status Fill(Pack& pack) const;
  absl::StatusOr<Tensor> Packed(const Pack& pack, size_t replica) const;
  absl::Status SumPack(size_t turn, Pack& pack) const;
  absl::StatusOr<Tensor> SumOf(const Pack& pack, Device device) const;
  // Empty: no library does it.
  absl::StatusOr<std::vector<Tensor>> AllReduced(const Pack& pack) const;
  absl::Status Unpack(const Pack& pack, const Tensor& sum, std::vector<Tensor>& by_number) const;

  const ReduceOp op_;
  const int64_t bytes_per_pack_;
  const Collectives* const collectives_;     // null: none is wanted
  std::vector<std::vector<Tensor>> values_;  // by number, then by replica
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_DEVICE_SUMS_H_
