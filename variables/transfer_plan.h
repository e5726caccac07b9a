// From variables to shards and back: what a read or a set of writes means for each parameter
// server. Pure functions of the layout; tensors lie on the CPU.
//
//   DIVVY_RETURN_IF_ERROR(CheckWrite(*layout, write));
//   // A CommitRequest to each.
//   for (auto& [ps, parts] : PlanCommits(*layout, {write}, ordinal, /*learning_rate_scale=*/1)) ...
//
//   DIVVY_RETURN_IF_ERROR(CheckRead(*layout, read));
//   const PullPlan plan(*layout, {read});
//   for (const auto& [ps, parts] : plan.parts()) ...  // a PullRequest to each
//   // When all have answered:
//   DIVVY_ASSIGN_OR_RETURN(std::vector<Tensor> values, plan.Assemble(replies));
#ifndef DIVVY_VARIABLES_TRANSFER_PLAN_H_
#define DIVVY_VARIABLES_TRANSFER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/write_op.h"
#include "variables/layout.h"
#include "variables/shard_transfer.h"

namespace divvy {

// A whole variable, or the rows at `ids` (int64, any shape; global, repeats allowed).
struct VariableRead {
  std::string variable;
  std::optional<Tensor> ids;
};

// One write to a variable: `value` is whole (assign, add, sub, dense gradient) or the rows at `ids`
// (int64 [n], global): scatters, sparse gradients.
struct StagedWrite {
  std::string variable;
  WriteOp op = WriteOp::kAssign;
  Tensor value;
  std::optional<Tensor> ids;
  std::optional<Optimizer> optimizer;  // of a gradient: instead of the variable's own
};

// Bytes of one row of a variable.
int64_t RowBytes(const VariableSpec& spec);

// Everything about a write that could be refused: NotFound (with near names), InvalidArgument
// (dtype, shape, an id outside the variable, a gradient of a variable that is not float32 or has no
// optimizer), each naming the variable and both shapes. OK: no ps will refuse it.
// REQUIRES: write.optimizer, where there is one, has passed Validate.
absl::Status CheckWrite(const Layout& layout, const StagedWrite& write);
// NotFound, as above; InvalidArgument: rows of a variable of rank 0, ids that are no int64 on the
// CPU, or an id outside the variable.
absl::Status CheckRead(const Layout& layout, const VariableRead& read);

// The optimizer a gradient is applied with: the write's, else the variable's. REQUIRES: CheckWrite
// is OK, op is kGradient.
const Optimizer& OptimizerOf(const Layout& layout, const StagedWrite& write);
// The optimizers whose slots the gradients among `writes` need and `layout` lacks, each with its
// variable: their slots are created before the commit is planned.
std::vector<std::pair<std::string, Optimizer>> MissingSlots(const Layout& layout,
                                                            absl::Span<const StagedWrite> writes);

// What each ps is asked to do, in the order given. Rows of a gradient are summed by id; a shard
// that no row falls into is not asked. The learning rate is evaluated at `ordinal` and scaled.
// Takes seconds for a gigabyte of rows: not under a lock that others wait for (PlanningBytes).
// REQUIRES: CheckWrite is OK for each, and the slots of every optimizer are in the layout.
std::map<int, std::vector<CommitPart>> PlanCommits(const Layout& layout,
                                                   absl::Span<const StagedWrite> writes,
                                                   int64_t ordinal, double learning_rate_scale);
// What PlanCommits sorts, sums or copies of these writes. Whole values are cut without a copy, and
// count as nothing.
int64_t PlanningBytes(absl::Span<const StagedWrite> writes);

// PlanCommits in units that may run at the same time: each makes the rows of one shard.
class CommitPlanner {
 public:
  // REQUIRES: as PlanCommits; layout and writes outlive the planner.
  CommitPlanner(const Layout& layout, absl::Span<const StagedWrite> writes, int64_t ordinal,
                double learning_rate_scale);
  ~CommitPlanner();
  CommitPlanner(const CommitPlanner&) = delete;

  size_t units() const { return units_.size(); }
  // REQUIRES: 0 <= unit < units(), each once.
  void Run(size_t unit);
  // REQUIRES: every unit has been run.
  std::map<int, std::vector<CommitPart>> Take() &&;

 private:
  struct Unit;
  void AddDense(const VariableLayout& variable, const StagedWrite& write, const CommitPart& common);
  void AddSparse(const VariableLayout& variable, const StagedWrite& write,
                 const CommitPart& common);

  std::map<int, std::vector<CommitPart>> commits_;
  std::vector<std::unique_ptr<const Unit>> units_;
};

// Of the tensors of a commit, as they travel: values and rows.
int64_t PayloadBytes(absl::Span<const CommitPart> parts);
// The error of an optimizer whose learning rate cannot be, now that it is known: the schedule's at
// this step, times the scale.
absl::Status CheckOptimizers(const Layout& layout, absl::Span<const CommitPart> parts);
// InvalidArgument, naming the figures and the flag, where a commit is larger than ps `ps` takes.
// `max_bytes` 0: it takes any.
absl::Status CheckCommitSize(absl::Span<const CommitPart> parts, int ps, int64_t max_bytes);

// One pull for each ps, and how the answers become the values asked for.
class PullPlan {
 public:
  PullPlan() = default;
  // REQUIRES: CheckRead is OK for each.
  PullPlan(const Layout& layout, absl::Span<const VariableRead> reads);

  const std::map<int, std::vector<PullPart>>& parts() const { return parts_; }  // by ps
  // The values, in the order of the reads: whole ones in the variable's shape, rows as ids.shape +
  // row shape, in the order asked.
  // REQUIRES: replies are those to parts(), one for each ps. InvalidArgument: a reply that does not
  // fit.
  // Copies copied_bytes(): what is large is not assembled under a lock that others wait for.
  absl::StatusOr<std::vector<Tensor>> Assemble(const std::map<int, PullReply>& replies) const;
  int64_t copied_bytes() const;

 private:
  struct Piece {  // of one read: where a part's rows go
    int ps = 0;
    size_t part = 0;                 // index into parts_[ps]
    int64_t first_row = 0;           // whole reads: of the result
    std::vector<int64_t> positions;  // row reads: result row of each row of the part
  };
  struct Target {
    DType dtype;
    Shape shape;
    int64_t row_bytes = 0;
    std::vector<Piece> pieces;
    bool whole = true;
    bool IsOneShard() const { return whole && pieces.size() == 1; }  // the reply is the value
  };
  void AddWhole(const VariableLayout& variable);
  void AddRows(const VariableLayout& variable, const Tensor& ids);
  size_t AddPart(int ps, PullPart part);
  absl::Status Fill(const Target& target, const std::map<int, PullReply>& replies,
                    Tensor& result) const;

  std::map<int, std::vector<PullPart>> parts_;
  std::vector<Target> targets_;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TRANSFER_PLAN_H_
