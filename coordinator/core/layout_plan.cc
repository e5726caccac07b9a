#include "coordinator/core/layout_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/core/shard_specs.h"
#include "coordinator/core/table_reports.h"
#include "partitioners/div.h"
#include "partitioners/placement.h"
#include "variables/table_tensors.h"

namespace divvy {
namespace {

// Adds the slots of `optimizer` that `variable` does not have yet (another form of the optimizer
// may have made some), and adds their shards to `shards`.
void AddSlots(const Optimizer& optimizer, VariableLayout& variable,
              std::map<int, std::vector<ShardSpec>>& shards) {
  for (const SlotSpec& slot : SlotsOf(optimizer)) {
    if (variable.SlotNumber(OptimizerName(optimizer), slot.name)) continue;
    variable.slots.push_back(slot);
    variable.slot_optimizers.push_back(std::string(OptimizerName(optimizer)));
    for (int part = 0; part < variable.num_shards(); ++part) {
      const int number = static_cast<int>(variable.slots.size());
      shards[variable.ps[part]].push_back(
          ShardSpecOf(variable, number, part, Constant{slot.initial_value}));
    }
  }
}

// For messages. The options of some optimizers change their slots, so these are named.
std::string TextOf(const VariableSpec& spec) {
  if (spec.table) {
    std::string text =
        absl::StrCat("a dynamic table of ", DTypeName(spec.dtype), " of width ", spec.shape.dim(1),
                     " with ", spec.optimizer ? OptimizerName(*spec.optimizer) : "no optimizer");
    if (!spec.optimizer) return text;
    std::vector<std::string> slots;
    for (const SlotSpec& slot : SlotsOf(*spec.optimizer)) slots.push_back(slot.name);
    return slots.empty() ? text : absl::StrCat(text, " (", absl::StrJoin(slots, ", "), ")");
  }
  return absl::StrCat("a variable, ", DTypeName(spec.dtype), " ", spec.shape.ToString());
}

// Adds the saved slots that the variable does not have yet.
void AddSavedSlots(const VariableLayout& saved, VariableLayout& variable) {
  for (size_t i = 0; i < saved.slots.size(); ++i) {
    if (variable.SlotNumber(saved.slot_optimizers[i], saved.slots[i].name)) continue;
    variable.slots.push_back(saved.slots[i]);
    variable.slot_optimizers.push_back(saved.slot_optimizers[i]);
  }
}

bool HasSlot(const VariableLayout& variable, const std::string& name) {
  for (size_t i = 0; i < variable.slots.size(); ++i) {
    if (variable.SlotName(static_cast<int>(i)) == name) return true;
  }
  return false;
}

// Places the variable as one shard, beside a shard of another variable.
absl::Status PlaceWith(const Colocation& with, const Layout& layout, VariableLayout& variable) {
  const VariableLayout* const other = layout.Find(with.variable);
  if (other == nullptr) return layout.UnknownVariable(with.variable);
  if (with.shard < 0 || with.shard >= other->num_shards()) {
    return absl::InvalidArgumentError(absl::StrCat("variable \"", with.variable, "\" has ",
                                                   other->num_shards(), " shards, and no shard ",
                                                   with.shard));
  }
  variable.offsets = {0, variable.spec.shape.rows()};
  variable.ps = {other->ps[with.shard]};
  return absl::OkStatus();
}

// A layout that no message can carry would cost every worker its stream.
absl::Status CheckSize(const Layout& layout, const std::string& variable, int64_t most) {
  const int64_t bytes = layout.message_bytes();
  if (bytes <= most) return absl::OkStatus();
  int64_t shards = 0;
  for (const auto& [id, each] : layout.variables()) shards += each.num_shards();
  return absl::ResourceExhaustedError(
      absl::StrCat("variable \"", variable, "\": with it the job has ", layout.variables().size(),
                   " variables of ", shards,
                   " shards, and the message that tells workers where these lie would be ", bytes,
                   " bytes, more than ", most,
                   ": let the partitioner make fewer, larger shards, or join variables"));
}

// In a checkpoint a table has several tensors, and each tensor has one name.
absl::Status CheckTensorNames(const VariableSpec& spec, const Layout& layout) {
  std::vector<std::string> names = {spec.name};
  if (spec.table) names = TableTensors(spec.name, 1, spec.optimizer).names();
  const auto clashes = [&](const std::string& name, const std::string& other) {
    return absl::AlreadyExistsError(absl::StrCat(
        "\"", spec.name, "\" and \"", other, "\" would both have a tensor \"", name,
        "\" in checkpoints, because a dynamic table has several: give one another name"));
  };
  for (const std::string& name : names) {
    if (spec.table && layout.Find(name) != nullptr) return clashes(name, name);
    for (const std::string& owner : TablesOfTensor(name)) {
      const VariableLayout* const table = owner == spec.name ? nullptr : layout.Find(owner);
      if (table != nullptr && table->spec.table) return clashes(name, owner);
    }
  }
  return absl::OkStatus();
}

// Each part of the table may have a row.
absl::Status CheckMaxRows(const VariableLayout& table) {
  const int64_t most = table.spec.table ? table.spec.table->max_rows : 0;
  if (most == 0 || most >= table.num_shards()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dynamic table \"", table.spec.name, "\": max_rows is ", most,
                   ", and the table has ", table.num_shards(),
                   " parts, each with its share of the rows: declare it with max_rows of at "
                   "least ",
                   table.num_shards()));
}

bool HaveSameOptions(const VariableSpec& a, const VariableSpec& b) {
  return !a.table || *a.table == *b.table;
}

}  // namespace

