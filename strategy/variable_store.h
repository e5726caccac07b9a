// The interface through which variables are read and written: the only seam between strategy/ and
// the parameter servers.
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
#include "ops/gradient_tape.h"
#include "partitioners/placement.h"
#include "protocol/ids.h"
#include "variables/transfer_plan.h"
#include "variables/variable_spec.h"

namespace divvy {

// An existing variable. In a step, and after creation, `spec` has neither initializer nor
// partitioner, since both are used at creation only.
struct VariableInfo {
  VariableSpec spec;
  // [num_shards + 1] the first row of each shard, and the end; {0, 1} for rank 0.
  std::vector<int64_t> shard_offsets;
  // [num_shards] the parameter server of each shard.
  std::vector<int> shard_servers;
};

// Thread-safe: the replicas of a step call it concurrently. The Strategy and every Variable found
// through it keep the store alive. Calls after the step has ended are FailedPrecondition.
//
// Every method may return these errors:
//   Cancelled    the step was cancelled, or its worker's session has ended; return soon
//   Unavailable  direct calls only: a parameter server was unreachable for longer than
//                --ps_timeout. A step waits instead
class VariableStore {
 public:
  virtual ~VariableStore() = default;

  // The job of these variables. A handle may be used only while a strategy of the same job, or the
  // default strategy, is current.
  virtual JobId job() const = 0;

  // Finds a variable. Does not block. NotFound: the message lists the names that are most similar
  // to `name`.
  virtual absl::StatusOr<VariableInfo> Find(absl::string_view name) const = 0;

  // Creates a variable. Blocks until every shard holds its initial value. If `with` is set, the
  // variable is placed there in one shard, whatever its partitioner. A restarted program that
  // creates a variable again gets the existing one.
  //   AlreadyExists       this run of the program has already created the name
  //   FailedPrecondition  the existing variable has another spec; or the call is made in a step
  //   ResourceExhausted   a parameter server lacks memory
  //   NotFound            `with` names a variable that does not exist
  //   InvalidArgument     `with` names a shard that does not exist
  virtual absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                              const std::optional<Colocation>& with) = 0;

  // Fills in `value` (on the CPU) and `num_rows` of each request, with one message to each
  // parameter server for all requests. May block. A whole value has the variable's shape. Rows have
  // shape ids.shape + row shape, in the order of the ids. In a step, a variable that is read whole
  // has one value for all reads of all replicas, plus the step's own staged assigns, adds and
  // scatters.
  //
  // NotFound: no such variable. InvalidArgument: an id outside the variable, or ids that are not
  // int64. FailedPrecondition: the step has staged a gradient for the variable. Only the parameter
  // server can compute its effect, so read before ApplyGradients.
  virtual absl::Status Read(absl::Span<ReadRequest> requests) = 0;

  // As Read, with the values on `device`, where a replica computes. Also the errors of Tensor::To.
  virtual absl::Status ReadOn(Device device, absl::Span<ReadRequest> requests);

  // Reads what the PullWant of each read says of dynamic tables, with one message to each parameter
  // server; PullPlan::Assemble says in which shape. Errors: those of Read. Unimplemented, which is
  // the default: this store holds no tables.
  virtual absl::StatusOr<std::vector<Tensor>> ReadTable(std::vector<VariableRead> reads);

  // Makes all of the writes, in this order, or none: everything that can be refused is refused
  // before the first one takes effect. In a step they are staged and become part of its one commit.
  // A direct call has applied them when it returns, and may block.
  //
  // NotFound: no such variable. InvalidArgument: another dtype or shape; an id outside the
  // variable; or a gradient without an optimizer, in the write or in the variable.
  // FailedPrecondition: a read-only step, or a second gradient for one variable in one step.
  virtual absl::Status Write(std::vector<StagedWrite> writes) = 0;
};

// For implementers of VariableStore. Copies tensors from GPUs to the CPU, from which they are sent.
// If a gradient's rows are on a GPU, rows with the same id are summed there first, so that fewer
// rows are copied; the ids are then in ascending order. Blocks until the GPU is done. Errors: those
// of SumDuplicates (ops/gradients.h) and of Tensor::To, which report bad data that the GPU has
// found.
absl::Status CopyToCpu(std::vector<StagedWrite>& writes);
absl::Status CopyToCpu(std::vector<VariableRead>& reads);

// For implementers of VariableStore. Moves the values of the requests to `device`. Errors: those of
// Tensor::To.
absl::Status BringTo(Device device, absl::Span<ReadRequest> requests);

}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_STORE_H_
