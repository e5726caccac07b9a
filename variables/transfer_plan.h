// From variables to shards and back: which parts of a read or of a list of writes go to which
// parameter server. Pure functions of the layout. Tensors lie on the CPU.
//
//   DIVVY_RETURN_IF_ERROR(CheckWrite(*layout, write));
//   // Send a CommitRequest to each.
//   for (auto& [ps, parts] : PlanCommits(*layout, {write}, ordinal, /*learning_rate_scale=*/1)) ...
//
//   DIVVY_RETURN_IF_ERROR(CheckRead(*layout, read));
//   const PullPlan plan(*layout, {read});
//   // Send a PullRequest to each.
//   for (const auto& [ps, parts] : plan.parts()) ...
//   // When all have replied:
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
#include "kernels/duplicates.h"
#include "kernels/write_op.h"
#include "variables/layout.h"
#include "variables/shard_transfer.h"

namespace divvy {

// A read of a whole variable, or of the rows at `ids` (int64, any shape; row numbers of the whole
// variable, or keys of a table; repeats allowed). PullWant says what is read of a table.
struct VariableRead {
  std::string variable;
  std::optional<Tensor> ids;
  PullWant want = PullWant::kValues;
};

// One write to a variable. Without `ids`, `value` is the whole variable (assign, add, sub, dense
// gradient). With `ids` (int64 [n], row numbers of the whole variable, or keys of a table), it has
// one row for each id (scatters, sparse gradients). Of a table, an assign has ids: with float32
// rows the keys get rows with these values, whatever the table admits; with int64 [n] their rows,
// if they have one, get these counts.
struct StagedWrite {
  std::string variable;
  WriteOp op = WriteOp::kAssign;
  Tensor value;
  std::optional<Tensor> ids;
  // Gradients: used in place of the variable's own optimizer.
  std::optional<Optimizer> optimizer;
};

// Whether values may be rounded as the variables' specs say (WireFormat).
enum class Rounding { kNever, kAsSpecified };

// The size of one row of a variable, in bytes.
int64_t RowBytes(const VariableSpec& spec);

// Checks everything for which a ps could refuse the write; after OK no ps refuses it. NotFound: no
// such variable; the message has near names. InvalidArgument: a wrong dtype or shape, an id outside
// the variable, a gradient of a variable that is not float32 or has no optimizer, or what a table
// does not take: a whole value, another scatter than update, add and sub, or the gradient of an
// optimizer with other slots than its own. The message names the variable; for a wrong value it has
// the value's and the wanted shape. REQUIRES: write.optimizer, if set, has passed Validate.
absl::Status CheckWrite(const Layout& layout, const StagedWrite& write);
// Checks a read. NotFound as above. InvalidArgument: rows of a variable of rank 0, ids that are not
// int64 on the CPU, an id outside the variable, a whole table, or records or statistics of what is
// no table.
absl::Status CheckRead(const Layout& layout, const VariableRead& read);

// The optimizer that applies a gradient: the write's own, else the variable's. REQUIRES: CheckWrite
// is OK, op is kGradient.
const Optimizer& OptimizerOf(const Layout& layout, const StagedWrite& write);
// The optimizers whose slots the gradients among `writes` need and `layout` lacks, each with its
// variable. The caller has these slots created before it plans the commit.
std::vector<std::pair<std::string, Optimizer>> MissingSlots(const Layout& layout,
                                                            absl::Span<const StagedWrite> writes);

// Plans the commits: ps -> its parts, in the order of the writes. Sums the rows of a gradient by
// id. A shard without any of the rows has no part. Evaluates the learning rate at `ordinal` and
// scales it. Whole gradients may be rounded; at random they are by `ordinal`. A gigabyte of rows
// takes seconds, so do not call this under a lock that other threads wait for (PlanningBytes).
// REQUIRES: CheckWrite is OK for each write, and the slots of every optimizer are in the layout.
std::map<int, std::vector<CommitPart>> PlanCommits(const Layout& layout,
                                                   absl::Span<const StagedWrite> writes,
                                                   int64_t ordinal, double learning_rate_scale,
                                                   Rounding rounding = Rounding::kNever);
// The number of bytes that PlanCommits sorts, sums, rounds (kAsSpecified) or copies for these
// writes. Whole values that are not rounded are cut without a copy and count as 0.
int64_t PlanningBytes(const Layout& layout, absl::Span<const StagedWrite> writes);

// PlanCommits in units that may run at the same time. Each unit makes the rows of one shard. Only
// Run is thread-safe.
class CommitPlanner {
 public:
  // REQUIRES: as PlanCommits; layout and writes outlive the planner.
  CommitPlanner(const Layout& layout, absl::Span<const StagedWrite> writes, int64_t ordinal,
                double learning_rate_scale, Rounding rounding = Rounding::kNever);
  ~CommitPlanner();
  CommitPlanner(const CommitPlanner&) = delete;

