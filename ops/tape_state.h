// The recording of a tape. Private to ops/.
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

// A value that was read or watched; gradients end here.
struct Leaf {
  std::shared_ptr<VarNode> node;
  std::string name;
  // Whether a Var of it was returned to the program. Prefetch alone returns none.
  bool asked = false;
  // For a lookup: the ids that were asked for.
  std::optional<Tensor> ids;
  // The ids of the rows that are read for it.
  std::optional<Tensor> read_ids;
  // The number of rows of its table.
  int64_t num_rows = 0;
  // For a lookup: computes the Var's value from the rows that were read.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows)> from_rows;
  // For a lookup: computes its gradient, row by row.
  std::function<absl::StatusOr<Tensor>(const Tensor& gradient)> to_rows;
};

// An operation whose result depends on a leaf.
struct Operation {
  std::shared_ptr<VarNode> output;
  std::vector<std::shared_ptr<VarNode>> inputs;  // null where no gradient is needed
  Backward backward;
};

// Leaves and operations in the order of their creation. Walking back from the end meets each result
// before its inputs. Vars point to a TapeState and never the reverse, so a value that nobody holds
// and no derivative needs is freed at once.
class TapeState {
 public:
  TapeState(VariableReader& variables, bool records);
  ~TapeState();
  TapeState(const TapeState&) = delete;

  // The innermost (youngest) tape that lives on this thread, or null. An operation on a constant
  // uses it if it needs a tape.
  static TapeState* Innermost();

  VariableReader& variables() { return variables_; }
  bool records() const { return records_; }
  // 1, 2, ...: numbers the random operations of a step in the order in which they run.
  uint64_t NextDraw() { return ++draws_; }

  // The leaf of a whole variable. It is pending from its first use until it is fetched.
  Leaf& Whole(absl::string_view name);
  // Adds a leaf that waits for the next fetch.
  Leaf& AddPending(absl::string_view name);
  // Adds a leaf that has a value. InvalidArgument: the name is taken.
  absl::StatusOr<std::shared_ptr<VarNode>> AddWatched(absl::string_view name, Tensor value);
  void AddOperation(Operation operation) { operations_.push_back(std::move(operation)); }

  // Fetches everything that is pending. An error becomes that of each pending leaf.
  void Flush();
  absl::StatusOr<Gradients> Differentiate(const std::shared_ptr<VarNode>& target);
  // The gradients of `scale` times the sum of the target's elements.
  absl::StatusOr<Gradients> DifferentiateSum(const std::shared_ptr<VarNode>& target, double scale);

 private:
  void ForgetLookups();  // REQUIRES: none of them is pending
  absl::Status CheckDifferentiable(const VarNode& target) const;
  absl::Status CheckTables() const;
  // Walks from a target on `device` back to the leaves.
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
