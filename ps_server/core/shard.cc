#include "ps_server/core/shard.h"

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "initializers/initializer.h"
#include "optimizers/optimizer.h"
#include "variables/table_tensors.h"
#include "variables/variable_spec.h"

namespace divvy {
namespace {

bool SameRows(const Shape& a, const Shape& b) {
  return a.rank() == b.rank() && (a.rank() == 0 || a.WithRows(0) == b.WithRows(0));
}

bool Equal(const Constant& a, const Constant& b) { return a.value == b.value; }
bool Equal(const RandomUniform& a, const RandomUniform& b) {
  return a.low == b.low && a.high == b.high && a.seed == b.seed;
}
bool Equal(const RandomNormal& a, const RandomNormal& b) {
  return a.mean == b.mean && a.stddev == b.stddev && a.seed == b.seed;
}
bool Equal(const TruncatedNormal& a, const TruncatedNormal& b) {
  return a.mean == b.mean && a.stddev == b.stddev && a.seed == b.seed;
}
bool Equal(const VarianceScaling& a, const VarianceScaling& b) {
  return a.fan == b.fan && a.distribution == b.distribution && a.scale == b.scale &&
         a.seed == b.seed;
}
bool Equal(const Identity& a, const Identity& b) { return a.gain == b.gain; }
// Initializers that no parameter server evaluates; a shard never has one.
bool Equal(const Orthogonal&, const Orthogonal&) { return false; }
bool Equal(const FromRows&, const FromRows&) { return false; }
bool Equal(const Tensor&, const Tensor&) { return false; }

bool SameInitializer(const Initializer& a, const Initializer& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& left) { return Equal(left, std::get<std::decay_t<decltype(left)>>(b)); }, a);
}

