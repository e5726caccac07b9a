#include "ps_server/core/commit_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/bfloat16.h"
#include "kernels/elements.h"
#include "optimizers/denormals.h"
#include "protocol/error.h"
#include "variables/transfer_dtype.h"

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

DType DTypeOf(const CommitPart& part) {
  return part.arrived != nullptr ? part.arrived->dtype() : part.values.dtype();
}

absl::Status CheckValues(const CommitPart& part, const Shard& shard) {
  const ShardSpec& spec = shard.spec();
  const Shape wanted = part.rows ? spec.shape.WithRows(part.rows->shape().dim(0)) : spec.shape;
  const DType dtype = TransferDType(spec);
  const bool rounded = DTypeOf(part) == DType::kBFloat16 && part.op == WriteOp::kGradient &&
                       !part.rows && dtype == DType::kFloat32;
  const bool arrived = part.arrived != nullptr;
  const Shape& shape = arrived ? part.arrived->shape() : part.values.shape();
  if ((DTypeOf(part) != dtype && !rounded) || shape != wanted) {
    return Bad(
        part, shard,
        absl::StrCat("values are ", arrived ? part.arrived->ToString() : part.values.ToString(),
                     ", and must be ", DTypeName(dtype), " ", wanted.ToString()));
  }
  if (arrived && IsScatter(part.op)) return Bad(part, shard, "its values are scattered");
  if (!arrived && !OnHost(part.values)) return Bad(part, shard, "values are not in host memory");
  if (part.op == WriteOp::kGradient || TakesElements(part.op, dtype)) return absl::OkStatus();
  return Bad(part, shard, absl::StrCat(DTypeName(dtype), " does not take it"));
}

// Of a table, whose rows hold the slots.
absl::Status CheckOwnSlots(const CommitPart& part, const Shard& shard) {
  const std::optional<Optimizer>& own = shard.spec().optimizer;
  if (own && part.slots.empty() && KindOf(*own) == part.optimizer->kind &&
      SlotKindsOf(*part.optimizer).size() == shard.table()->format().slots.size())
    return absl::OkStatus();
  return Bad(part, shard,
             absl::StrCat("its rows hold the slots of ", own ? OptimizerName(*own) : "no optimizer",
                          ", and not those of ", OptimizerName(part.optimizer->kind)));
}

absl::Status CheckOptimizer(const CommitPart& part, const Shard& shard) {
  if (part.op != WriteOp::kGradient)
    return part.optimizer || !part.slots.empty() ? Bad(part, shard, "it takes no optimizer")
                                                 : absl::OkStatus();
  if (TransferDType(shard.spec()) != DType::kFloat32)
    return Bad(part, shard,
               absl::StrCat("optimizers need float32, not ", DTypeName(shard.spec().dtype)));
  if (!part.optimizer) return Bad(part, shard, "it names no optimizer");
  if (const absl::Status status = Validate(*part.optimizer); !status.ok())
    return Bad(part, shard, status.message());
  if (shard.table() != nullptr) return CheckOwnSlots(part, shard);
  const size_t wanted = SlotKindsOf(*part.optimizer).size();
  if (part.slots.size() == wanted) return absl::OkStatus();
  return Bad(part, shard,
             absl::StrCat(OptimizerName(part.optimizer->kind), " has ", wanted, " slots, and ",
                          part.slots.size(), " were named"));
}

// ---- tables

// What a FrozenSegment takes for a row beside the row itself.
constexpr int64_t kKeptRowBytes = 64;

// What kEvict names as its rows.
struct EvictedBuckets {
  explicit EvictedBuckets(const CommitPart& part)
      : now(static_cast<uint32_t>(RowsOf(part)[0])), first(RowsOf(part)[1]), end(RowsOf(part)[2]) {}
  uint32_t now;
  int64_t first, end;  // buckets of the whole table
};

absl::Status CheckTableRows(const CommitPart& part, const Shard& shard) {
  if (part.op != WriteOp::kAssign && part.op != WriteOp::kEvict && part.op != WriteOp::kGradient &&
      !IsScatter(part.op))
    return Bad(part, shard, "a table is written by its keys");
  if (part.rows && part.rows->dtype() == DType::kInt64 && part.rows->shape().rank() == 1 &&
      OnHost(*part.rows))
    return absl::OkStatus();
  return Bad(part, shard, "it needs keys, int64 [n]");
}

// Whether the part sets the counts of rows, and not their values.
bool SetsCounts(const CommitPart& part) {
  return part.op == WriteOp::kAssign && DTypeOf(part) == DType::kInt64;
}