// ---- single changes ----

absl::StatusOr<LayoutPlan::Change> LayoutPlan::PrepareVariable(
    const VariableSpec& spec, const std::optional<Colocation>& with, VariableId id) {
  ASSIGN_OR_RETURN(Change change, PrepareIn(*layout_, spec, with, id));
  RETURN_IF_ERROR(CheckMaxRows(change.variable));
  return change;
}

absl::StatusOr<LayoutPlan::Change> LayoutPlan::PrepareIn(const Layout& layout,
                                                         const VariableSpec& spec,
                                                         const std::optional<Colocation>& with,
                                                         VariableId id) {
  if (auto claimed = ClaimRestored(spec, layout)) return *std::move(claimed);
  if (layout.Find(spec.name) != nullptr)
    return absl::AlreadyExistsError(
        absl::StrCat("variable \"", spec.name, "\" exists already: names are unique in a job"));
  RETURN_IF_ERROR(CheckTensorNames(spec, layout));
  Change change;
  VariableLayout& variable = change.variable;
  variable.id = id;
  variable.spec = spec;
  if (!spec.table) variable.spec.initializer = Zeros();
  variable.spec.partitioner.reset();
  variable.spec.wire = WireOf(spec);
  RETURN_IF_ERROR(with ? PlaceWith(*with, layout, variable) : CutAndPlace(spec, layout, change));
  for (int part = 0; part < variable.num_shards(); ++part)
    change.shards[variable.ps[part]].push_back(ShardSpecOf(variable, 0, part, spec.initializer));
  if (spec.optimizer && !spec.table) AddSlots(*spec.optimizer, variable, change.shards);
  return change;
}

// The program declares a variable that the restored state already has.
std::optional<absl::StatusOr<LayoutPlan::Change>> LayoutPlan::ClaimRestored(
    const VariableSpec& spec, const Layout& layout) const {
  const VariableLayout* const restored = layout.Find(spec.name);
  if (restored == nullptr || unclaimed_.count(spec.name) == 0) return std::nullopt;
  if (const absl::Status same = CheckSameVariable(spec, restored->spec); !same.ok()) return same;
  Change change;
  change.variable = Claimed(*restored, spec);
  if (!HaveSameOptions(spec, restored->spec)) {
    TellChange(spec, restored->spec);
    change.shards = ShardSpecsOf(change.variable, Zeros());
    change.exists = true;
  }
  return change;
}

// Missing slots are made when a step needs them.
VariableLayout LayoutPlan::Claimed(VariableLayout variable, const VariableSpec& declared) const {
  variable.spec.table = declared.table;
  variable.spec.optimizer = declared.optimizer;
  variable.spec.aggregation = declared.aggregation;
  variable.spec.wire = WireOf(declared);
  return variable;
}

void LayoutPlan::TellChange(const VariableSpec& declared, const VariableSpec& saved) const {
  if (HaveSameOptions(declared, saved)) return;
  DIVVY_LOG(INFO) << "dynamic table \"" << declared.name << "\" has other options than in "
                  << origin_ << ": " << DescribeChange(*saved.table, *declared.table);
}

