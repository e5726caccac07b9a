// A tape's recording. Private to ops/.
#ifndef DIVVY_OPS_TAPE_STATE_H_
#define DIVVY_OPS_TAPE_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/gradients.h"
#include "ops/recording.h"
#include "ops/variable_reader.h"

namespace divvy::internal {

// Something read or watched: where gradients end.
struct Leaf {
  std::shared_ptr<VarNode> node;
  std::string name;
  // A Var of it was given out; Prefetch alone does not.
  bool asked = false;
  // Of a lookup, as it was asked for.
  std::optional<Tensor> ids;
  // The rows that are read for it.
  std::optional<Tensor> read_ids;
  // Of its table.
  int64_t num_rows = 0;
  // Of a lookup: what the Var holds, given the rows read.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows)> from_rows;
  // Of a lookup: its gradient, row by row.
  std::function<absl::StatusOr<Tensor>(const Tensor& gradient)> to_rows;
};

// An operation whose result depends on a leaf.
struct Operation {
  std::shared_ptr<VarNode> output;
  std::vector<std::shared_ptr<VarNode>> inputs;  // null where no gradient is needed
  Backward backward;
};

// Leaves and operations in the order they came, so that walking back from the end meets each result
// before its inputs. Vars point here, never the other way round: what nobody holds and no
// derivative needs is freed at once.
class TapeState {
 public:
  TapeState(VariableReader& variables, bool records);
  ~TapeState();
  TapeState(const TapeState&) = delete;

  // The youngest tape that lives on this thread, or null: the one that a constant belongs to, where
  // an operation must know.
  static TapeState* Innermost();

  VariableReader& variables() { return variables_; }
  bool records() const { return records_; }
  // 1, 2, ...: tells apart the random operations of a step, in the order they run
  uint64_t NextDraw() { return ++draws_; }

  // The leaf of a whole variable, pending since it was first named.
  Leaf& Whole(absl::string_view name);
  // A leaf that waits for the next fetch.
  Leaf& AddPending(absl::string_view name);
  // A leaf with a value.
  absl::StatusOr<std::shared_ptr<VarNode>> AddWatched(absl::string_view name, Tensor value);
  void AddOperation(Operation operation) { operations_.push_back(std::move(operation)); }

  // Fetches everything pending; an error becomes that of each.
  void Flush();
  absl::StatusOr<Gradients> Differentiate(const std::shared_ptr<VarNode>& target);
  // Of scale times the sum of the target's elements.
  absl::StatusOr<Gradients> DifferentiateSum(const std::shared_ptr<VarNode>& target, double scale);

 private:
  void ForgetLookups();  // REQUIRES: none of them is pending
  absl::Status CheckDifferentiable(const VarNode& target) const;
  absl::Status CheckTables() const;
  // From a target that lies on `device`.
  absl::Status WalkBack(Device device);
  static absl::Status StepBack(Operation& operation);
  absl::StatusOr<Gradients> Collect();

  VariableReader& variables_;
  bool records_;
  uint64_t draws_ = 0;
  bool differentiated_ = false;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  std::map<std::string, Leaf*, std::less<>> whole_;  // by name: read, prefetched or watched
  std::vector<Leaf*> pending_;
  std::vector<Operation> operations_;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_TAPE_STATE_H_