absl::Status CheckCounts(const CommitPart& part, const Shard& shard) {
  const Shape& shape = part.arrived != nullptr ? part.arrived->shape() : part.values.shape();
  if (shape != part.rows->shape())
    return Bad(part, shard,
               absl::StrCat("counts are int64 ", shape.ToString(), " for keys ",
                            part.rows->shape().ToString()));
  if (part.arrived == nullptr && !OnHost(part.values))
    return Bad(part, shard, "values are not in host memory");
  return absl::OkStatus();
}

// Counts [begin, end) of the part.
std::vector<int64_t> CountsOf(const CommitPart& part, int64_t begin, int64_t end) {
  std::vector<int64_t> counts(static_cast<size_t>(end - begin));
  constexpr int64_t kBytes = sizeof(int64_t);
  if (part.arrived != nullptr)
    part.arrived->CopyTo(begin * kBytes, (end - begin) * kBytes,
                         reinterpret_cast<char*>(counts.data()));
  else
    std::copy_n(part.values.data_as<int64_t>() + begin, end - begin, counts.begin());
  return counts;
}

absl::Status CheckEviction(const CommitPart& part, const Shard& shard) {
  const int64_t begin = shard.spec().first_row, all = begin + shard.blocks().rows();
  if (part.rows->shape().num_elements() == 3) {
    const int64_t now = RowsOf(part)[0], first = RowsOf(part)[1], end = RowsOf(part)[2];
    if (now >= 0 && now < kFreeTick && begin <= first && first < end && end <= all)
      return absl::OkStatus();
  }
  return Bad(
      part, shard,
      absl::StrCat("it needs the time in minutes, and some of buckets ", begin, " to ", all));
}

// Rows of a part's values as the kernels need them: one behind another, aligned, and float32 if
// they are a gradient. For one thread.
class RowReader {
 public:
  RowReader(const CommitPart& part, const Shard& shard)
      : part_(part),
        rounded_(DTypeOf(part) == DType::kBFloat16 &&
                 TransferDType(shard.spec()) == DType::kFloat32),
        row_elements_(shard.row_elements()),
        row_bytes_(row_elements_ * DTypeSize(DTypeOf(part))),
        most_rows_(kScratchBytes / std::max<int64_t>(1, shard.row_bytes())) {}

  // Calls visit(first, end, data) for runs of the rows [first, end). `data` is valid within the
  // call.
  template <typename Visit>
  void ForEachRun(int64_t first, int64_t end, const Visit& visit) {
    const bool direct = part_.arrived == nullptr && !rounded_;
    const int64_t most = direct ? end - first : std::max<int64_t>(1, most_rows_);
    for (int64_t row = first; row < end; row += most) {
      const int64_t rows = std::min(most, end - row);
      visit(row, row + rows, AsFloats(rows, Bytes(row, rows)));
    }
  }

 private:
  // Stays in a processor's cache between the copy and the kernel. A row that is longer is read
  // whole (PayloadFiller: at most 1 MiB).
  static constexpr int64_t kScratchBytes = 64 << 10;

  const char* Bytes(int64_t row, int64_t rows) {
    if (part_.arrived == nullptr) return part_.values.data_as<char>() + row * row_bytes_;
    char* const copy = Scratch(copy_, rows * row_bytes_);
    part_.arrived->CopyTo(row * row_bytes_, rows * row_bytes_, copy);
    return copy;
  }
  const char* AsFloats(int64_t rows, const char* bytes) {
    if (!rounded_) return bytes;
    const int64_t elements = rows * row_elements_;
    char* const floats = Scratch(floats_, elements * static_cast<int64_t>(sizeof(float)));
    FromBFloat16(reinterpret_cast<const BFloat16Bits*>(bytes), elements,
                 reinterpret_cast<float*>(floats));
    return floats;
  }
  // The first run is the longest.
  static char* Scratch(std::unique_ptr<char[]>& memory, int64_t bytes) {
    if (memory == nullptr) memory.reset(new char[static_cast<size_t>(bytes)]);
    return memory.get();
  }

  const CommitPart& part_;
  const bool rounded_;
  const int64_t row_elements_, row_bytes_, most_rows_;
  std::unique_ptr<char[]> copy_, floats_;
};

