// A variable on the parameter servers.
#ifndef DIVVY_STRATEGY_VARIABLE_H_
#define DIVVY_STRATEGY_VARIABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/variable_spec.h"
#include "strategy/variable_index.h"
#include "tensor/tensor.h"

namespace divvy {

class VariableStore;
struct VariableInfo;

// A handle, cheap to copy; thread-safe. It owns nothing of the variable, which lives as long as its
// job. After its coordinator has gone reads and writes are FailedPrecondition.
//
//   // a VariableSpec is its name
//   ASSIGN_OR_RETURN(const Variable kernel, worker.strategy().FindVariable(kKernel));
//   ASSIGN_OR_RETURN(const Tensor rows, kernel.Slice(0, 10));
//   RETURN_IF_ERROR(kernel.ScatterRows(Variable::Scatter::kAdd, {ids, updates,
//   /*num_rows=*/1000}));
//
// What a call means depends on where it is made:
//   coordinator, or scope            at once, all shards; returns when applied
//   step function (cross-replica)    staged: part of the step's one commit; reads see the step's
//                                    own assigns
//   replica function                 assigns of several replicas meet and are first combined by the
//                                    spec's aggregation (kNone: InvalidArgument); scatters count
//                                    each, in the order the replicas come (so kUpdate of one row by
//                                    two replicas keeps either)
// A handle that came from elsewhere in the job works on the step's behalf inside a step; where the
// strategy of another job is current (its scope, or one of its steps), every call is
// FailedPrecondition that names both. Shapes are checked whole before anything is sent. All calls
// may block. A ps that is away is waited for, up to --ps_timeout, then Unavailable.
//
// What is read lies where the replica computes that reads it (in a replica function), else on the
// CPU; what is written may lie on any device. A read is no snapshot: beside steps that commit
// meanwhile some blocks of rows may have what a commit writes, and others not yet. Errors of all
// calls: as each method of VariableStore (strategy/variable_store.h) has them; InvalidArgument
// names the variable and both shapes.
class Variable {
 public:
  // For Strategy and its implementers. REQUIRES: neither is null.
  Variable(std::shared_ptr<VariableStore> store, std::shared_ptr<const VariableInfo> info)
      : store_(std::move(store)), info_(std::move(info)) {}

  const VariableSpec& spec() const;
  // [num_shards + 1] first rows
  absl::Span<const int64_t> shard_offsets() const;
  // [num_shards] the parameter server that holds each, as it was when the handle was made: a job
  // that is resized places them anew, and FindVariable tells.
  std::vector<int> shard_servers() const;
  operator absl::string_view() const { return spec().name; }

  // The whole variable, in its shape: all of it travels, whatever its size.
  absl::StatusOr<Tensor> Read() const;
  // Rows start, start + step, ... before stop, by Python's rules in full (TensorFlow's containers
  // differ where start lies outside and |step| > 1). Only these rows travel. InvalidArgument: step
  // 0, or rank 0.
  absl::StatusOr<Tensor> Slice(std::optional<int64_t> start, std::optional<int64_t> stop,
                               int64_t step = 1) const;
  // v[2:6, ..., -1] is At({IndexSlice{2, 6}, Ellipsis{}, -1}), by NumPy's rules (TensorFlow's
  // containers apply to each shard what follows a leading new axis). Only the rows that it touches
  // travel. OutOfRange: an integer outside its axis. InvalidArgument: a step of 0, more items than
  // axes, or two ellipses.
  absl::StatusOr<Tensor> At(absl::Span<const IndexItem> index) const;
  // tf's sparse_read, but in the order asked: ids.shape + row shape. `ids` is int64 or int32, of
  // any shape. InvalidArgument: an id outside the variable, other ids, or a variable of rank 0.
  absl::StatusOr<Tensor> Rows(const Tensor& ids) const;

  // A value of the variable's dtype and shape. In a Run over several replicas a collective: each of
  // them must call it. InvalidArgument: another dtype or shape (nothing is broadcast), or AssignAdd
  // and AssignSub of bool.
  absl::Status Assign(const Tensor& value) const;
  absl::Status AssignAdd(const Tensor& value) const;
  absl::Status AssignSub(const Tensor& value) const;

  // tf.Variable's scatter_update, scatter_add, ... kUpdate keeps the last of several rows for one
  // id, the others apply each. Integers wrap around and give 0 where they are divided by 0; kMin
  // and kMax leave the variable's element where either is NaN.
  enum class Scatter { kUpdate, kAdd, kSub, kMul, kDiv, kMin, kMax };
  // Ids int64 or int32. InvalidArgument: another dtype or row shape, an id outside, a num_rows that
  // is not the variable's, or arithmetic on bool.
  absl::Status ScatterRows(Scatter op, const IndexedSlices& rows) const;

 private:
  friend class StrategyExtended;  // asks whose it is
  absl::StatusOr<std::shared_ptr<VariableStore>> StoreHere() const;
  absl::StatusOr<Tensor> ReadRows(std::optional<Tensor> ids) const;
  absl::Status WriteDense(WriteOp op, const Tensor& value) const;
  absl::Status CombineAndWrite(class ReplicaContext& replica, VariableStore& store, WriteOp op,
                               const Tensor& value) const;

  std::shared_ptr<VariableStore> store_;
  std::shared_ptr<const VariableInfo> info_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_H_
