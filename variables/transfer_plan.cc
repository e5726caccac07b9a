#include "variables/transfer_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/half.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/bfloat16.h"
#include "variables/table_keys.h"
#include "variables/table_parts.h"
#include "variables/table_tensors.h"
#include "variables/transfer_dtype.h"

namespace divvy {
namespace {

Tensor Int64Vector(const std::vector<int64_t>& values) {
  return Tensor::Vector<int64_t>(absl::MakeConstSpan(values));
}

// The rows of `rows` at `positions`, packed.
Tensor PackRows(const Tensor& rows, const std::vector<int64_t>& positions, const Shape& variable,
                int64_t row_bytes) {
  Tensor packed = *Tensor::Uninitialized(rows.dtype(),
                                         variable.WithRows(static_cast<int64_t>(positions.size())));
  char* out = packed.fresh_data<char>();
  const char* const in = rows.data_as<char>();
  for (size_t i = 0; i < positions.size() && row_bytes > 0; ++i)
    std::memcpy(out + i * row_bytes, in + positions[i] * row_bytes, row_bytes);
  return packed;
}

absl::Status CheckIds(const VariableLayout& variable, const Tensor& ids) {
  if (variable.spec.shape.rank() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", variable.spec.name, "\" is a scalar: it has no rows"));
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> values, ids.values<int64_t>());
  if (variable.spec.table) return absl::OkStatus();  // any number is a key
  for (const int64_t id : values) {
    if (id >= 0 && id < variable.rows()) continue;
    return absl::InvalidArgumentError(absl::StrCat("variable \"", variable.spec.name, "\": id ", id,
                                                   " is outside [0, ", variable.rows(), ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckWant(const VariableLayout& variable, const VariableRead& read) {
  if (read.want == PullWant::kValues) return absl::OkStatus();
  if (!variable.spec.table)
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", read.variable,
                     "\" is no dynamic table: only a table has records and statistics. Read it "
                     "with Read, Slice or Rows, or declare it as a DynamicTable"));
  if (read.ids.has_value() == (read.want == PullWant::kRecords)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dynamic table \"", read.variable,
                   read.ids ? "\": its statistics are of the whole table: give no keys"
                            : "\": records are of keys: name them"));
}

absl::Status WrongShape(const VariableLayout& variable, const StagedWrite& write,
                        absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(WriteOpName(write.op), " to variable \"", variable.spec.name, "\" (",
                   DTypeName(variable.spec.dtype), " ", variable.spec.shape.ToString(),
                   "): the value is ", write.value.ToString(), "; wanted ", wanted));
}

absl::Status CheckTableWrite(const VariableSpec& spec, const StagedWrite& write) {
  const auto invalid = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(WriteOpName(write.op), " to dynamic table \"", spec.name, "\": ", why));
  };
  if (!write.ids) return invalid("a table is written by its keys: give ids");
  if (write.op != WriteOp::kAssign && write.op != WriteOp::kGradient &&
      write.op != WriteOp::kScatterUpdate && write.op != WriteOp::kScatterAdd &&
      write.op != WriteOp::kScatterSub)
    return invalid("it takes gradients, scatter_update, scatter_add and scatter_sub");
  if (!write.optimizer || HaveSameSlots(spec.optimizer, write.optimizer)) return absl::OkStatus();
  return invalid(absl::StrCat("its rows hold the slots of its own optimizer, ",
                              spec.optimizer ? OptimizerName(*spec.optimizer) : "none",
                              ", and not those of ", OptimizerName(*write.optimizer),
                              ": name that optimizer where the table is declared"));
}

absl::Status CheckGradient(const VariableLayout& variable, const StagedWrite& write) {
  if (TransferDType(variable.spec) != DType::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat("variable \"", variable.spec.name, "\" is ",
                                                   DTypeName(variable.spec.dtype),
                                                   ": only float32 variables take gradients"));
  }
  if (!write.optimizer && !variable.spec.optimizer) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", variable.spec.name,
        "\" has no optimizer: name one in its VariableSpec, or give one to ApplyGradients"));
  }
  const absl::Status optimizer = write.optimizer ? Validate(*write.optimizer) : absl::OkStatus();
  return optimizer.ok()
             ? optimizer
             : absl::Status(optimizer.code(), absl::StrCat("variable \"", variable.spec.name,
                                                           "\": ", optimizer.message()));
}

