// Removes duplicates from ids, so that each row of a table is sent once, and gradients of rows with
// equal ids are summed where they are computed. For ops/ and for the Python package.
#ifndef DIVVY_OPS_UNIQUE_IDS_H_
#define DIVVY_OPS_UNIQUE_IDS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// The unique ids of a tensor, attached to it as a note. Thread-safe.
class UniqueIds : public TensorNote {
 public:
  UniqueIds(Tensor unique, Tensor places)
      : unique_(std::move(unique)), places_(std::move(places)) {}
  // int64, rising and unique; on the CPU.
  const Tensor& unique() const { return unique_; }
  // int64, one for each id: its index in unique(). Copied to each device once.
  absl::StatusOr<Tensor> PlacesOn(Device device) const;
  int64_t num_ids() const { return places_.shape().num_elements(); }

 private:
  const Tensor unique_, places_;
  mutable Mutex mu_;
  // places_, by the number of the GPU
  mutable std::map<int, Tensor> on_gpus_ DIVVY_GUARDED_BY(mu_);
};

// The unique ids of int64 ids [n] on the CPU. Computed once for each buffer: another call with a
// handle of the same values returns the same object. Null: there are no duplicates.
std::shared_ptr<const UniqueIds> UniqueOf(const Tensor& ids);
// The result of an earlier UniqueOf for these values. Null: there is none, or it was null.
std::shared_ptr<const UniqueIds> UniqueIfKnown(const Tensor& ids);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_UNIQUE_IDS_H_