WireFormat LayoutPlan::WireOf(const VariableSpec& spec) const {
  const bool own = spec.wire != WireFormat::kExact || spec.dtype != DType::kFloat32 || spec.table;
  return own || !options_.wire ? spec.wire : options_.wire(spec);
}

absl::Status LayoutPlan::CheckSameVariable(const VariableSpec& declared,
                                           const VariableSpec& saved) const {
  const bool same_kind = declared.table.has_value() == saved.table.has_value() &&
                         (!declared.table || HaveSameSlots(declared.optimizer, saved.optimizer));
  if (same_kind && declared.dtype == saved.dtype && declared.shape == saved.shape)
    return absl::OkStatus();
  if (declared.table || saved.table)
    return absl::FailedPreconditionError(
        absl::StrCat("\"", saved.name, "\" is ", TextOf(declared), ", and in ", origin_, " it is ",
                     TextOf(saved), ": give the new one another name, or ", remedy_));
  return absl::FailedPreconditionError(absl::StrCat(
      "variable \"", saved.name, "\" is ", DTypeName(declared.dtype), " ",
      declared.shape.ToString(), ", and in ", origin_, " it is ", DTypeName(saved.dtype), " ",
      saved.shape.ToString(), ": give the new one another name, or ", remedy_));
}

absl::Status LayoutPlan::CutAndPlace(const VariableSpec& spec, const Layout& layout,
                                     Change& change) {
  Partitioner partitioner;
  if (spec.partitioner) {
    partitioner = *spec.partitioner;
  } else if (options_.partitioner) {
    partitioner = options_.partitioner(num_ps_);
  }
  ASSIGN_OR_RETURN(const int64_t shards, NumShards(partitioner, spec.shape, spec.dtype));
  if (shards > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat("the partitioner cuts variable \"", spec.name,
                                                   "\" into ", shards, " shards, more than ",
                                                   kMaxShards, ": let it make larger ones"));
  }
  ASSIGN_OR_RETURN(const DivSplit split, DivSplit::Create(spec.shape.rows(), shards));
  VariableLayout& variable = change.variable;
  variable.offsets = split.offsets();
  variable.ps = std::vector<int>(split.num_shards());
  const auto arranged = arrangement_.find(spec.name);
  // Another variable may have the name by now.
  const bool fits = arranged != arrangement_.end() && arranged->second.size() == variable.ps.size();
  variable.ps = fits ? arranged->second : PlaceShards(variable, layout);
  change.placed_in_turn = variable.num_shards();
  return absl::OkStatus();
}

std::vector<int> LayoutPlan::PlaceShards(const VariableLayout& variable,
                                         const Layout& layout) const {
  if (options_.placement == StrategyOptions::Placement::kRoundRobin)
    return PlaceRoundRobin(next_placement_, variable.num_shards(), num_ps_);
  std::vector<int64_t> bytes(num_ps_, 0);
  for (const auto& [id, other] : layout.variables()) {
    for (int part = 0; part < other.num_shards(); ++part) {
      bytes[other.ps[part]] += other.ShardShape(part).num_elements() * DTypeSize(other.spec.dtype);
    }
  }
  std::vector<int64_t> shard_bytes;
  for (int part = 0; part < variable.num_shards(); ++part) {
    shard_bytes.push_back(variable.ShardShape(part).num_elements() *
                          DTypeSize(variable.spec.dtype));
  }
  return PlaceBalanced(bytes, shard_bytes);
}

std::optional<LayoutPlan::Change> LayoutPlan::PrepareSlots(const std::string& variable,
                                                           const Optimizer& optimizer) const {
  const VariableLayout* found = layout_->Find(variable);
  if (found == nullptr || found->SlotsFor(optimizer)) return std::nullopt;
  Change change;
  change.variable = *found;
  AddSlots(optimizer, change.variable, change.shards);
  return change;
}

absl::StatusOr<std::shared_ptr<const Layout>> LayoutPlan::With(const Change& change) const {
  std::shared_ptr<const Layout> next = layout_->With(change.variable);
  RETURN_IF_ERROR(CheckSize(*next, change.variable.spec.name, options_.max_layout_bytes));
  return next;
}

void LayoutPlan::Apply(const Change& change, std::shared_ptr<const Layout> next,
                       const std::string& name, const std::optional<Colocation>& with) {
  if (layout_->Find(change.variable.id) == nullptr) next_placement_ += change.placed_in_turn;
  layout_ = std::move(next);
  if (with) colocated_[name] = *with;
  // Not earlier, because a rewind lets an unfinished change begin again.
  unclaimed_.erase(name);
}