// The ids that fall into one shard of a variable, as local ids, and their places in the read or
// write. In the given order. Of a table, local ids are the ranks of the keys.
struct Bucket {
  std::vector<int64_t> local_ids, positions;
};

std::map<int, Bucket> KeysByPart(const VariableLayout& variable, absl::Span<const int64_t> keys) {
  std::map<int, Bucket> buckets;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t rank = KeyRank(keys[i]);
    Bucket& bucket = buckets[variable.PartOf(BucketOfRank(rank))];
    bucket.local_ids.push_back(rank);
    bucket.positions.push_back(static_cast<int64_t>(i));
  }
  return buckets;
}
std::map<int, Bucket> Buckets(const VariableLayout& variable, absl::Span<const int64_t> ids) {
  if (variable.spec.table) return KeysByPart(variable, ids);
  std::map<int, Bucket> buckets;
  const size_t share = ids.size() / static_cast<size_t>(variable.num_shards());
  Bucket* bucket = nullptr;
  int64_t first = 0, end = 0;  // the rows of `bucket`, which is often the next id's too
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < first || ids[i] >= end) {
      const int part = variable.PartOf(ids[i]);
      const auto [at, is_new] = buckets.try_emplace(part);
      bucket = &at->second;
      if (is_new) {
        bucket->local_ids.reserve(share);
        bucket->positions.reserve(share);
      }
      first = variable.offsets[part];
      end = variable.offsets[part + 1];
    }
    bucket->local_ids.push_back(ids[i] - first);
    bucket->positions.push_back(static_cast<int64_t>(i));
  }
  return buckets;
}

bool StrictlyRises(absl::Span<const int64_t> values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<int64_t>()) ==
         values.end();
}

// The rows of `rows` at rising `positions`: a view where they lie one behind another, else a copy.
Tensor TakeRows(const Tensor& rows, const std::vector<int64_t>& positions, const Shape& variable,
                int64_t row_bytes) {
  const int64_t first = positions.front(), last = positions.back();
  if (last - first + 1 == static_cast<int64_t>(positions.size()))
    return *rows.Rows(first, last + 1);
  return PackRows(rows, positions, variable, row_bytes);
}

bool IsRounded(const VariableLayout& variable, const StagedWrite& write) {
  return variable.spec.wire != WireFormat::kExact && write.op == WriteOp::kGradient && !write.ids;
}

// The gradient as bfloat16. The whole one is rounded, so its bits do not depend on the cut.
Tensor Rounded(const VariableSpec& spec, const Tensor& gradient, int64_t ordinal) {
  Tensor rounded = *Tensor::Uninitialized(DType::kBFloat16, gradient.shape());
  const int64_t count = gradient.shape().num_elements();
  auto* const out = rounded.fresh_data<BFloat16Bits>();
  if (spec.wire == WireFormat::kBFloat16)
    ToBFloat16(gradient.data_as<float>(), count, out);
  else
    ToBFloat16AtRandom(gradient.data_as<float>(), count,
                       MixSeeds(HashText(spec.name), static_cast<uint64_t>(ordinal)), out);
  return rounded;
}

// The ids of a bucket, each with the rows of the write that name it.
RowGroups GroupsOf(const Bucket& bucket) {
  RowGroups groups = GroupById(bucket.local_ids);
  for (int64_t& row : groups.rows) row = bucket.positions[row];
  return groups;
}

// The sum of the rows of each group. Each is written in place: a commit of a gigabyte needs one
// more gigabyte, not three.
Tensor SumsOf(const StagedWrite& write, const RowGroups& groups, const Shape& variable) {
  Tensor sums = *Tensor::Uninitialized(DType::kFloat32,
                                       variable.WithRows(static_cast<int64_t>(groups.ids.size())));
  SumGroups(groups, write.value.data_as<float>(), variable.row_elements(),
            sums.fresh_data<float>());
  return sums;
}

// A part of a gradient in which ids are named several times, or in no order.
void SumRows(const StagedWrite& write, const VariableLayout& variable, const Bucket& bucket,
             CommitPart& part) {
  const RowGroups groups = GroupsOf(bucket);
  part.rows = Int64Vector(groups.ids);
  part.values = SumsOf(write, groups, variable.spec.shape);
}

