// What variables are reached through: the one seam between strategy/ and the parameter servers.
//
// worker/core implements it as a step's transaction, coordinator/core as direct calls,
// strategy/testing as a map.
#ifndef DIVVY_STRATEGY_VARIABLE_STORE_H_
#define DIVVY_STRATEGY_VARIABLE_STORE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/ids.h"
#include "cluster/transfer_plan.h"
#include "cluster/variable_spec.h"
#include "ops/gradient_tape.h"
#include "partitioners/placement.h"

namespace divvy {

// A variable that exists. In a step, and after creation, `spec` has neither initializer nor
// partitioner: they have done their work.
struct VariableInfo {
  VariableSpec spec;
  std::vector<int64_t> shard_offsets;  // [num_shards + 1] first rows; {0, 1} for rank 0
  std::vector<int> shard_servers;      // [num_shards] the parameter server of each
};

// Thread-safe: the replicas of a step call it at the same time. Kept alive by the Strategy and by
// every Variable found through it; calls made after the step has ended are FailedPrecondition.
//
// Errors that every method may give: Cancelled (the step was cancelled or its worker's session
// ended: return soon), Unavailable (a direct call, and a parameter server was away for longer than
// --ps_timeout; a step waits instead).
class VariableStore {
 public:
  virtual ~VariableStore() = default;

  // Whose variables these are: what a variable's handle was found through and what is current where
  // it is used must be of one job.
  virtual JobId job() const = 0;

  // Does not block. NotFound: lists the names nearest to `name`.
  virtual absl::StatusOr<VariableInfo> Find(absl::string_view name) const = 0;

  // Makes the variable; blocks until every shard holds its initial value. AlreadyExists: the name
  // is taken in this life of the program. A program that was restarted gets the variable it had.
  // FailedPrecondition: it had another spec, or this is a step. ResourceExhausted: no memory on a
  // parameter server. `with`: lies there, in one shard, whatever partitioner there is. NotFound: no
  // such variable. InvalidArgument: no such shard.
  virtual absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                              const std::optional<Colocation>& with) = 0;

  // Fills in `value` (on the CPU) and `num_rows` of each request: one message to each parameter
  // server for all of them. May block. Whole values have the variable's shape, rows ids.shape + row
  // shape in the order asked. In a step a variable read whole has one value, however often and by
  // how many replicas it is read, except that the step's own staged assigns, adds and scatters are
  // seen.
  // NotFound: no such variable. InvalidArgument: an id outside the variable, ids that are no int64.
  // FailedPrecondition: the step has staged a gradient for it, whose effect only its parameter
  // server knows: read before ApplyGradients.
  virtual absl::Status Read(absl::Span<ReadRequest> requests) = 0;

  // As Read, with the values on `device`, where a replica computes. Errors, too: those of
  // Tensor::To.
  virtual absl::Status ReadOn(Device device, absl::Span<ReadRequest> requests);

  // All of the writes, in this order, or none: everything that could be refused is refused before
  // the first one counts. In a step they are staged and become part of its one commit; a direct
  // call has applied them when it returns, and may block.
  // NotFound: no such variable. InvalidArgument: dtype or shape, an id outside the variable, a
  // gradient for a variable that names no optimizer while the write gives none. FailedPrecondition:
  // a read-only step, or a second gradient for one variable in one step.
  virtual absl::Status Write(std::vector<StagedWrite> writes) = 0;
};

// What a store is given may lie on a GPU, where a replica computed it; what it sends lies on the
// CPU. Of a gradient's rows on a GPU those with one id are summed there, so that fewer travel: its
// ids then rise. For implementers. Both wait for the GPU. Errors: those of SumDuplicates
// (ops/gradients.h) and of Tensor::To, which tell what the GPU has found wrong with its data.
absl::Status BringToCpu(std::vector<StagedWrite>& writes);
absl::Status BringToCpu(std::vector<VariableRead>& reads);

// The values that were read, to where a replica computes. For implementers. Errors: those of
// Tensor::To.
absl::Status BringTo(Device device, absl::Span<ReadRequest> requests);

}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_STORE_H_