// ---- the state that an epoch begins with ----

absl::Status LayoutPlan::Declare(const VariableSpec& spec, const std::optional<Colocation>& with,
                                 VariableId id) {
  ASSIGN_OR_RETURN(Change change, PrepareVariable(spec, with, id));
  next_placement_ += change.placed_in_turn;
  layout_ = layout_->With(change.variable);
  if (with) colocated_[spec.name] = *with;
  declared_.push_back({spec, with, change.variable.id, std::move(change.shards)});
  return absl::OkStatus();
}

std::vector<std::string> LayoutPlan::DeclaredNames() const {
  std::vector<std::string> names;
  for (const Declared& variable : declared_) names.push_back(variable.spec.name);
  return names;
}

absl::Status LayoutPlan::PlaceAnew(const JobState& state, const NewId& new_id,
                                   const std::map<std::string, std::vector<int>>& arrangement) {
  const std::set<std::string> unclaimed = unclaimed_;
  arrangement_ = arrangement;
  const absl::Status placed = Relayout(state, {}, new_id);
  arrangement_.clear();
  if (placed.ok()) unclaimed_ = unclaimed;
  return placed;
}

std::optional<Arrangement> LayoutPlan::Arrange(const std::map<ShardKey, ShardLoad>& loads,
                                               const ArrangeOptions& options) const {
  return divvy::Arrange(*layout_, colocated_, loads, num_ps_, options);
}

absl::Status LayoutPlan::Relayout(const JobState& state, const std::vector<Declared>& declared,
                                  const NewId& new_id) {
  const int next_placement = std::exchange(next_placement_, 0);
  absl::StatusOr<NewLayout> relaid = LayOut(state, declared, new_id);
  if (!relaid.ok()) {
    next_placement_ = next_placement;
    return relaid.status();
  }
  layout_ = std::move(relaid->layout);
  loaded_ = std::move(relaid->loaded);
  made_ = std::move(relaid->made);
  changed_.clear();
  unclaimed_ = std::move(relaid->unclaimed);
  return absl::OkStatus();
}

absl::StatusOr<LayoutPlan::NewLayout> LayoutPlan::LayOut(const JobState& state,
                                                         const std::vector<Declared>& declared,
                                                         const NewId& new_id) {
  NewLayout relaid;
  for (const Declared& each : declared)
    RETURN_IF_ERROR(AddTo(relaid, state, each.spec, each.with, each.id));
  for (const auto& [id, saved] : state.layout->variables()) {
    if (relaid.layout->Find(saved.spec.name) != nullptr) continue;
    // A variable that was declared before the checkpoint was found may have the same id.
    const bool taken = relaid.layout->Find(id) != nullptr;
    const std::optional<Colocation> with = ColocationOf(saved.spec.name, *relaid.layout);
    RETURN_IF_ERROR(
        AddTo(relaid, state, WithSavedCut(saved, *state.layout), with, taken ? new_id() : id));
    relaid.unclaimed.insert(saved.spec.name);
  }
  return relaid;
}

absl::Status LayoutPlan::AddTo(NewLayout& relaid, const JobState& state, const VariableSpec& spec,
                               const std::optional<Colocation>& with, VariableId id) {
  ASSIGN_OR_RETURN(Change change, PrepareIn(*relaid.layout, spec, with, id));
  VariableLayout variable = std::move(change.variable);
  RETURN_IF_ERROR(CheckMaxRows(variable));
  const VariableLayout* const saved = state.layout->Find(spec.name);
  if (saved != nullptr) {
    RETURN_IF_ERROR(CheckSameVariable(spec, saved->spec));
    TellChange(spec, saved->spec);
    AddSavedSlots(*saved, variable);
  }
  for (const auto& [ps, shards] : ShardSpecsOf(variable, spec.initializer)) {
    for (const ShardSpec& shard : shards) {
      const bool is_saved =
          saved != nullptr && (shard.key.slot == 0 || HasSlot(*saved, shard.name));
      (is_saved ? relaid.loaded : relaid.made)[ps].push_back(shard);
    }
  }
  next_placement_ += change.placed_in_turn;
  relaid.layout = relaid.layout->With(std::move(variable));
  // Another number of servers or an arrangement may have made more shards.
  return CheckSize(*relaid.layout, spec.name, options_.max_layout_bytes);
}