// The first of the places of each group.
std::vector<int64_t> FirstOfGroups(const RowGroups& groups) {
  std::vector<int64_t> first;
  first.reserve(groups.ids.size());
  for (size_t i = 0; i < groups.ids.size(); ++i) first.push_back(groups.rows[groups.splits[i]]);
  return first;
}

std::vector<int64_t> At(absl::Span<const int64_t> values, const std::vector<int64_t>& positions) {
  std::vector<int64_t> taken;
  taken.reserve(positions.size());
  for (const int64_t position : positions) taken.push_back(values[position]);
  return taken;
}

// Whether a write sets the counts of rows of a table, and not their values.
bool SetsCounts(const VariableSpec& spec, const StagedWrite& write) {
  return spec.table && write.op == WriteOp::kAssign && write.value.dtype() == DType::kInt64;
}

// A table's part of a write: unique keys in the order of their ranks. Rows of one key are summed;
// of an update or an assignment, the last one stays.
void MakeKeyRows(const StagedWrite& write, const VariableLayout& variable, const Bucket& bucket,
                 CommitPart& part) {
  const RowGroups groups = GroupsOf(bucket);
  part.rows = Int64Vector(At(*write.ids->values<int64_t>(), FirstOfGroups(groups)));
  if (write.op != WriteOp::kScatterUpdate && write.op != WriteOp::kAssign) {
    part.values = SumsOf(write, groups, variable.spec.shape);
    return;
  }
  std::vector<int64_t> last;
  for (size_t i = 0; i < groups.ids.size(); ++i)
    last.push_back(groups.rows[groups.splits[i + 1] - 1]);
  const Shape& shape = write.value.shape();
  part.values =
      PackRows(write.value, last, shape, shape.row_elements() * DTypeSize(write.value.dtype()));
}

}  // namespace

std::vector<std::pair<std::string, Optimizer>> MissingSlots(const Layout& layout,
                                                            absl::Span<const StagedWrite> writes) {
  std::vector<std::pair<std::string, Optimizer>> missing;
  // A step stages one gradient for each variable, so no pair comes twice.
  for (const StagedWrite& write : writes) {
    if (write.op != WriteOp::kGradient) continue;
    const VariableLayout* const variable = layout.Find(write.variable);
    if (variable == nullptr) continue;
    const Optimizer& optimizer = OptimizerOf(layout, write);
    if (!variable->SlotsFor(optimizer)) missing.emplace_back(write.variable, optimizer);
  }
  return missing;
}

int64_t RowBytes(const VariableSpec& spec) {
  return spec.shape.row_elements() * DTypeSize(TransferDType(spec));
}

absl::Status CheckWrite(const Layout& layout, const StagedWrite& write) {
  const VariableLayout* variable = layout.Find(write.variable);
  if (variable == nullptr) return layout.UnknownVariable(write.variable);
  const VariableSpec& spec = variable->spec;
  if (write.op == WriteOp::kGradient) RETURN_IF_ERROR(CheckGradient(*variable, write));
  if (spec.table) RETURN_IF_ERROR(CheckTableWrite(spec, write));
  const bool replaces = write.op == WriteOp::kAssign || write.op == WriteOp::kScatterUpdate ||
                        write.op == WriteOp::kGradient;
  if (!replaces && spec.dtype == DType::kBool) {
    return absl::InvalidArgumentError(absl::StrCat(WriteOpName(write.op), " to variable \"",
                                                   spec.name,
                                                   "\": bool has no arithmetic; assign instead"));
  }
  if (IsScatter(write.op) && !write.ids)
    return absl::InvalidArgumentError(
        absl::StrCat(WriteOpName(write.op), " to variable \"", spec.name, "\" needs ids"));
  if (!write.ids) {
    if (write.value.dtype() == spec.dtype && write.value.shape() == spec.shape)
      return absl::OkStatus();
    return WrongShape(*variable, write,
                      "the same dtype and shape as the variable (nothing is broadcast)");
  }
  if (write.ids->dtype() != DType::kInt64 || write.ids->shape().rank() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(WriteOpName(write.op), " to variable \"",
                                                   spec.name, "\": ids are ", write.ids->ToString(),
                                                   "; wanted int64 [n]"));
  }
  RETURN_IF_ERROR(CheckIds(*variable, *write.ids));
  const Shape wanted = spec.shape.WithRowsOf(write.ids->shape().dims());
  const DType dtype = TransferDType(spec);
  if (write.value.dtype() == dtype && write.value.shape() == wanted) return absl::OkStatus();
  if (SetsCounts(spec, write) && write.value.shape() == write.ids->shape()) return absl::OkStatus();
  return WrongShape(*variable, write,
                    absl::StrCat(DTypeName(dtype), " ", wanted.ToString(), ", a row for each id"));
}

