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
#include "kernels/write_op.h"
#include "strategy/table_rows.h"
#include "strategy/variable_index.h"
#include "tensor/tensor.h"
#include "variables/variable_spec.h"

namespace divvy {

class VariableStore;
struct VariableInfo;

// A handle to a variable. Cheap to copy; thread-safe. The variable belongs to the job and lives as
// long as the job, not as long as its handles. Reads and writes after the coordinator is destroyed
// are FailedPrecondition.
//
//   // a VariableSpec converts to its name
//   ASSIGN_OR_RETURN(const Variable kernel, worker.strategy().FindVariable(kKernel));
//   ASSIGN_OR_RETURN(const Tensor rows, kernel.Slice(0, 10));
//   RETURN_IF_ERROR(kernel.ScatterRows(Variable::Scatter::kAdd,
//                                      {ids, updates, /*num_rows=*/1000}));
//
// The meaning of a call depends on where it is made:
//   the program             applied at once to all shards; the call returns when that is done
//   step function           staged as part of the step's one commit; the step's own reads see its
//                           assigns
//   replica function        assigns are collectives: the spec's aggregation combines the replicas'
//                           values (kNone: InvalidArgument). Scatters are not combined: each
//                           counts, in the order in which the replicas make them, so if two
//                           replicas update one row (kUpdate), either value may remain
//
// A handle from elsewhere in the job may be used in a step, and then acts for that step. If another
// job's strategy is current on the thread (its scope, or one of its steps), every call returns
// FailedPrecondition and names both jobs.
//
// Shapes are checked completely before anything is sent. All calls may block. If a parameter server
// does not answer, a call of the program waits for up to --ps_timeout and then returns Unavailable
// (return from the program). A call in a step waits until the server answers, or until the step is
// cancelled.
//
// In a replica function, values are read to the replica's device; elsewhere to the CPU. Values to
// write may be on any device. A read is not a snapshot: if steps commit meanwhile, some blocks of
// rows may already include a commit and others not.
//
// Errors of all calls, none of which has written anything. InvalidArgument: as below; it names the
// variable and both shapes. Cancelled: the step or the process is to end; return soon.
// FailedPrecondition: a read or a write of a variable after its gradient in the same step, a write
// in a read-only step, or a step that has ended.
class Variable {
 public:
  // For Strategy and its implementers. REQUIRES: neither is null.
  Variable(std::shared_ptr<VariableStore> store, std::shared_ptr<const VariableInfo> info)
      : store_(std::move(store)), info_(std::move(info)) {}

  // The variable's description, without initializer and partitioner. Does not block.
  const VariableSpec& spec() const;
  // The first row of each shard, and the end: [num_shards + 1]. Of a scalar: {0, 1}.
  absl::Span<const int64_t> shard_offsets() const;
  // The parameter server of each shard, [num_shards], at the time when the handle was made.
  // Resizing the job moves shards; FindVariable returns a handle with the new servers.
  std::vector<int> shard_servers() const;
  operator absl::string_view() const { return spec().name; }

  // Reads the whole variable, in its shape. The whole value is sent, whatever its size.
  absl::StatusOr<Tensor> Read() const;
  // Reads rows start, start + step, ... up to, but not including, stop, by all of Python's rules.
  // (TensorFlow's containers differ if start is out of range and |step| > 1.) Only these rows are
  // sent. InvalidArgument: step 0, or a variable of rank 0.
  absl::StatusOr<Tensor> Slice(std::optional<int64_t> start, std::optional<int64_t> stop,
                               int64_t step = 1) const;
  // Reads a part by NumPy's index rules: v[2:6, ..., -1] is At({IndexSlice{2, 6}, Ellipsis{}, -1}).
  // (TensorFlow's containers apply the items after a leading new axis to each shard.) Only the rows
  // that the part touches are sent. OutOfRange: an integer outside its axis. InvalidArgument: a
  // step of 0, more items than axes, or two ellipses.
  absl::StatusOr<Tensor> At(absl::Span<const IndexItem> index) const;
  // Reads the rows `ids`, as TensorFlow's sparse_read but in the order of the ids. The result has
  // shape ids.shape + row shape. `ids` is int64 or int32, of any shape. InvalidArgument: an id
  // outside the variable, ids of another dtype, or a variable of rank 0.
  absl::StatusOr<Tensor> Rows(const Tensor& ids) const;

  // Of a dynamic table: what each key has, in the order of `keys`; repeats are allowed. Makes no
  // row. In a step, the values include the step's own writes, and counts do not. Values and counts
  // may be of different moments while steps commit. InvalidArgument: the variable is no dynamic
  // table.
  //
  //   ASSIGN_OR_RETURN(const std::vector<TableRow> rows, users.Find({17, 42}));
  //   if (rows[0].exists) ... rows[0].count, rows[0].values
  absl::StatusOr<std::vector<TableRow>> Find(absl::Span<const int64_t> keys) const;
  // Of a dynamic table: its rows, its memory, and what has become of keys, for each parameter
  // server and together. InvalidArgument: the variable is no dynamic table.
  //
  //   ASSIGN_OR_RETURN(const TableStats stats, users.Stats());
  //   if (stats.refused > 0) ... the table is full
  absl::StatusOr<TableStats> Stats() const;

  // Set the variable to `value`, add it, or subtract it. In a Run over several replicas these are
  // collectives: every replica must make the call. InvalidArgument: `value` has another dtype or
  // shape (nothing is broadcast), or AssignAdd and AssignSub of bool.
  absl::Status Assign(const Tensor& value) const;
  absl::Status AssignAdd(const Tensor& value) const;
  absl::Status AssignSub(const Tensor& value) const;

  // tf.Variable's scatter_update, scatter_add, ... If several rows have the same id, kUpdate keeps
  // the last one and the other ops apply each. Integers wrap around, and dividing them by 0 gives
  // 0. kMin and kMax leave an element unchanged if either value is NaN.
  enum class Scatter { kUpdate, kAdd, kSub, kMul, kDiv, kMin, kMax };
  // Applies `op` to the given rows: ids [n], rows [n] + row shape. Ids are int64 or int32.
  // InvalidArgument: another dtype or row shape, an id outside the variable, a num_rows that
  // differs from the variable's, or arithmetic on bool.
  absl::Status ScatterRows(Scatter op, const IndexedSlices& rows) const;

 private:
  friend class StrategyExtended;  // compares the jobs of two stores
  absl::StatusOr<std::shared_ptr<VariableStore>> StoreHere() const;
  absl::StatusOr<Tensor> ReadRows(std::optional<Tensor> ids) const;
  // InvalidArgument: it is no dynamic table.
  absl::Status CheckIsTable(absl::string_view what) const;
  // InvalidArgument: it is a dynamic table.
  absl::Status CheckHasRowNumbers(absl::string_view what) const;
  absl::Status WriteDense(WriteOp op, const Tensor& value) const;
  absl::Status CombineAndWrite(class ReplicaContext& replica, VariableStore& store, WriteOp op,
                               const Tensor& value) const;

  std::shared_ptr<VariableStore> store_;
  std::shared_ptr<const VariableInfo> info_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_H_