// The colocation that the program asked for when it created the variable, if the other variable
// still has that many shards.
std::optional<Colocation> LayoutPlan::ColocationOf(const std::string& variable,
                                                   const Layout& layout) const {
  const auto found = colocated_.find(variable);
  const VariableLayout* const other =
      found == colocated_.end() ? nullptr : layout.Find(found->second.variable);
  if (other == nullptr) return std::nullopt;
  return Colocation{found->second.variable, std::min(found->second.shard, other->num_shards() - 1)};
}

// A layout does not record why a variable was cut. If the job's own partitioner would have cut it
// in the same way, the partitioner is asked again. Otherwise the variable keeps its number of
// shards.
VariableSpec LayoutPlan::WithSavedCut(const VariableLayout& saved, const Layout& layout) const {
  int num_ps = 1;
  for (const auto& [id, variable] : layout.variables())
    num_ps = std::max(num_ps, 1 + *std::max_element(variable.ps.begin(), variable.ps.end()));
  const Partitioner own = options_.partitioner ? options_.partitioner(num_ps) : Partitioner();
  VariableSpec spec = saved.spec;
  const auto arranged = arrangement_.find(spec.name);
  if (arranged != arrangement_.end())
    spec.partitioner = FixedShardsPartitioner{static_cast<int64_t>(arranged->second.size())};
  else if (NumShards(own, spec.shape, spec.dtype).value_or(0) != saved.num_shards())
    spec.partitioner = FixedShardsPartitioner{saved.num_shards()};
  return spec;
}

absl::Status LayoutPlan::Adopt(std::shared_ptr<const Layout> held) {
  std::shared_ptr<const Layout> layout = std::move(held);
  std::set<std::string> unclaimed;
  std::map<int, std::vector<ShardSpec>> made;
  std::set<VariableId> changed;
  next_placement_ = 0;
  for (const auto& [id, variable] : layout->variables()) {
    unclaimed.insert(variable.spec.name);
    next_placement_ += variable.num_shards();
  }
  for (const Declared& declared : declared_) {
    if (const VariableLayout* const old = layout->Find(declared.spec.name); old != nullptr) {
      RETURN_IF_ERROR(CheckSameVariable(declared.spec, old->spec));
      unclaimed.erase(declared.spec.name);
      VariableLayout claimed = Claimed(*old, declared.spec);
      RETURN_IF_ERROR(CheckMaxRows(claimed));
      if (!HaveSameOptions(declared.spec, old->spec)) {
        TellChange(declared.spec, old->spec);
        AppendShards(ShardSpecsOf(claimed, Zeros()), made);
        changed.insert(claimed.id);
      }
      layout = layout->With(std::move(claimed));
      continue;
    }
    ASSIGN_OR_RETURN(Change change, PrepareIn(*layout, declared.spec, declared.with, declared.id));
    AppendShards(change.shards, made);
    next_placement_ += change.placed_in_turn;
    layout = layout->With(std::move(change.variable));
  }
  layout_ = std::move(layout);
  unclaimed_ = std::move(unclaimed);
  made_ = std::move(made);
  changed_ = std::move(changed);
  loaded_.clear();
  return absl::OkStatus();
}

void LayoutPlan::MakeAllDeclared() {
  made_.clear();
  changed_.clear();
  for (const Declared& declared : declared_) AppendShards(declared.shards, made_);
}

void LayoutPlan::LoadAll(const Layout& committed) {
  loaded_.clear();
  made_.clear();
  changed_.clear();
  for (const auto& [id, variable] : committed.variables())
    AppendShards(ShardSpecsOf(variable, Zeros()), loaded_);
}

std::vector<ShardSpec> LayoutPlan::ToLoad(int ps) const {
  const auto shards = loaded_.find(ps);
  return shards == loaded_.end() ? std::vector<ShardSpec>() : shards->second;
}

std::map<std::string, int64_t> LayoutPlan::Sizes() const {
  const auto size = [](const auto& structure) { return static_cast<int64_t>(structure.size()); };
  return {
      {"colocated variables", size(colocated_)},
      {"declared variables", size(declared_)},
      {"tables that get other options", size(changed_)},
      {"shards made before the first step", size(made_)},
      {"unclaimed variables", size(unclaimed_)},
  };
}

}  // namespace divvy
