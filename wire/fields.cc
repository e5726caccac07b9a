#include "wire/fields.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/status_macros.h"

namespace divvy::wire {

// ---- common -------------------------------------------------------------------------------------

absl::Status CheckOpen(const Horizon& horizon) {
  if (horizon.open.empty() || horizon.open.back() < horizon.next) return absl::OkStatus();
  return Invalid("open", absl::StrCat("names ", horizon.open.back().value(), ", not below next"));
}

std::vector<UnreadRange> UnreadOf(const PassProgress& pass) {
  std::vector<UnreadRange> ranges;
  for (const auto& [first, count] : pass.unread) ranges.push_back({first, count});
  return ranges;
}

absl::Status SetUnread(const std::vector<UnreadRange>& ranges, PassProgress& pass) {
  int64_t after = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const UnreadRange& range = ranges[i];
    RETURN_IF_ERROR(In(Element("", i), CheckRange("first", range.first, after, pass.next)));
    RETURN_IF_ERROR(
        In(Element("", i), CheckRange("count", range.count, 1, pass.next - range.first)));
    after = range.first + range.count;
    pass.unread[range.first] = range.count;
  }
  return absl::OkStatus();
}

// ---- registration -------------------------------------------------------------------------------

std::vector<ClusterTask> TasksOf(const ClusterView& cluster) {
  std::vector<ClusterTask> list;
  for (const auto& [job, tasks] : cluster) {
    for (const auto& [index, address] : tasks) list.push_back({job, index, address});
  }
  return list;
}

absl::Status SetTasks(std::vector<ClusterTask> tasks, ClusterView& cluster) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    ClusterTask& task = tasks[i];
    const bool is_new = cluster[task.job].emplace(task.index, std::move(task.address)).second;
    if (!is_new) return Invalid(Element("", i), "names a task a second time");
  }
  return absl::OkStatus();
}

// ---- optimizers ---------------------------------------------------------------------------------

Optimizer OptimizerOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd: break;
    case OptimizerKind::kMomentum: return Momentum();
    case OptimizerKind::kAdagrad: return Adagrad();
    case OptimizerKind::kRowwiseAdagrad: return RowwiseAdagrad();
    case OptimizerKind::kAdam: return Adam();
    case OptimizerKind::kRmsProp: return RmsProp();
    case OptimizerKind::kFtrl: return Ftrl();
    case OptimizerKind::kGroupFtrl: return GroupFtrl();
  }
  return Sgd();
}

// ---- variables ----------------------------------------------------------------------------------

// Checks that the shard is rows [first, first + shape[0]) of the whole, with all other dimensions
// equal.
absl::Status CheckWithin(const ShardSpec& spec) {
  if (spec.shape.rank() != spec.full_shape.rank())
    return Invalid("shape", "has another rank than full_shape");
  const int64_t rows = spec.shape.rows(), all = spec.full_shape.rows();
  if (spec.first_row < 0 || rows > all || spec.first_row > all - rows) {
    return Invalid("first_row", absl::StrCat("is ", spec.first_row, ": ", rows,
                                             " rows from there are not within ", all));
  }
  for (int axis = 1; axis < spec.shape.rank(); ++axis) {
    const bool is_same = spec.shape.dim(axis) == spec.full_shape.dim(axis);
    if (!is_same) return Invalid(absl::StrCat("shape[", axis, "]"), "differs from full_shape's");
  }
  return absl::OkStatus();
}

absl::Status CheckInitializer(const ShardSpec& spec) {
  return In("initializer", AsInvalid(Validate(spec.initializer, spec.full_shape, spec.dtype)));
}

absl::Status CheckOffsets(const VariableLayout& variable) {
  const int64_t rows = variable.spec.shape.rows();
  const std::vector<int64_t>& offsets = variable.offsets;
  const size_t shards = variable.ps.size();
  if (shards == 0 || shards > size_t{kMaxShards}) {
    return Invalid("ps", absl::StrCat("names ", shards, " shards, not 1 to 65536"));
  }
  if (offsets.size() != shards + 1)
    return Invalid("offsets", absl::StrCat("has ", offsets.size(), " for ", shards, " shards"));
  if (offsets.front() != 0 || offsets.back() != rows)
    return Invalid("offsets", absl::StrCat("do not go from 0 to ", rows));
  if (!std::is_sorted(offsets.begin(), offsets.end())) return Invalid("offsets", "fall");
  return absl::OkStatus();
}

std::vector<OwnedSlot> SlotsOf(const VariableLayout& variable) {
  std::vector<OwnedSlot> slots;
  for (size_t i = 0; i < variable.slots.size(); ++i)
    slots.push_back({variable.slots[i], variable.slot_optimizers[i]});
  return slots;
}

absl::Status SetSlots(std::vector<OwnedSlot> slots, VariableLayout& variable) {
  for (OwnedSlot& owned : slots) {
    variable.slots.push_back(std::move(owned.slot));
    variable.slot_optimizers.push_back(std::move(owned.optimizer));
  }
  return absl::OkStatus();
}

absl::Status SetLayout(uint64_t version, uint64_t hash, std::vector<VariableLayout> list,
                       std::shared_ptr<const Layout>& layout) {
  std::map<VariableId, VariableLayout> variables;
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string field = Element("variables", i);
    const VariableId id = list[i].id;
    if (!variables.empty() && !(variables.rbegin()->first < id))
      return Invalid(field + ".id", "does not rise");
    if (!names.insert(list[i].spec.name).second)
      return Invalid(field + ".name", "is another variable's too");
    variables.emplace_hint(variables.end(), id, std::move(list[i]));
  }
  layout = Layout::Received(version, std::move(variables));
  if (layout->hash() == hash || layout->FormerHash() == hash) return absl::OkStatus();
  return Invalid("hash", absl::StrCat("is ", absl::Hex(hash), ", and these variables have ",
                                      absl::Hex(layout->hash())));
}

// ---- calls --------------------------------------------------------------------------------------

absl::Status CheckSize(const SavedSlice& slice) {
  const int64_t all_rows = slice.full_shape.rows();
  RETURN_IF_ERROR(CheckRange("first_row", slice.first_row, 0, all_rows));
  RETURN_IF_ERROR(CheckRange("rows", slice.rows, 0, all_rows - slice.first_row));
  const int64_t bytes = slice.rows * slice.full_shape.row_elements() * DTypeSize(slice.dtype);
  if (slice.size_bytes == static_cast<uint64_t>(bytes)) return absl::OkStatus();
  return Invalid("size_bytes",
                 absl::StrCat("is ", slice.size_bytes, ", and the rows take ", bytes));
}

absl::Status CheckRises(const View& view) {
  for (size_t i = 1; i < view.size(); ++i) {
    if (view[i].index <= view[i - 1].index)
      return Invalid(Element("view", i) + ".index", "does not rise");
  }
  return absl::OkStatus();
}

}  // namespace divvy::wire