// The indices of the parts, sorted by shard. Parts of one shard keep their order.
std::vector<size_t> ByShard(absl::Span<const CommitPart> parts) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto before = [&](size_t a, size_t b) { return parts[a].shard < parts[b].shard; };
  if (!std::is_sorted(order.begin(), order.end(), before))
    std::stable_sort(order.begin(), order.end(), before);
  return order;
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
                                            int64_t unit_bytes, const TableStamp& stamp) {
  if (parts.empty()) return MakeError(Reason::kBadCommit, "a commit without parts");
  CommitPlan plan(unit_bytes, stamp);
  plan.part_shards_.resize(parts.size());
  plan.targets_.reserve(parts.size());
  plan.touched_.reserve(parts.size());
  plan.pieces_.reserve(parts.size());
  for (const size_t index : ByShard(parts))
    RETURN_IF_ERROR(plan.AddPart(index, std::move(parts[index]), shards));
  plan.CutIntoBlocks();
  return plan;
}

absl::Status CommitPlan::AddPart(size_t index, CommitPart part, const ShardTable& shards) {
  const ShardKey key = part.shard;
  const auto found = shards.find(key);
  if (found == shards.end()) return Unknown(key);
  const std::shared_ptr<Shard>& shard = found->second;
  if (key.slot != 0)
    return Bad(part, *shard, "slots are written by gradients of their variable alone");
  if (shard->table() != nullptr) return AddTablePart(index, std::move(part), shard);
  RETURN_IF_ERROR(CheckRows(part, *shard));
  RETURN_IF_ERROR(CheckValues(part, *shard));
  RETURN_IF_ERROR(CheckOptimizer(part, *shard));
  TargetOf(shard);
  Op op;
  op.part = std::move(part);
  RETURN_IF_ERROR(AddSlots(shards, *shard, op));
  if (op.part.rows) {
    shard->StopLending();
    for (Shard* const slot : op.slots) slot->StopLending();
  }
  if (IsScatter(op.part.op)) op.order = shard->blocks().OrderByBlock(RowsOf(op.part));
  const int64_t rows = op.part.rows ? op.part.rows->shape().num_elements() : shard->blocks().rows();
  if (op.part.rows) {
    const absl::Span<const int64_t> named = RowsOf(op.part);
    shard->CountUse(named.size(), [named](size_t i) { return named[i]; });
  } else {
    shard->CountUse();
  }
  most_kept_bytes_ += FrozenShards::MostKept(*shard, rows);
  for (const Shard* slot : op.slots) most_kept_bytes_ += FrozenShards::MostKept(*slot, rows);
  part_shards_[index] = shard;
  targets_.back().ops.push_back(std::move(op));
  return absl::OkStatus();
}

// Not counted: what EvictLeastUsed and EvictLeastRecent evict, and filters.
int64_t CommitPlan::MostKept(const Op& op, const Shard& shard) {
  TableShard& table = *shard.table();
  if (op.part.op != WriteOp::kEvict)
    return static_cast<int64_t>(op.keys.size()) * (table.format().row_bytes + kKeptRowBytes);
  const EvictedBuckets evicted(op.part);
  const auto segment_of = [&](int64_t bucket) {
    return (bucket - table.first_bucket()) / table.buckets_of_segment();
  };
  int64_t rows = 0;
  for (int64_t i = segment_of(evicted.first); i <= segment_of(evicted.end - 1); ++i)
    table.With(i, [&](const TableSegment& segment) {
      rows += segment.CountOf(evicted.first, evicted.end);
    });
  return rows * (table.format().row_bytes + kKeptRowBytes);
}

CommitPlan::Target& CommitPlan::TargetOf(const std::shared_ptr<Shard>& shard) {
  if (targets_.empty() || targets_.back().shard != shard) {
    targets_.push_back({shard, {}});
    touched_.push_back(shard);
  }
  return targets_.back();
}

