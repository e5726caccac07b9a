// Which strategy and which replica the calling thread works for: a stack of the thread, as in
// TensorFlow.
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

// tf.distribute.in_cross_replica_context(): in a scope, a step or a merge function, where values of
// all replicas are at hand. Outside every scope there is a default replica, so false. Of the
// calling thread.
bool InCrossReplicaContext();

namespace internal {

// The states of semantics of tf.distribute: which one a thread is in decides which calls are legal.
enum class ContextKind : uint8_t {
  // outside everything: the default strategy's one replica
  kDefault,
  kScope,    // strategy.Scope(), and a step function
  kReplica,  // the function given to Run
  kMerge,    // the function given to MergeCall
};

struct Context {
  ContextKind kind = ContextKind::kDefault;
  Strategy* strategy = nullptr;       // null: the default one
  ReplicaContext* replica = nullptr;  // kReplica only
  absl::Status error =
      absl::OkStatus();  // this scope must not have been entered: what every call inside it returns
  std::optional<Colocation> colocation = std::nullopt;  // of variables created here
};

// The innermost context of this thread. Valid until the thread enters or leaves one.
const Context& CurrentContext();

// Makes `context` the innermost one while it lives. Movable. REQUIRES: ends on the thread it began
// on.
class ContextEntry {
 public:
  explicit ContextEntry(Context context);
  ~ContextEntry();
  ContextEntry(ContextEntry&& other) noexcept : id_(other.id_) { other.id_ = 0; }
  ContextEntry& operator=(ContextEntry&&) = delete;

 private:
  uint64_t id_;  // 0: moved away
};

// FailedPrecondition unless values of all replicas of `strategy` may be handled here: outside
// everything, or in its own scope or merge function. `call` is what was called, `instead` what to
// do within a replica.
absl::Status CheckCrossReplica(const Strategy& strategy, absl::string_view call,
                               absl::string_view instead);

// FailedPrecondition unless `replica` is the one this thread works for. `instead` is what to do in
// cross-replica context.
absl::Status CheckReplica(const ReplicaContext& replica, absl::string_view call,
                          absl::string_view instead);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_CONTEXT_H_
