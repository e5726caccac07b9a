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

// How the values of several replicas are combined. kMean divides by the number of replicas; with an
// axis, by the number of elements. The mean of several integers is InvalidArgument: cast first.
enum class ReduceOp : uint8_t { kSum, kMean };
// Parses "SUM" or "mean", in any case. InvalidArgument: another text. (TensorFlow treats a value
// that is not a string as SUM.)
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name);
// "SUM" or "MEAN".
absl::string_view ReduceOpName(ReduceOp op);

// How the replicas of one worker combine values (tf.distribute.experimental.CommunicationOptions).
// On GPUs, kAuto and kNccl let NCCL compute the results that every replica gets, if the machine has
// NCCL, which chooses its own order of additions. Otherwise, and with kRing, values are added in
// replica order.
struct CommunicationOptions {
  // The largest pack in bytes: small tensors on GPUs are packed and copied together. 0: a suitable
  // default. Negative: InvalidArgument from the collective.
  int64_t bytes_per_pack = 0;
  // How long a replica waits for the others. Then the call fails on all of them with
  // DeadlineExceeded, which names that replica and the missing ones. Replicas that wait get the
  // error at once; late replicas get it when they arrive. Their next calls match up again.
  absl::Duration timeout = absl::InfiniteDuration();
  enum class Implementation { kAuto, kRing, kNccl } implementation = Implementation::kAuto;
};
// Parses "AUTO", "RING" or "NCCL", in any case. InvalidArgument: another text.
absl::StatusOr<CommunicationOptions::Implementation> ParseCommunicationImplementation(
    absl::string_view name);
// Returns `later`, with each field that has its default replaced by `earlier`'s.
CommunicationOptions MergeOptions(const CommunicationOptions& earlier,
                                  const CommunicationOptions& later);

// The replica for which DistributeValuesFromFunction makes a value. A plain record: nothing is
// checked.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

// One value for each replica of a worker, in replica order: tf.distribute's PerReplica and
// DistributedValues. Run returns it, and Run splits it among the replicas if it is an argument. A
// value type, as thread-safe as T. T is any copyable type; the values never leave the process. A
// PerReplica from a strategy with another number of replicas is InvalidArgument where it is used.
template <typename T>
class PerReplica {
 public:
  using value_type = T;
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}  // REQUIRES: not empty
  int size() const { return static_cast<int>(values_.size()); }
  // REQUIRES: replica_id is in [0, size()).
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
