// Ids with duplicates, each once: so that each row of a table travels once, and gradients of rows
// with one id are summed where they go. Private to ops/.
#ifndef DIVVY_OPS_UNIQUE_IDS_H_
#define DIVVY_OPS_UNIQUE_IDS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// Thread-safe.
class UniqueIds : public TensorNote {
 public:
  UniqueIds(Tensor unique, Tensor places)
      : unique_(std::move(unique)), places_(std::move(places)) {}
  // int64, rising, each once; on the CPU.
  const Tensor& unique() const { return unique_; }
  // int64, one for each id: where it stands in unique(). Copied to a device once.
  absl::StatusOr<Tensor> PlacesOn(Device device) const;
  int64_t num_ids() const { return places_.shape().num_elements(); }

 private:
  const Tensor unique_, places_;
  mutable Mutex mu_;
  // places_, by the number of the GPU
  mutable std::map<int, Tensor> on_gpus_ DIVVY_GUARDED_BY(mu_);
};

// Of int64 ids [n] on the CPU. It is worked out once for a buffer: whoever asks for it again by a
// handle of the same values gets the same. Null: no id comes twice.
std::shared_ptr<const UniqueIds> UniqueOf(const Tensor& ids);
// What UniqueOf has found before; null: nothing, or nobody has asked.
std::shared_ptr<const UniqueIds> UniqueIfKnown(const Tensor& ids);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_UNIQUE_IDS_H_