absl::Status CheckRead(const Layout& layout, const VariableRead& read) {
  const VariableLayout* variable = layout.Find(read.variable);
  if (variable == nullptr) return layout.UnknownVariable(read.variable);
  RETURN_IF_ERROR(CheckWant(*variable, read));
  if (read.ids) return CheckIds(*variable, *read.ids);
  if (!variable->spec.table || read.want == PullWant::kStats) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("dynamic table \"", read.variable,
                                                 "\" is read by its keys, and not as a whole"));
}

const Optimizer& OptimizerOf(const Layout& layout, const StagedWrite& write) {
  return write.optimizer ? *write.optimizer : *layout.Find(write.variable)->spec.optimizer;
}

struct CommitPlanner::Unit {
  const StagedWrite& write;
  const VariableLayout& variable;
  int ps = 0;
  // an index into commits_[ps]
  size_t index = 0;
  Bucket bucket;
};

CommitPlanner::CommitPlanner(const Layout& layout, absl::Span<const StagedWrite> writes,
                             int64_t ordinal, double learning_rate_scale, Rounding rounding) {
  for (const StagedWrite& write : writes) {
    const VariableLayout& variable = *layout.Find(write.variable);
    CommitPart common;
    common.op = write.op;
    if (write.op == WriteOp::kGradient) {
      const Optimizer& optimizer = OptimizerOf(layout, write);
      common.optimizer = StepOf(optimizer, ordinal, learning_rate_scale);
      common.slots = *variable.SlotsFor(optimizer);
    }
    if (write.ids) {
      AddSparse(variable, write, common);
    } else {
      const bool rounded = rounding == Rounding::kAsSpecified && IsRounded(variable, write);
      AddDense(variable, rounded ? Rounded(variable.spec, write.value, ordinal) : write.value,
               common);
    }
  }
}

CommitPlanner::~CommitPlanner() = default;

void CommitPlanner::AddDense(const VariableLayout& variable, const Tensor& value,
                             const CommitPart& common) {
  for (int part = 0; part < variable.num_shards(); ++part) {
    CommitPart commit = common;
    commit.shard = {variable.id, 0, static_cast<uint16_t>(part)};
    commit.values = variable.spec.shape.rank() == 0
                        ? value
                        : *value.Rows(variable.offsets[part], variable.offsets[part + 1]);
    commits_[variable.ps[part]].push_back(std::move(commit));
  }
}

void CommitPlanner::AddSparse(const VariableLayout& variable, const StagedWrite& write,
                              const CommitPart& common) {
  for (auto& [part, bucket] : Buckets(variable, *write.ids->values<int64_t>())) {
    CommitPart commit = common;
    commit.shard = {variable.id, 0, static_cast<uint16_t>(part)};
    std::vector<CommitPart>& parts = commits_[variable.ps[part]];
    units_.push_back(std::make_unique<const Unit>(
        Unit{write, variable, variable.ps[part], parts.size(), std::move(bucket)}));
    parts.push_back(std::move(commit));
  }
}

void CommitPlanner::Run(size_t index) {
  const Unit& unit = *units_[index];
  CommitPart& part = commits_.at(unit.ps)[unit.index];
  if (unit.variable.spec.table) return MakeKeyRows(unit.write, unit.variable, unit.bucket, part);
  if (unit.write.op == WriteOp::kGradient && !StrictlyRises(unit.bucket.local_ids))
    return SumRows(unit.write, unit.variable, unit.bucket, part);
  part.rows = Int64Vector(unit.bucket.local_ids);
  part.values = TakeRows(unit.write.value, unit.bucket.positions, unit.variable.spec.shape,
                         RowBytes(unit.variable.spec));
}

std::map<int, std::vector<CommitPart>> CommitPlanner::Take() && { return std::move(commits_); }