absl::Status CheckGeometry(const ShardSpec& spec) {
  RETURN_IF_ERROR(spec.shape.status());
  RETURN_IF_ERROR(spec.full_shape.status());
  if (spec.shape.num_elements() < 0 || spec.full_shape.num_elements() < 0)
    return absl::InvalidArgumentError(absl::StrCat("shape ", spec.shape.ToString(), " of ",
                                                   spec.full_shape.ToString(),
                                                   " has an unknown dimension"));
  if (spec.shape.num_elements() > std::numeric_limits<int64_t>::max() / 8)
    return absl::InvalidArgumentError("the shard's size in bytes overflows an int64");
  const int64_t rows = spec.shape.rows(), all_rows = spec.full_shape.rows();
  if (!SameRows(spec.shape, spec.full_shape) || spec.first_row < 0 || rows > all_rows ||
      spec.first_row > all_rows - rows) {
    return absl::InvalidArgumentError(absl::StrCat("rows from ", spec.first_row, " of shape ",
                                                   spec.shape.ToString(), " do not lie within ",
                                                   spec.full_shape.ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const ShardSpec& spec) {
  if (DispatchDType(
          spec.dtype, [](auto) { return false; }, true))
    return absl::InvalidArgumentError(
        absl::StrCat("no tensor can have dtype ", DTypeName(spec.dtype)));
  if (!EvaluatedPerRow(spec.initializer))
    return absl::InvalidArgumentError(
        "a parameter server cannot evaluate this initializer: create the shard with zeros and "
        "assign the values");
  return Validate(spec.initializer, spec.full_shape, spec.dtype);
}

absl::Status CheckTable(const ShardSpec& spec) {
  if (!spec.table) return absl::OkStatus();
  VariableSpec variable{spec.name, spec.full_shape, spec.initializer, spec.optimizer, spec.dtype};
  variable.table = spec.table;
  RETURN_IF_ERROR(Validate(variable));
  if (spec.key.slot == 0 && spec.shape.dim(0) >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError("a part of a table has at least one bucket, and no slots");
}

std::unique_ptr<TableShard> TableOf(const ShardSpec& spec, uint64_t job_seed,
                                    std::shared_ptr<TableMemory> memory) {
  if (!spec.table) return nullptr;
  TableFormat format(
      {job_seed, spec.name, spec.full_shape}, spec.initializer, *spec.table, spec.full_shape.dim(1),
      spec.optimizer ? SlotsOf(*spec.optimizer) : std::vector<SlotSpec>(), spec.dtype);
  return std::make_unique<TableShard>(std::move(format), spec.first_row,
                                      spec.first_row + spec.shape.rows(), std::move(memory));
}

absl::Status CheckSlot(const ShardSpec& spec, const ShardSpec* variable) {
  if (spec.key.slot == 0) return absl::OkStatus();
  if (variable == nullptr)
    return absl::InvalidArgumentError("the slot's variable is not on this parameter server");
  if (spec.shape.rows() != variable->shape.rows() || spec.first_row != variable->first_row) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slot's rows differ from its variable's: ", spec.shape.ToString(),
                     ", and not those of ", variable->shape.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShardText(const ShardSpec& spec) {
  return absl::StrCat(spec.name, ", part ", spec.key.part);
}

Blocks::Blocks(int64_t rows, int64_t row_bytes, int64_t block_bytes)
    : rows_(rows),
      rows_per_block_(std::max<int64_t>(1, row_bytes == 0 ? rows : block_bytes / row_bytes)),
      locks_(static_cast<size_t>(rows / rows_per_block_ + (rows % rows_per_block_ != 0 ? 1 : 0))) {}

std::vector<int64_t> Blocks::OrderByBlock(absl::Span<const int64_t> rows) const {
  std::vector<int64_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  // Most steps name rising rows. Sorting by row sorts by block too, and needs no division.
  if (!std::is_sorted(rows.begin(), rows.end()))
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return rows[a] < rows[b]; });
  return order;
}

absl::Span<const int64_t> Blocks::PositionsIn(int64_t block, absl::Span<const int64_t> rows,
                                              absl::Span<const int64_t> order) const {
  const auto begin = std::partition_point(order.begin(), order.end(), [&](int64_t position) {
    return BlockOf(rows[position]) < block;
  });
  const auto end = std::partition_point(
      begin, order.end(), [&](int64_t position) { return BlockOf(rows[position]) == block; });
  return order.subspan(static_cast<size_t>(begin - order.begin()),
                       static_cast<size_t>(end - begin));
}

absl::Status Shard::Check(const ShardSpec& spec, const ShardSpec* variable) {
  absl::Status status = CheckGeometry(spec);
  if (status.ok()) status = CheckValues(spec);
  if (status.ok()) status = CheckSlot(spec, variable);
  if (status.ok()) status = CheckTable(spec);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(ShardText(spec), ": ", status.message()));
}

absl::StatusOr<std::shared_ptr<Shard>> Shard::Create(ShardSpec spec, uint64_t job_seed,
                                                     int64_t block_bytes, const Shard* variable,
                                                     std::shared_ptr<TableMemory> memory) {
  ASSIGN_OR_RETURN(
      Tensor values,
      Tensor::Uninitialized(spec.dtype, spec.table ? spec.shape.WithRows(0) : spec.shape));
  const int64_t row_bytes = spec.shape.row_elements() * DTypeSize(spec.dtype);
  auto blocks = variable != nullptr
                    ? variable->blocks_
                    : std::make_shared<const Blocks>(spec.shape.rows(), row_bytes, block_bytes);
  return std::shared_ptr<Shard>(new Shard(std::move(spec), job_seed, std::move(blocks),
                                          std::move(values), std::move(memory)));
}

Shard::Shard(ShardSpec spec, uint64_t job_seed, std::shared_ptr<const Blocks> blocks, Tensor values,
             std::shared_ptr<TableMemory> memory)
    : spec_(std::move(spec)),
      job_seed_(job_seed),
      blocks_(std::move(blocks)),
      row_elements_(spec_.shape.row_elements()),
      row_bytes_(row_elements_ * DTypeSize(spec_.dtype)),
      values_(std::move(values)),
      data_(values_.fresh_data<char>()),
      table_(TableOf(spec_, job_seed, std::move(memory))) {
  if (table_ != nullptr) {
    lends_ = false;
    blocks_ = std::make_shared<const Blocks>(blocks_->rows(), 1, table_->buckets_of_segment());
    return;
  }
  places_ = std::vector<Places>(static_cast<size_t>(blocks_->count()));
  for (int64_t block = 0; block < blocks_->count(); ++block)
    places_[static_cast<size_t>(block)].own.data = new_row(blocks_->first_row(block));
}

void Shard::Lend(const std::shared_ptr<Shard>& shard, int64_t block, ScatteredTensor& values) {
  Places& places = shard->places_[static_cast<size_t>(block)];
  if (places.other != nullptr && !IsLent(*places.other) && !IsLent(places.own))
    shard->MoveHome(block);
  // The own place lives as long as the shard, another one by itself.
  const std::shared_ptr<const void> memory =
      places.other == nullptr ? std::shared_ptr<const void>(shard) : places.other;
  Place& place = places.now();
  place.borrowers.fetch_add(1, std::memory_order_relaxed);
  const auto let_go = [memory](Place* from) {
    from->borrowers.fetch_sub(1, std::memory_order_release);
  };
  values.Add(absl::string_view(place.data, shard->BlockBytes(block)),
             std::shared_ptr<const void>(std::shared_ptr<Place>(&place, let_go)));
}

void Shard::MoveHome(int64_t block) {
  Places& places = places_[static_cast<size_t>(block)];
  std::memcpy(places.own.data, places.other->data, BlockBytes(block));
  places.other = nullptr;
}

void Shard::MoveAway(int64_t block) {
  Places& places = places_[static_cast<size_t>(block)];
  auto other = std::make_shared<OtherPlace>();
  other->memory = *Tensor::Uninitialized(DType::kUInt8, {static_cast<int64_t>(BlockBytes(block))});
  other->data = other->memory.fresh_data<char>();
  std::memcpy(other->data, places.now().data, BlockBytes(block));
  places.other = std::move(other);
}

absl::Status Shard::Initialize(int64_t block) {
  if (table_ != nullptr) return absl::OkStatus();
  const int64_t first = blocks_->first_row(block), rows = blocks_->end_row(block) - first;
  const InitializerContext context{job_seed_, spec_.name, spec_.full_shape};
  if (spec_.dtype == DType::kFloat32) {
    return FillRows(spec_.initializer, context, spec_.first_row + first, rows,
                    absl::MakeSpan(reinterpret_cast<float*>(new_row(first)),
                                   static_cast<size_t>(rows * row_elements_)));
  }
  ASSIGN_OR_RETURN(const Tensor values, InitialRows(spec_.initializer, context, spec_.dtype,
                                                    spec_.first_row + first, rows));
  if (values.size_bytes() > 0)
    std::memcpy(new_row(first), values.data(), static_cast<size_t>(values.size_bytes()));
  return absl::OkStatus();
}

bool Shard::MadeFrom(const ShardSpec& spec, uint64_t job_seed) const {
  return spec.name == spec_.name && spec.dtype == spec_.dtype && spec.shape == spec_.shape &&
         spec.full_shape == spec_.full_shape && spec.first_row == spec_.first_row &&
         spec.table.has_value() == spec_.table.has_value() &&
         HaveSameSlots(spec.optimizer, spec_.optimizer) &&
         (spec.table ||
          (job_seed == job_seed_ && SameInitializer(spec.initializer, spec_.initializer)));
}

int64_t Shard::used_row_bytes() const {
  return table_ == nullptr ? row_bytes_ : table_->format().value_bytes;
}

void Shard::CountUse() {
  constexpr int64_t kParts = SyncReply::Load::kParts;
  // Part i has the rows of which number * kParts / num_rows() is i.
  const auto first = [this](int64_t part) { return (part * num_rows() + kParts - 1) / kParts; };
  for (int64_t part = 0; part < kParts; ++part)
    AddUse(static_cast<size_t>(part),
           static_cast<uint64_t>((first(part + 1) - first(part)) * used_row_bytes()));
}

std::vector<uint64_t> Shard::used_bytes() const {
  std::vector<uint64_t> bytes;
  for (const std::atomic<uint64_t>& part : used_bytes_)
    bytes.push_back(part.load(std::memory_order_relaxed));
  return bytes;
}

absl::StatusOr<Tensor> Shard::Copy() const {
  ASSIGN_OR_RETURN(Tensor copy, Tensor::Uninitialized(values_.dtype(), values_.shape()));
  if (table_ != nullptr) return copy;
  char* to = copy.fresh_data<char>();
  for (int64_t block = 0; block < blocks_->count(); ++block) {
    const int64_t first = blocks_->first_row(block),
                  bytes = (blocks_->end_row(block) - first) * row_bytes_;
    MutexLock lock(blocks_->lock(block));
    if (bytes > 0)
      std::memcpy(to + first * row_bytes_, row(block, first), static_cast<size_t>(bytes));
  }
  return copy;
}

}  // namespace divvy