  size_t units() const { return units_.size(); }
  // REQUIRES: 0 <= unit < units(). Call it once for each unit.
  void Run(size_t unit);
  // REQUIRES: Run has returned for every unit.
  std::map<int, std::vector<CommitPart>> Take() &&;

 private:
  struct Unit;
  void AddDense(const VariableLayout& variable, const Tensor& value, const CommitPart& common);
  void AddSparse(const VariableLayout& variable, const StagedWrite& write,
                 const CommitPart& common);

  std::map<int, std::vector<CommitPart>> commits_;
  std::vector<std::unique_ptr<const Unit>> units_;
};

// The bytes of a commit's tensors, values and rows, as they are sent.
int64_t PayloadBytes(absl::Span<const CommitPart> parts);
// Checks the learning rates of a planned commit: the schedule's value at this step, times the
// scale. Returns the error of the first optimizer whose learning rate is not valid.
absl::Status CheckOptimizers(const Layout& layout, absl::Span<const CommitPart> parts);
// InvalidArgument if a commit is larger than parameter server `ps` accepts. The message has both
// sizes and the flag. `max_bytes` 0: no limit.
absl::Status CheckCommitSize(absl::Span<const CommitPart> parts, int ps, int64_t max_bytes);

// One pull for each ps, and the assembly of the replies into the requested values.
class PullPlan {
 public:
  PullPlan() = default;
  // REQUIRES: CheckRead is OK for each.
  PullPlan(const Layout& layout, absl::Span<const VariableRead> reads,
           Rounding rounding = Rounding::kNever);

  // by ps
  const std::map<int, std::vector<PullPart>>& parts() const { return parts_; }
  // Returns the values in the order of the reads. A whole variable has the variable's shape; rows
  // have the shape ids.shape + row shape, in the order of the ids; records have ids.shape + [2];
  // the statistics of a table are int64 [parts, 6]. InvalidArgument: a reply does not fit its
  // request. Copies copied_bytes() bytes, so do not assemble large values under a lock that other
  // threads wait for. REQUIRES: `replies` has the reply to each ps in parts().
  absl::StatusOr<std::vector<Tensor>> Assemble(const std::map<int, PullReply>& replies) const;
  int64_t copied_bytes() const;

 private:
  // Where the rows of one part go in the result of a read.
  struct Piece {
    int ps = 0;
    // an index into parts_[ps]
    size_t part = 0;
    // the part's first row among all rows that the read pulls
    int64_t first_row = 0;
  };
  struct Target {
    DType dtype;
    Shape shape;
    int64_t row_bytes = 0;
    std::vector<Piece> pieces;
    // row reads: the result rows of each row that is pulled. None for a whole read, and for ids
    // that rise: they are pulled as they stand.
    std::optional<RowGroups> groups;
    // Replies have bfloat16.
    bool rounded = false;
    // The reply is the value, without a copy.
    bool IsOneShard() const { return pieces.size() == 1 && !groups && !rounded; }
  };
  void AddWhole(const VariableLayout& variable, bool rounded);
  void AddRows(const VariableLayout& variable, const Tensor& ids, bool rounded);
  void AddKeys(const VariableLayout& variable, const Tensor& asked, PullWant want, bool rounded);
  void AddStats(const VariableLayout& variable);
  size_t AddPart(int ps, PullPart part);
  absl::Status Fill(const Target& target, const std::map<int, PullReply>& replies,
                    Tensor& result) const;

  std::map<int, std::vector<PullPart>> parts_;
  std::vector<Target> targets_;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TRANSFER_PLAN_H_
