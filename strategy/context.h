// The strategy and the replica that the calling thread works for. As in TensorFlow, each thread has
// a stack of contexts.
#ifndef DIVVY_STRATEGY_CONTEXT_H_
#define DIVVY_STRATEGY_CONTEXT_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "partitioners/placement.h"

namespace divvy {

class ReplicaContext;
class Strategy;

// tf.distribute.in_cross_replica_context() for the calling thread. True in a scope, a step function
// or a merge function, where the values of all replicas are available. False in a replica function,
// and outside every scope, where there is a default replica. Does not block.
bool InCrossReplicaContext();

namespace internal {

// The contexts of tf.distribute. The context of a thread determines which calls are allowed.
enum class ContextKind : uint8_t {
  // Outside every scope: the default strategy's only replica.
  kDefault,
  // In strategy.Scope(), or in a step function.
  kScope,
  // In the function that was passed to Run.
  kReplica,
  // In the function that was passed to MergeCall.
  kMerge,
};

struct Context {
  ContextKind kind = ContextKind::kDefault;
  // Null: the default strategy.
  Strategy* strategy = nullptr;
  // Only with kReplica.
  ReplicaContext* replica = nullptr;
  // Not OK: this scope may not be entered here, and every call inside it returns this error.
  absl::Status error = absl::OkStatus();
  // The placement of variables that are created here.
  std::optional<Colocation> colocation = std::nullopt;
};

// The innermost context of this thread. The reference is valid until the thread enters or leaves a
// context.
const Context& CurrentContext();

// Makes `context` the innermost one of the thread while this object lives. Movable. REQUIRES:
// destroyed on the thread that made it.
class ContextEntry {
 public:
  explicit ContextEntry(Context context);
  ~ContextEntry();
  ContextEntry(ContextEntry&& other) noexcept : id_(other.id_) { other.id_ = 0; }
  ContextEntry& operator=(ContextEntry&&) = delete;

 private:
  uint64_t id_;  // 0: moved away
};

// FailedPrecondition unless the values of all replicas of `strategy` may be used here: outside
// every scope, or in the strategy's own scope or merge function. For the message, `call` is the
// call that was made, and `instead` is what to use in a replica function.
absl::Status CheckCrossReplica(const Strategy& strategy, absl::string_view call,
                               absl::string_view instead);

// FailedPrecondition unless this thread works for `replica`. For the message, `instead` is what to
// use in cross-replica context.
absl::Status CheckReplica(const ReplicaContext& replica, absl::string_view call,
                          absl::string_view instead);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_CONTEXT_H_