absl::Status CommitPlan::AddTablePart(size_t index, CommitPart part,
                                      const std::shared_ptr<Shard>& shard) {
  const TableShard& table = *shard->table();
  RETURN_IF_ERROR(CheckTableRows(part, *shard));
  Op op;
  if (part.op == WriteOp::kEvict) {
    RETURN_IF_ERROR(CheckEviction(part, *shard));
  } else {
    RETURN_IF_ERROR(SetsCounts(part) ? CheckCounts(part, *shard) : CheckValues(part, *shard));
    RETURN_IF_ERROR(CheckOptimizer(part, *shard));
    absl::StatusOr<std::vector<TableKey>> keys =
        CheckKeys(RowsOf(part), table.first_bucket(), table.end_bucket());
    if (!keys.ok()) return Bad(part, *shard, keys.status().message());
    op.keys = *std::move(keys);
    shard->CountUse(op.keys.size(),
                    [&](size_t i) { return BucketOf(op.keys[i].mixed) - table.first_bucket(); });
  }
  op.part = std::move(part);
  most_kept_bytes_ += MostKept(op, *shard);
  part_shards_[index] = shard;
  TargetOf(shard).ops.push_back(std::move(op));
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
    // Only another part of the same variable can have named it before.
    const auto& before = targets_.back().ops;
    const auto has_it = [&](const Op& other) {
      return std::count(other.slots.begin(), other.slots.end(), found->second.get()) > 0;
    };
    if (std::none_of(before.begin(), before.end(), has_it)) touched_.push_back(found->second);
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
    if (target.shard->table() != nullptr) {
      const int64_t first_bucket = target.shard->spec().first_row;
      const auto bucket_at = [&](size_t i) { return BucketOf(op.keys[i].mixed) - first_bucket; };
      blocks.ForEachBlock(op.keys.size(), bucket_at, [&](int64_t block, size_t begin, size_t end) {
        add(block, static_cast<int64_t>(end - begin));
      });
      if (op.part.op != WriteOp::kEvict) continue;
      const EvictedBuckets evicted(op.part);
      for (int64_t block = blocks.BlockOf(evicted.first - first_bucket);
           block < blocks.count() && blocks.first_row(block) < evicted.end - first_bucket; ++block)
        add(block, 1);
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

void CommitPlan::AddPiece(size_t target, int64_t block, int64_t rows) {
  pieces_.emplace_back(target, block);
  units_.AddPiece(rows * targets_[target].shard->row_bytes());
}

void CommitPlan::CutIntoBlocks() {
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    const Blocks& blocks = target.shard->blocks();
    if (target.ops.size() > 1 || target.ops[0].part.rows) {
      for (const auto& [block, rows] : RowsByBlock(target)) AddPiece(i, block, rows);
    } else {
      for (int64_t block = 0; block < blocks.count(); ++block)
        AddPiece(i, block, blocks.end_row(block) - blocks.first_row(block));
    }
  }
}

std::vector<ShardKey> CommitPlan::queues() const {
  std::vector<ShardKey> keys;
  keys.reserve(targets_.size());
  for (const Target& target : targets_) keys.push_back(target.shard->spec().key);
  return keys;
}

bool CommitPlan::evicts() const {
  return std::any_of(targets_.begin(), targets_.end(), [](const Target& target) {
    return std::any_of(target.ops.begin(), target.ops.end(),
                       [](const Op& op) { return op.part.op == WriteOp::kEvict; });
  });
}

void CommitPlan::CountAgain() const {
  for (const Target& target : targets_) {
    TableShard* const table = target.shard->table();
    if (table == nullptr) continue;
    for (const Op& op : target.ops) {
      for (const TableShard::Piece& piece : table->PiecesOf(op.keys)) {
        table->With(piece.segment,
                    [&](TableSegment& segment) { segment.Touch(piece.Of(op.keys), stamp_); });
      }
    }
  }
}

void CommitPlan::Apply(int64_t unit, FrozenShards* frozen) const {
  const FlushDenormals flush;
  const auto [begin, end] = units_.pieces(unit);
  for (size_t i = begin; i < end; ++i) {
    const auto [index, block] = pieces_[i];
    const Target& target = targets_[index];
    if (target.shard->table() != nullptr) {
      ApplyToTable(target, block);
      continue;
    }
    const Blocks& blocks = target.shard->blocks();
    MutexLock lock(blocks.lock(block));
    if (frozen != nullptr) Keep(*frozen, target, block);
    target.shard->PrepareWrite(block);
    for (const Op& op : target.ops) {
      for (Shard* slot : op.slots) slot->PrepareWrite(block);
      ApplyOp(op, *target.shard, block);
    }
  }
}

// The segment itself keeps what a checkpoint needs of the rows that change.
void CommitPlan::ApplyToTable(const Target& target, int64_t block) const {
  absl::InlinedVector<absl::Span<const TableKey>, 1> keys, named;
  for (const Op& op : target.ops) {
    keys.push_back(KeysIn(op, *target.shard, block));
    // To set a count is no step that names the key.
    named.push_back(SetsCounts(op.part) ? absl::Span<const TableKey>() : keys.back());
  }
  TableCounts counts;
  target.shard->table()->With(block, [&](TableSegment& segment) {
    for (size_t i = 0; i < target.ops.size(); ++i)
      counts += ApplyToSegment(target.ops[i], *target.shard, keys[i], {named, i}, segment);
  });
  target.shard->table()->Note(counts);
}

absl::Span<const TableKey> CommitPlan::KeysIn(const Op& op, const Shard& shard, int64_t block) {
  const int64_t first = shard.spec().first_row;
  return KeysWithin(op.keys, first + shard.blocks().first_row(block),
                    first + shard.blocks().end_row(block));
}

TableCounts CommitPlan::ApplyToSegment(const Op& op, const Shard& shard,
                                       absl::Span<const TableKey> keys, const NamedKeys& named,
                                       TableSegment& segment) const {
  if (op.part.op == WriteOp::kEvict) {
    const EvictedBuckets evicted(op.part);
    return segment.Evict(evicted.first, evicted.end, evicted.now);
  }
  const int64_t from = keys.data() - op.keys.data(), to = from + static_cast<int64_t>(keys.size());
  TableCounts counts;
  if (SetsCounts(op.part)) {
    segment.SetCounts(keys, CountsOf(op.part, from, to));
    return counts;
  }
  RowReader reader(op.part, shard);
  reader.ForEachRun(from, to, [&](int64_t run, int64_t run_end, const char* values) {
    const auto some = absl::MakeConstSpan(op.keys).subspan(static_cast<size_t>(run),
                                                           static_cast<size_t>(run_end - run));
    const auto* const floats = reinterpret_cast<const float*>(values);
    counts += op.part.op == WriteOp::kGradient
                  ? segment.ApplyGradients(some, floats, *op.part.optimizer, stamp_, named)
                  : segment.ApplyValues(some, floats, op.part.op, stamp_, named);
  });
  return counts;
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
  RowReader reader(op.part, shard);
  reader.ForEachRun(shard.blocks().first_row(block), shard.blocks().end_row(block),
                    [&](int64_t first, int64_t end, const char* values) {
                      ApplyElements(op.part.op, shard.spec().dtype, shard.row(block, first), values,
                                    (end - first) * shard.row_elements());
                    });
}

void CommitPlan::ApplyRows(const Op& op, Shard& shard, int64_t block) {
  const absl::Span<const int64_t> rows = RowsOf(op.part);
  const Blocks& blocks = shard.blocks();
  for (int64_t position : blocks.PositionsIn(block, rows, op.order)) {
    const char* update = op.part.values.data_as<char>() + position * shard.row_bytes();
    ApplyElements(op.part.op, shard.spec().dtype, shard.row(block, rows[position]), update,
                  shard.row_elements());
  }
}

ParameterBlock CommitPlan::RowsAt(const Op& op, Shard& shard, int64_t block, int64_t first,
                                  int64_t end) {
  const size_t width = static_cast<size_t>(shard.row_elements()),
               count = static_cast<size_t>(end - first);
  ParameterBlock view;
  view.values = absl::MakeSpan(shard.row_as<float>(block, first), count * width);
  view.width = shard.row_elements();
  for (size_t i = 0; i < op.slots.size(); ++i) {
    Shard& slot = *op.slots[i];
    if (slot.spec().dtype == DType::kInt32)
      view.slots[i].counts = absl::MakeSpan(slot.row_as<int32_t>(block, first), count);
    else
      view.slots[i].values = absl::MakeSpan(slot.row_as<float>(block, first),
                                            count * static_cast<size_t>(slot.row_elements()));
  }
  return view;
}

void CommitPlan::ApplyGradient(const Op& op, Shard& shard, int64_t block) {
  const int64_t block_first = shard.blocks().first_row(block),
                block_end = shard.blocks().end_row(block);
  const auto floats = [&](const char* values, int64_t rows) {
    return absl::MakeConstSpan(reinterpret_cast<const float*>(values),
                               static_cast<size_t>(rows * shard.row_elements()));
  };
  RowReader reader(op.part, shard);
  if (!op.part.rows) {
    return reader.ForEachRun(block_first, block_end,
                             [&](int64_t first, int64_t end, const char* values) {
                               ApplyDense(*op.part.optimizer, RowsAt(op, shard, block, first, end),
                                          floats(values, end - first));
                             });
  }
  const ParameterBlock view = RowsAt(op, shard, block, block_first, block_end);
  const absl::Span<const int64_t> all = RowsOf(op.part),
                                  rows = RowsWithin(all, shard.blocks(), block);
  const int64_t position = rows.data() - all.data();
  reader.ForEachRun(position, position + static_cast<int64_t>(rows.size()),
                    [&](int64_t first, int64_t end, const char* values) {
                      const size_t count = static_cast<size_t>(end - first);
                      ApplySparse(*op.part.optimizer, view,
                                  rows.subspan(static_cast<size_t>(first - position), count),
                                  floats(values, end - first), block_first);
                    });
}

}  // namespace divvy