std::map<int, std::vector<CommitPart>> PlanCommits(const Layout& layout,
                                                   absl::Span<const StagedWrite> writes,
                                                   int64_t ordinal, double learning_rate_scale,
                                                   Rounding rounding) {
  CommitPlanner planner(layout, writes, ordinal, learning_rate_scale, rounding);
  for (size_t unit = 0; unit < planner.units(); ++unit) planner.Run(unit);
  return std::move(planner).Take();
}

int64_t PlanningBytes(const Layout& layout, absl::Span<const StagedWrite> writes) {
  int64_t bytes = 0;
  for (const StagedWrite& write : writes) {
    if (write.ids) bytes += write.value.size_bytes() + write.ids->size_bytes();
    // A variable that is gone is reported when the writes are planned.
    const VariableLayout* const variable = layout.Find(write.variable);
    if (variable != nullptr && IsRounded(*variable, write)) bytes += write.value.size_bytes();
  }
  return bytes;
}

int64_t PayloadBytes(absl::Span<const CommitPart> parts) {
  int64_t bytes = 0;
  for (const CommitPart& part : parts)
    bytes += part.values.size_bytes() + (part.rows ? part.rows->size_bytes() : 0);
  return bytes;
}

absl::Status CheckOptimizers(const Layout& layout, absl::Span<const CommitPart> parts) {
  for (const CommitPart& part : parts) {
    if (!part.optimizer) continue;
    if (absl::Status status = Validate(*part.optimizer); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("variable \"", layout.Find(part.shard.variable)->spec.name,
                                       "\": ", status.message(),
                                       " at every step (its schedule times SetLearningRateScale)"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCommitSize(absl::Span<const CommitPart> parts, int ps, int64_t max_bytes) {
  const int64_t bytes = PayloadBytes(parts);
  if (max_bytes == 0 || bytes <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the writes to ps ", ps, " are ", bytes, " bytes, and it takes at most ", max_bytes,
      " at a time, half of its --commit_buffer_bytes. Raise that flag of the parameter servers, "
      "cut the variables "
      "into more shards, or write less in one step"));
}

namespace {

// Whether a read brings bfloat16. The rows of a table that are stored so lose nothing by it.
bool RoundsReads(const VariableSpec& spec, Rounding rounding) {
  if (spec.table) return spec.dtype == DType::kBFloat16;
  return rounding == Rounding::kAsSpecified && spec.wire != WireFormat::kExact;
}

}  // namespace

PullPlan::PullPlan(const Layout& layout, absl::Span<const VariableRead> reads, Rounding rounding) {
  // The index of the target. A shard is read whole at most once.
  std::map<std::pair<VariableId, PullWant>, size_t> whole;
  for (const VariableRead& read : reads) {
    const VariableLayout& variable = *layout.Find(read.variable);
    const bool rounded = RoundsReads(variable.spec, rounding);
    const auto key = std::make_pair(variable.id, read.want);
    if (read.ids && variable.spec.table) {
      AddKeys(variable, *read.ids, read.want, rounded && read.want == PullWant::kValues);
    } else if (read.ids) {
      AddRows(variable, *read.ids, rounded);
    } else if (const auto [before, is_first] = whole.try_emplace(key, targets_.size()); is_first) {
      read.want == PullWant::kStats ? AddStats(variable) : AddWhole(variable, rounded);
    } else {
      targets_.push_back(Target(targets_[before->second]));
    }
  }
}

size_t PullPlan::AddPart(int ps, PullPart part) {
  parts_[ps].push_back(std::move(part));
  return parts_[ps].size() - 1;
}

void PullPlan::AddWhole(const VariableLayout& variable, bool rounded) {
  Target target{variable.spec.dtype, variable.spec.shape, RowBytes(variable.spec), {}, {}, rounded};
  const int64_t element_bytes = DTypeSize(rounded ? DType::kBFloat16 : variable.spec.dtype);
  for (int part = 0; part < variable.num_shards(); ++part) {
    const int ps = variable.ps[part];
    PullPart pull{{variable.id, 0, static_cast<uint16_t>(part)}, std::nullopt};
    pull.reply_bytes = variable.ShardShape(part).num_elements() * element_bytes;
    pull.as_bfloat16 = rounded;
    // Assemble copies the values of several shards together, as soon as all have come.
    pull.may_lend = !rounded && variable.num_shards() > 1;
    target.pieces.push_back({ps, AddPart(ps, std::move(pull)), variable.offsets[part]});
  }
  targets_.push_back(std::move(target));
}

void PullPlan::AddRows(const VariableLayout& variable, const Tensor& ids, bool rounded) {
  Target target{TransferDType(variable.spec),
                variable.spec.shape.WithRowsOf(ids.shape().dims()),
                RowBytes(variable.spec),
                {},
                {},
                rounded};
  const int64_t reply_row_bytes = rounded ? target.row_bytes / 2 : target.row_bytes;
  absl::Span<const int64_t> rows = *ids.values<int64_t>();
  if (!StrictlyRises(rows)) {
    target.groups = GroupById(rows);
    rows = target.groups->ids;
  }
  // The rows rise, so each part has those that follow the rows of the part before it.
  for (auto begin = rows.begin(); begin != rows.end();) {
    const int part = variable.PartOf(*begin), ps = variable.ps[part];
    const auto end = std::lower_bound(begin, rows.end(), variable.offsets[part + 1]);
    std::vector<int64_t> local_ids(begin, end);
    for (int64_t& id : local_ids) id -= variable.offsets[part];
    const size_t index = AddPart(ps, {{variable.id, 0, static_cast<uint16_t>(part)},
                                      Int64Vector(local_ids),
                                      static_cast<int64_t>(local_ids.size()) * reply_row_bytes,
                                      rounded});
    target.pieces.push_back({ps, index, begin - rows.begin()});
    begin = end;
  }
  targets_.push_back(std::move(target));
}

// The numbers of one part after another.
void PullPlan::AddStats(const VariableLayout& variable) {
  Target target{
      DType::kInt64, {variable.num_shards(), kTableStatsWidth}, kTableStatsWidth * 8, {}, {}};
  for (int part = 0; part < variable.num_shards(); ++part) {
    const int ps = variable.ps[part];
    PullPart pull{{variable.id, 0, static_cast<uint16_t>(part)}, std::nullopt, target.row_bytes};
    pull.want = PullWant::kStats;
    target.pieces.push_back({ps, AddPart(ps, std::move(pull)), part});
  }
  targets_.push_back(std::move(target));
}

// As rows, but shards have keys in the order of their ranks.
void PullPlan::AddKeys(const VariableLayout& variable, const Tensor& asked, PullWant want,
                       bool rounded) {
  const bool is_record = want == PullWant::kRecords;
  const Shape row = is_record ? Shape{1, kTableRecordWidth} : variable.spec.shape;
  Target target{is_record ? DType::kInt64 : TransferDType(variable.spec),
                row.WithRowsOf(asked.shape().dims()),
                is_record ? kTableRecordWidth * 8 : RowBytes(variable.spec),
                {},
                {},
                rounded};
  const absl::Span<const int64_t> keys = *asked.values<int64_t>();
  std::vector<int64_t> ranks;
  ranks.reserve(keys.size());
  for (const int64_t key : keys) ranks.push_back(KeyRank(key));
  target.groups = GroupById(ranks);
  const std::vector<int64_t> unique = At(keys, FirstOfGroups(*target.groups));
  const std::vector<int64_t>& ids = target.groups->ids;
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    const int part = variable.PartOf(BucketOfRank(ids[begin])), ps = variable.ps[part];
    while (end < ids.size() && BucketOfRank(ids[end]) < variable.offsets[part + 1]) ++end;
    PullPart pull{{variable.id, 0, static_cast<uint16_t>(part)},
                  Tensor::Vector<int64_t>(absl::MakeConstSpan(unique).subspan(begin, end - begin))};
    pull.reply_bytes =
        static_cast<int64_t>(end - begin) * target.row_bytes / (target.rounded ? 2 : 1);
    pull.as_bfloat16 = target.rounded;
    pull.want = want;
    target.pieces.push_back({ps, AddPart(ps, std::move(pull)), static_cast<int64_t>(begin)});
  }
  targets_.push_back(std::move(target));
}

namespace {

absl::Status BadAnswer(int ps, absl::string_view how) {
  return absl::InvalidArgumentError(
      absl::StrCat("ps ", ps, " answered a pull ", how,
                   ": run the same version of Divvy in every task, and start that process again"));
}

absl::StatusOr<Tensor> AsFloats(const Tensor& rounded) {
  ASSIGN_OR_RETURN(Tensor floats, Tensor::Uninitialized(DType::kFloat32, rounded.shape()));
  FromBFloat16(rounded.data_as<BFloat16Bits>(), rounded.shape().num_elements(),
               floats.fresh_data<float>());
  return floats;
}

// Copies the rows of the groups from `first` on to all their places in `out`.
void Spread(const RowGroups& groups, int64_t first, const char* in, int64_t bytes,
            int64_t row_bytes, char* out) {
  for (int64_t at = 0, group = first; at < bytes; at += row_bytes, ++group) {
    for (int64_t i = groups.splits[group]; i < groups.splits[group + 1]; ++i)
      std::memcpy(out + groups.rows[i] * row_bytes, in + at, static_cast<size_t>(row_bytes));
  }
}

}  // namespace

absl::Status PullPlan::Fill(const Target& target, const std::map<int, PullReply>& replies,
                            Tensor& result) const {
  for (size_t i = 0; i < target.pieces.size(); ++i) {
    const Piece& piece = target.pieces[i];
    const auto reply = replies.find(piece.ps);
    if (reply == replies.end() || piece.part >= reply->second.parts.size())
      return BadAnswer(piece.ps, "in part");
    const ScatteredTensor* const lent = reply->second.parts[piece.part].lent.get();
    const Tensor& values = reply->second.parts[piece.part].values;
    const DType dtype = lent != nullptr ? lent->dtype() : values.dtype();
    if (dtype != (target.rounded ? DType::kBFloat16 : target.dtype))
      return BadAnswer(
          piece.ps, absl::StrCat("with ", lent != nullptr ? lent->ToString() : values.ToString()));
    char* const out = result.fresh_data<char>();
    const int64_t row_bytes = target.row_bytes, first_byte = piece.first_row * row_bytes;
    const int64_t pulled_bytes = target.groups
                                     ? static_cast<int64_t>(target.groups->ids.size()) * row_bytes
                                     : result.size_bytes();
    const int64_t end_byte =
        i + 1 < target.pieces.size() ? target.pieces[i + 1].first_row * row_bytes : pulled_bytes;
    const int64_t elements = (lent != nullptr ? lent->shape() : values.shape()).num_elements();
    // A smaller reply would leave old memory contents in the result.
    if (elements * DTypeSize(target.dtype) != end_byte - first_byte)
      return BadAnswer(piece.ps, "with another number of rows");
    if (elements == 0) continue;
    if (lent != nullptr) {
      lent->CopyTo(0, lent->size_bytes(), out + first_byte);
    } else if (target.groups) {
      ASSIGN_OR_RETURN(const Tensor rows,
                       target.rounded ? AsFloats(values) : absl::StatusOr<Tensor>(values));
      Spread(*target.groups, piece.first_row, rows.data_as<char>(), end_byte - first_byte,
             row_bytes, out);
    } else if (target.rounded) {
      FromBFloat16(values.data_as<BFloat16Bits>(), elements,
                   reinterpret_cast<float*>(out + first_byte));
    } else {
      std::memcpy(out + first_byte, values.data(), static_cast<size_t>(values.size_bytes()));
    }
  }
  return absl::OkStatus();
}

int64_t PullPlan::copied_bytes() const {
  int64_t bytes = 0;
  for (const Target& target : targets_)
    bytes += target.IsOneShard() ? 0 : target.shape.num_elements() * DTypeSize(target.dtype);
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> PullPlan::Assemble(
    const std::map<int, PullReply>& replies) const {
  std::vector<Tensor> results;
  for (const Target& target : targets_) {
    if (target.IsOneShard()) {  // no copy
      const auto reply = replies.find(target.pieces[0].ps);
      if (reply == replies.end() || reply->second.parts.size() <= target.pieces[0].part)
        return BadAnswer(target.pieces[0].ps, "in part");
      const Tensor& answered = reply->second.parts[target.pieces[0].part].values;
      if (answered.dtype() != target.dtype)
        return BadAnswer(target.pieces[0].ps, absl::StrCat("with ", answered.ToString()));
      absl::StatusOr<Tensor> value = answered.Reshape(target.shape);
      if (!value.ok())
        return BadAnswer(target.pieces[0].ps, absl::StrCat("with ", answered.ToString()));
      results.push_back(*std::move(value));
      continue;
    }
    ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(target.dtype, target.shape));
    RETURN_IF_ERROR(Fill(target, replies, result));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace divvy
