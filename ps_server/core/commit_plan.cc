#include "ps_server/core/commit_plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/bfloat16.h"
#include "kernels/elements.h"
#include "optimizers/apply.h"
#include "optimizers/denormals.h"
#include "protocol/error.h"

namespace divvy {
namespace {

absl::Status Bad(const CommitPart& part, const Shard& shard, absl::string_view why) {
  return MakeError(Reason::kBadCommit,
                   absl::StrCat(WriteOpName(part.op), " to ", ShardText(shard.spec()), ": ", why));
}

absl::Status Unknown(ShardKey key) {
  return MakeError(Reason::kUnknownShard,
                   absl::StrCat("no shard ", key.variable.value(), "/slot ", key.slot, "/part ",
                                key.part, " on this parameter server"));
}

bool OnHost(const Tensor& tensor) { return tensor.device().kind == Device::Kind::kCpu; }
bool IsScatter(WriteOp op) { return op >= WriteOp::kScatterUpdate && op <= WriteOp::kScatterMax; }

absl::Span<const int64_t> RowsOf(const CommitPart& part) {
  return absl::MakeConstSpan(part.rows->data_as<int64_t>(),
                             static_cast<size_t>(part.rows->shape().num_elements()));
}

// The part of `rows`, which rise, that lies in a block.
absl::Span<const int64_t> RowsWithin(absl::Span<const int64_t> rows, const Blocks& blocks,
                                     int64_t block) {
  const auto from = std::lower_bound(rows.begin(), rows.end(), blocks.first_row(block)),
             to = std::lower_bound(from, rows.end(), blocks.end_row(block));
  return rows.subspan(static_cast<size_t>(from - rows.begin()), static_cast<size_t>(to - from));
}

// OK if the part has rows exactly if the operation takes them, and every row is in the shard.
absl::Status CheckRows(const CommitPart& part, const Shard& shard) {
  if (!part.rows) return IsScatter(part.op) ? Bad(part, shard, "it needs rows") : absl::OkStatus();
  if (!IsScatter(part.op) && part.op != WriteOp::kGradient)
    return Bad(part, shard, "it takes no rows");
  if (shard.spec().shape.rank() == 0) return Bad(part, shard, "a scalar has no rows");
  if (part.rows->dtype() != DType::kInt64 || part.rows->shape().rank() != 1 ||
      !OnHost(*part.rows)) {
    return Bad(part, shard,
               absl::StrCat("rows are ", part.rows->ToString(), ", and not int64 [n]"));
  }
  const bool rising = part.op == WriteOp::kGradient;
  int64_t last = -1;
  for (int64_t row : RowsOf(part)) {
    if (row < 0 || row >= shard.blocks().rows())
      return Bad(part, shard,
                 absl::StrCat("row ", row, " is outside its ", shard.blocks().rows(), " rows"));
    if (rising && row <= last)
      return Bad(part, shard, "rows of a gradient must be unique and rising");
    last = row;
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const CommitPart& part, const Shard& shard) {
  const ShardSpec& spec = shard.spec();
  const Shape wanted = part.rows ? spec.shape.WithRows(part.rows->shape().dim(0)) : spec.shape;
  const bool rounded = part.values.dtype() == DType::kBFloat16 && part.op == WriteOp::kGradient &&
                       !part.rows && spec.dtype == DType::kFloat32;
  if ((part.values.dtype() != spec.dtype && !rounded) || part.values.shape() != wanted) {
    return Bad(part, shard,
               absl::StrCat("values are ", part.values.ToString(), ", and must be ",
                            DTypeName(spec.dtype), " ", wanted.ToString()));
  }
  if (!OnHost(part.values)) return Bad(part, shard, "values are not in host memory");
  if (part.op == WriteOp::kGradient || TakesElements(part.op, spec.dtype)) return absl::OkStatus();
  return Bad(part, shard, absl::StrCat(DTypeName(spec.dtype), " does not take it"));
}

absl::Status CheckOptimizer(const CommitPart& part, const Shard& shard) {
  if (part.op != WriteOp::kGradient)
    return part.optimizer || !part.slots.empty() ? Bad(part, shard, "it takes no optimizer")
                                                 : absl::OkStatus();
  if (shard.spec().dtype != DType::kFloat32)
    return Bad(part, shard,
               absl::StrCat("optimizers need float32, not ", DTypeName(shard.spec().dtype)));
  if (!part.optimizer) return Bad(part, shard, "it names no optimizer");
  if (const absl::Status status = Validate(*part.optimizer); !status.ok())
    return Bad(part, shard, status.message());
  const size_t wanted = SlotKindsOf(*part.optimizer).size();
  if (part.slots.size() == wanted) return absl::OkStatus();
  return Bad(part, shard,
             absl::StrCat(OptimizerName(part.optimizer->kind), " has ", wanted, " slots, and ",
                          part.slots.size(), " were named"));
}

bool FitsAsSlot(const Shard& slot, SlotSpec::Kind kind, const Shard& shard) {
  SlotSpec spec;
  spec.kind = kind;
  return slot.spec().dtype == spec.dtype() &&
         slot.spec().shape == spec.ShapeFor(shard.spec().shape) &&
         &slot.blocks() == &shard.blocks();
}

}  // namespace

absl::StatusOr<CommitPlan> CommitPlan::Make(std::vector<CommitPart> parts, const ShardTable& shards,
                                            int64_t unit_bytes) {
  if (parts.empty()) return MakeError(Reason::kBadCommit, "a commit without parts");
  CommitPlan plan(unit_bytes);
  for (CommitPart& part : parts) RETURN_IF_ERROR(plan.AddPart(std::move(part), shards));
  plan.CutIntoBlocks();
  return plan;
}

absl::Status CommitPlan::AddPart(CommitPart part, const ShardTable& shards) {
  const ShardKey key = part.shard;
  const auto found = shards.find(key);
  if (found == shards.end()) return Unknown(key);
  const std::shared_ptr<Shard>& shard = found->second;
  if (key.slot != 0)
    return Bad(part, *shard, "slots are written by gradients of their variable alone");
  RETURN_IF_ERROR(CheckRows(part, *shard));
  RETURN_IF_ERROR(CheckValues(part, *shard));
  RETURN_IF_ERROR(CheckOptimizer(part, *shard));
  Op op;
  op.part = std::move(part);
  RETURN_IF_ERROR(AddSlots(shards, *shard, op));
  if (IsScatter(op.part.op)) op.order = shard->blocks().OrderByBlock(RowsOf(op.part));
  const int64_t rows = op.part.rows ? op.part.rows->shape().num_elements() : shard->blocks().rows();
  most_kept_bytes_ += FrozenShards::MostKept(*shard, rows);
  for (const Shard* slot : op.slots) most_kept_bytes_ += FrozenShards::MostKept(*slot, rows);
  touched_[key] = shard;
  part_shards_.push_back(shard);
  Target& target = targets_[key];
  target.shard = shard;
  target.ops.push_back(std::move(op));
  return absl::OkStatus();
}

absl::Status CommitPlan::AddSlots(const ShardTable& shards, const Shard& shard, Op& op) {
  if (op.part.op != WriteOp::kGradient) return absl::OkStatus();
  const std::vector<SlotSpec::Kind> kinds = SlotKindsOf(*op.part.optimizer);
  for (size_t i = 0; i < kinds.size(); ++i) {
    ShardKey key = op.part.shard;
    key.slot = op.part.slots[i];
    const auto found = shards.find(key);
    if (found == shards.end()) return Unknown(key);
    if (key.slot == 0 || std::count(op.part.slots.begin(), op.part.slots.end(), key.slot) > 1)
      return Bad(op.part, shard, "a slot is named twice, or is the variable");
    if (!FitsAsSlot(*found->second, kinds[i], shard))
      return Bad(
          op.part, shard,
          absl::StrCat("slot ", key.slot, " is none of ", OptimizerName(op.part.optimizer->kind)));
    op.slots.push_back(found->second.get());
    touched_[key] = found->second;
  }
  return absl::OkStatus();
}

std::map<int64_t, int64_t> CommitPlan::RowsByBlock(const Target& target) {
  std::map<int64_t, int64_t> touched;
  const Blocks& blocks = target.shard->blocks();
  const auto add = [&](int64_t block, int64_t rows) {
    touched.try_emplace(touched.end(), block, 0)->second += rows;
  };
  for (const Op& op : target.ops) {
    if (!op.part.rows) {
      for (int64_t block = 0; block < blocks.count(); ++block)
        add(block, blocks.end_row(block) - blocks.first_row(block));
      continue;
    }
    const absl::Span<const int64_t> rows = RowsOf(op.part);
    const auto row_at = [&](size_t i) { return op.order.empty() ? rows[i] : rows[op.order[i]]; };
    blocks.ForEachBlock(rows.size(), row_at, [&](int64_t block, size_t begin, size_t end) {
      add(block, static_cast<int64_t>(end - begin));
    });
  }
  return touched;
}

void CommitPlan::CutIntoBlocks() {
  for (const auto& [key, target] : targets_) {
    for (const auto& [block, rows] : RowsByBlock(target)) {
      pieces_.emplace_back(&target, block);
      units_.AddPiece(rows * target.shard->row_bytes());
    }
  }
}

std::vector<ShardKey> CommitPlan::queues() const {
  std::vector<ShardKey> keys;
  for (const auto& [key, target] : targets_) keys.push_back(key);
  return keys;
}

void CommitPlan::Apply(int64_t unit, FrozenShards* frozen) const {
  const FlushDenormals flush;
  const auto [begin, end] = units_.pieces(unit);
  for (size_t i = begin; i < end; ++i) {
    const auto& [target, block] = pieces_[i];
    const Blocks& blocks = target->shard->blocks();
    MutexLock lock(blocks.lock(block));
    if (frozen != nullptr) Keep(*frozen, *target, block);
    for (const Op& op : target->ops) ApplyOp(op, *target->shard, block);
  }
}

// Calls `frozen` for the rows that the operations are about to change in a block.
void CommitPlan::Keep(FrozenShards& frozen, const Target& target, int64_t block) {
  const Blocks& blocks = target.shard->blocks();
  for (const Op& op : target.ops) {
    const auto keep = [&](int64_t first, int64_t end) {
      frozen.BeforeWrite(*target.shard, first, end);
      for (const Shard* slot : op.slots) frozen.BeforeWrite(*slot, first, end);
    };
    if (!op.part.rows) {
      keep(blocks.first_row(block), blocks.end_row(block));
    } else if (op.part.op == WriteOp::kGradient) {
      for (const int64_t row : RowsWithin(RowsOf(op.part), blocks, block)) keep(row, row + 1);
    } else {
      const absl::Span<const int64_t> rows = RowsOf(op.part);
      for (const int64_t position : blocks.PositionsIn(block, rows, op.order))
        keep(rows[position], rows[position] + 1);
    }
  }
}

void CommitPlan::ApplyOp(const Op& op, Shard& shard, int64_t block) {
  if (op.part.op == WriteOp::kGradient) return ApplyGradient(op, shard, block);
  if (op.part.rows) return ApplyRows(op, shard, block);
  const int64_t first = shard.blocks().first_row(block),
                rows = shard.blocks().end_row(block) - first;
  ApplyElements(op.part.op, shard.spec().dtype, shard.row(first),
                op.part.values.data_as<char>() + first * shard.row_bytes(),
                rows * shard.row_elements());
}

void CommitPlan::ApplyRows(const Op& op, Shard& shard, int64_t block) {
  const absl::Span<const int64_t> rows = RowsOf(op.part);
  const Blocks& blocks = shard.blocks();
  for (int64_t position : blocks.PositionsIn(block, rows, op.order)) {
    const char* update = op.part.values.data_as<char>() + position * shard.row_bytes();
    ApplyElements(op.part.op, shard.spec().dtype, shard.row(rows[position]), update,
                  shard.row_elements());
  }
}

void CommitPlan::ApplyGradient(const Op& op, Shard& shard, int64_t block) {
  const int64_t first = shard.blocks().first_row(block), end = shard.blocks().end_row(block);
  const size_t width = static_cast<size_t>(shard.row_elements()),
               count = static_cast<size_t>(end - first);
  ParameterBlock view;
  view.values = absl::MakeSpan(shard.row_as<float>(first), count * width);
  view.width = shard.row_elements();
  for (size_t i = 0; i < op.slots.size(); ++i) {
    Shard& slot = *op.slots[i];
    if (slot.spec().dtype == DType::kInt32)
      view.slots[i].counts = absl::MakeSpan(slot.row_as<int32_t>(first), count);
    else
      view.slots[i].values = absl::MakeSpan(slot.row_as<float>(first),
                                            count * static_cast<size_t>(slot.row_elements()));
  }
  if (op.part.values.dtype() == DType::kBFloat16) {
    std::vector<float> gradient(count * width);
    FromBFloat16(op.part.values.data_as<BFloat16Bits>() + first * shard.row_elements(),
                 static_cast<int64_t>(gradient.size()), gradient.data());
    return ApplyDense(*op.part.optimizer, view, gradient);
  }
  const float* gradient = op.part.values.data_as<float>();
  if (!op.part.rows)
    return ApplyDense(*op.part.optimizer, view,
                      absl::MakeConstSpan(gradient + first * shard.row_elements(), count * width));
  const absl::Span<const int64_t> all = RowsOf(op.part),
                                  rows = RowsWithin(all, shard.blocks(), block);
  const float* const values = gradient + static_cast<size_t>(rows.data() - all.data()) * width;
  ApplySparse(*op.part.optimizer, view, rows, absl::MakeConstSpan(values, rows.size() * width),
              first);
}

}  // namespace divvy
