#include "strategy/context.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "strategy/replica_context.h"
#include "strategy/strategy.h"

namespace divvy {

bool InCrossReplicaContext() {
  const internal::ContextKind kind = internal::CurrentContext().kind;
  return kind == internal::ContextKind::kScope || kind == internal::ContextKind::kMerge;
}

namespace internal {
namespace {

struct Frame {
  uint64_t id;
  Context context;
};

std::vector<Frame>& Frames() {
  thread_local std::vector<Frame> frames;
  return frames;
}

// The strategy to which the context belongs.
const Strategy* StrategyOf(const Context& context) {
  return context.strategy != nullptr ? context.strategy : &DefaultStrategy();
}

absl::Status OtherStrategy(absl::string_view call) {
  return absl::FailedPreconditionError(
      absl::StrCat(call,
                   ": another strategy's scope is current on this thread; strategies do not mix: "
                   "let that scope end first"));
}

}  // namespace

const Context& CurrentContext() {
  static const Context* const outside = new Context();
  return Frames().empty() ? *outside : Frames().back().context;
}

ContextEntry::ContextEntry(Context context) {
  static std::atomic<uint64_t> last_id{0};
  id_ = ++last_id;
  Frames().push_back({id_, std::move(context)});
}

// Scopes that were moved may end in any order, so the first scope to end need not be the innermost.
ContextEntry::~ContextEntry() {
  std::vector<Frame>& frames = Frames();
  const auto mine = std::find_if(frames.rbegin(), frames.rend(),
                                 [this](const Frame& frame) { return frame.id == id_; });
  if (id_ != 0 && mine != frames.rend()) frames.erase(std::next(mine).base());
}

absl::Status CheckCrossReplica(const Strategy& strategy, absl::string_view call,
                               absl::string_view instead) {
  const Context& context = CurrentContext();
  if (!context.error.ok()) return context.error;
  if (context.kind == ContextKind::kReplica) {
    return absl::FailedPreconditionError(absl::StrCat(
        call, " was called inside a replica function, which sees one replica only; use ", instead,
        ", or do it in replica.MergeCall or after Run"));
  }
  if (context.kind != ContextKind::kDefault && StrategyOf(context) != &strategy)
    return OtherStrategy(call);
  return absl::OkStatus();
}

absl::Status CheckReplica(const ReplicaContext& replica, absl::string_view call,
                          absl::string_view instead) {
  const Context& context = CurrentContext();
  if (!context.error.ok()) return context.error;
  if (context.kind == ContextKind::kReplica && context.replica == &replica) return absl::OkStatus();
  if (context.kind == ContextKind::kDefault && &replica == &DefaultReplicaContext())
    return absl::OkStatus();
  const absl::string_view where =
      context.kind == ContextKind::kReplica   ? "on another replica's thread"
      : context.kind == ContextKind::kDefault ? "outside the replica function"
                                              : "in cross-replica context";
  return absl::FailedPreconditionError(
      absl::StrCat(call, " was called ", where, "; here ", instead));
}

}  // namespace internal
}  // namespace divvy
