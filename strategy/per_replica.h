// Values that differ by replica, and the small types of collectives.
#ifndef DIVVY_STRATEGY_PER_REPLICA_H_
#define DIVVY_STRATEGY_PER_REPLICA_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tensor/nest.h"

namespace divvy {

// How values of several replicas become one. kMean divides by the number of replicas; with an axis,
// by the number of elements. The mean of several integers is InvalidArgument: cast first.
enum class ReduceOp : uint8_t { kSum, kMean };
// "SUM", "mean": any case. InvalidArgument: another text (TensorFlow takes what is no text at all
// for SUM).
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);
absl::string_view ReduceOpName(ReduceOp op);  // "SUM"

// How the replicas of one worker meet (tf.distribute.experimental.CommunicationOptions). On GPUs
// kAuto and kNccl give what all replicas take home to NCCL where the machine has it, which adds in
// an order of its own; kRing, and everything else, adds in the order of the replicas.
struct CommunicationOptions {
  // Small tensors on GPUs travel together, so many bytes at most; 0: a number that suits them.
  // Negative: InvalidArgument from the collective.
  int64_t bytes_per_pack = 0;
  // When a replica has waited so long for the others, the call fails on all of them with
  // DeadlineExceeded, which names it and those that have not come: on those that wait at once, on
  // those that come late when they come. Their next calls meet again.
  absl::Duration timeout = absl::InfiniteDuration();
  enum class Implementation { kAuto, kRing, kNccl } implementation = Implementation::kAuto;
};
// "AUTO", "ring", "Nccl": any case. InvalidArgument: another text.
absl::StatusOr<CommunicationOptions::Implementation> ParseCommunicationImplementation(
    absl::string_view name);
// `later`, with the fields of `earlier` where `later` has the default.
CommunicationOptions MergeOptions(const CommunicationOptions& earlier,
                                  const CommunicationOptions& later);

// Which replica a value is made for (DistributeValuesFromFunction). A plain record: nothing is
// checked.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// One value for each replica of a worker, in replica order: tf.distribute's PerReplica and
// DistributedValues. What Run gives, and what it takes apart again. A value type, as safe as T; T
// is any copyable type, and never leaves the process. A PerReplica of another strategy's number of
// replicas is InvalidArgument where it is used.
template <typename T>
class PerReplica {
 public:
  using value_type = T;
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}  // REQUIRES: not empty
  int size() const { return static_cast<int>(values_.size()); }
  // REQUIRES: in [0, size())
  typename std::vector<T>::const_reference operator[](int replica_id) const {
    return values_[replica_id];
  }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};
using DistributedValues = PerReplica<Nest>;

}  // namespace divvy

#endif  // DIVVY_STRATEGY_PER_REPLICA_H_
