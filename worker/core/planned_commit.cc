#include "worker/core/planned_commit.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "kernels/not_finite.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// Enough to keep several cores busy, and few enough to leave cores to the rest of the machine.
constexpr size_t kLanes = 4;
// The elements of each gradient that a histogram is made from.
constexpr int64_t kSampledElements = 1 << 16;

using Parts = std::map<int, std::vector<CommitPart>>;

// Deleting a variable waits until no step is in flight, so normally all variables exist.
absl::Status CheckWrites(const CommitWork& work) {
  for (const StagedWrite& write : work.writes) RETURN_IF_ERROR(CheckWrite(*work.layout, write));
  return absl::OkStatus();
}

absl::Status CheckSums(const Layout& layout, absl::Span<const CommitPart> parts) {
  for (const CommitPart& part : parts) {
    if (part.op != WriteOp::kGradient || !part.rows) continue;
    const int64_t bad = FirstNotFinite(part.values);
    if (bad < 0) continue;
    const VariableLayout& variable = *layout.Find(part.shard.variable);
    const int64_t first = variable.spec.table ? 0 : variable.offsets[part.shard.part];
    const int64_t row =
        part.rows->data_as<int64_t>()[bad / variable.spec.shape.row_elements()] + first;
    return absl::InvalidArgumentError(
        absl::StrCat("gradient to variable \"", variable.spec.name, "\": the rows of id ", row,
                     " are finite, and their sum is ", part.values.data_as<float>()[bad],
                     " (found by --check_numerics); look for a loss that overflows or a learning "
                     "rate that is too high"));
  }
  return absl::OkStatus();
}

absl::Status CheckParts(const CommitWork& work, const Parts& parts) {
  for (const auto& [ps, part] : parts) {
    const auto link = work.links->ps.find(ps);
    if (link == work.links->ps.end())
      return absl::InternalError(
          absl::StrCat("ps ", ps,
                       " has a shard that this step writes to, but the Attach of this session did "
                       "not name that ps"));
    if (absl::Status bad = CheckOptimizers(*work.layout, part); !bad.ok()) return MarkUser(bad);
    if (absl::Status large = CheckCommitSize(part, ps, link->second.max_commit_bytes); !large.ok())
      return MarkUser(large);
    if (!work.check_numerics) continue;
    if (absl::Status bad = CheckSums(*work.layout, part); !bad.ok()) return MarkUser(bad);
  }
  return absl::OkStatus();
}

// The gradients as the servers get them: rows of equal ids are summed. A step may stage several
// gradients of a variable. The first one of each shard stands for all of them.
std::vector<GradientHistogram> GradientsOf(const CommitWork& work,
                                           const absl::StatusOr<Parts>& parts) {
  std::vector<GradientHistogram> gradients;
  if (!work.want_gradients || !parts.ok()) return gradients;
  std::set<std::pair<VariableId, int>> seen;
  std::map<VariableId, std::vector<Tensor>> by_variable;
  for (const auto& [ps, commits] : *parts) {
    for (const CommitPart& part : commits) {
      if (part.op == WriteOp::kGradient &&
          seen.emplace(part.shard.variable, part.shard.part).second)
        by_variable[part.shard.variable].push_back(part.values);
    }
  }
  for (const auto& [variable, values] : by_variable) {
    if (gradients.size() == static_cast<size_t>(GradientHistogram::kMost)) break;
    gradients.push_back({work.layout->Find(variable)->spec.name,
                         HistogramOfParts(values, kHistogramBuckets, kSampledElements)});
  }
  return gradients;
}

// One plan, made by several threads.
class Planning : public std::enable_shared_from_this<Planning> {
 public:
  Planning(Executor& executor, std::shared_ptr<const CommitWork> work,
           std::function<void(PlannedCommit)> done)
      : executor_(executor), work_(std::move(work)), done_(std::move(done)) {}

  void Run() {
    if (absl::Status gone = CheckWrites(*work_); !gone.ok()) return Finish(std::move(gone));
    planner_ = std::make_unique<CommitPlanner>(*work_->layout, work_->writes, work_->ordinal,
                                               work_->learning_rate_scale, Rounding::kAsSpecified);
    if (planner_->units() == 0) return Finish(TakeParts());
    for (size_t lane = 1; lane < std::min(kLanes, planner_->units()); ++lane) {
      executor_.PostBlocking("commit", [self = shared_from_this()] { self->RunUnits(); });
    }
    RunUnits();
  }

 private:
  void RunUnits() {
    for (size_t unit = next_++; unit < planner_->units(); unit = next_++) {
      planner_->Run(unit);
      if (++finished_ == planner_->units()) return Finish(TakeParts());
    }
  }
  absl::StatusOr<Parts> TakeParts() {
    Parts parts = std::move(*planner_).Take();
    RETURN_IF_ERROR(CheckParts(*work_, parts));
    return parts;
  }
  void Finish(absl::StatusOr<Parts> parts) {
    PlannedCommit plan{work_->layout->version(), work_->layout->hash(), std::move(parts)};
    plan.gradients = GradientsOf(*work_, plan.parts);
    done_(std::move(plan));
  }

  Executor& executor_;
  const std::shared_ptr<const CommitWork> work_;
  const std::function<void(PlannedCommit)> done_;
  std::unique_ptr<CommitPlanner> planner_;
  std::atomic<size_t> next_{0}, finished_{0};
};

}  // namespace

int64_t SampledElements(absl::Span<const StagedWrite> writes) {
  int64_t elements = 0;
  for (const StagedWrite& write : writes) {
    if (write.op == WriteOp::kGradient)
      elements += std::min(kSampledElements, write.value.shape().num_elements());
  }
  return elements;
}

bool Assigns(const StagedWrite& write) {
  return write.op == WriteOp::kAssign || write.op == WriteOp::kScatterUpdate;
}

PlannedCommit PlanCommit(const CommitWork& work) {
  const auto plan = [&work]() -> absl::StatusOr<Parts> {
    RETURN_IF_ERROR(CheckWrites(work));
    Parts parts = PlanCommits(*work.layout, work.writes, work.ordinal, work.learning_rate_scale,
                              Rounding::kAsSpecified);
    RETURN_IF_ERROR(CheckParts(work, parts));
    return parts;
  };
  PlannedCommit planned{work.layout->version(), work.layout->hash(), plan()};
  planned.gradients = GradientsOf(work, planned.parts);
  return planned;
}

void PlanCommitOn(Executor& executor, std::shared_ptr<const CommitWork> work,
                  std::function<void(PlannedCommit)> done) {
  auto planning = std::make_shared<Planning>(executor, std::move(work), std::move(done));
  executor.PostBlocking("commit", [planning = std::move(planning)] { planning->Run(); });
}

}  // namespace divvy
