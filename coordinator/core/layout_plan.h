// Plans which variables a job has and on which parameter server each shard lies.
#ifndef DIVVY_COORDINATOR_CORE_LAYOUT_PLAN_H_
#define DIVVY_COORDINATOR_CORE_LAYOUT_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/arrangement.h"
#include "coordinator/core/coordinator_options.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"
#include "variables/layout.h"

namespace divvy {

// The current layout, and the plan of each change to it. A plan takes effect when the caller has
// carried it out. Calls no other part and never blocks. Not thread-safe: the coordinator's lock
// guards it.
class LayoutPlan {
 public:
  // A planned change: one variable as it will be.
  struct Change {
    VariableLayout variable;
    // The shards to make, by ps, and the parts of a table that exist and get other options.
    std::map<int, std::vector<ShardSpec>> shards;
    // Whether `shards` are parts of a table that exist.
    bool exists = false;
    // The number of shards of the variable that were placed round robin. The next variable is
    // placed after them.
    int placed_in_turn = 0;
  };
  // Returns the id for a new variable.
  using NewId = std::function<VariableId()>;

  // REQUIRES: `options` outlives it.
  explicit LayoutPlan(const CoordinatorOptions& options) : options_(options) {}

  // The layout in effect; never null.
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  // From now on variables are placed on ps 0 to num_ps - 1.
  void SetNumPs(int num_ps) { num_ps_ = num_ps; }

  // ---- single changes ----

  // Plans a new variable, or a variable that the job's state already has and that the program now
  // declares. `with`: places the variable beside a shard of another one.
  //
  // AlreadyExists: the name is taken. InvalidArgument: the spec, the partitioner or `with` is
  // invalid. NotFound: `with` names an unknown variable. FailedPrecondition: the state has a
  // different variable of this name.
  absl::StatusOr<Change> PrepareVariable(const VariableSpec& spec,
                                         const std::optional<Colocation>& with, VariableId id);
  // Plans the slots that `optimizer` needs for `variable`. Nullopt: all of them exist, or the
  // variable does not.
  std::optional<Change> PrepareSlots(const std::string& variable, const Optimizer& optimizer) const;
  // The layout including the change. ResourceExhausted: it is larger than max_layout_bytes, so no
  // message to a worker could carry it.
  absl::StatusOr<std::shared_ptr<const Layout>> With(const Change& change) const;
  // The change has been carried out, and `next` becomes the layout. `name`, `with`: of the variable
  // that the program creates; `name` is empty for slots.
  void Apply(const Change& change, std::shared_ptr<const Layout> next, const std::string& name,
             const std::optional<Colocation>& with);

  // ---- the state that an epoch begins with ----

  // Records a variable while the state of the job is not chosen. Its shards are made or loaded once
  // the state is chosen. Errors: as PrepareVariable.
  absl::Status Declare(const VariableSpec& spec, const std::optional<Colocation>& with,
                       VariableId id);
  std::vector<std::string> DeclaredNames() const;
  // For error messages about the restored state. `text` names the state; `remedy` says what to do
  // if the program wants another one.
  void SetOrigin(std::string text, std::string remedy) {
    origin_ = std::move(text), remedy_ = std::move(remedy);
  }
  // Cuts and places the variables of the state and the declared variables for the current servers.
  // Variables in the state are loaded, the others are made. After an error nothing has changed.
  absl::Status Relayout(const JobState& state, const NewId& new_id) {
    return Relayout(state, declared_, new_id);
  }
  // Does the same for another number of servers, or for an arrangement of the shards, while the job
  // runs. `state` has all variables. Those that `arrangement` does not have are placed by the rule.
  absl::Status PlaceAnew(const JobState& state, const NewId& new_id,
                         const std::map<std::string, std::vector<int>>& arrangement = {});
  // Where the shards lie better. Nullopt, and `loads`: as divvy::Arrange.
  std::optional<Arrangement> Arrange(const std::map<ShardKey, ShardLoad>& loads,
                                     const ArrangeOptions& options) const;
  // The servers keep what they hold, which `held` describes. Declared variables that are not in it
  // are made, and tables in it get the declared options.
  absl::Status Adopt(std::shared_ptr<const Layout> held);
  // All declared variables are made, because there is nothing to load.
  void MakeAllDeclared();
  // A checkpoint with this layout has been committed. From now on all of it is loaded.
  void LoadAll(const Layout& committed);
  // The shards that `ps` loads from the checkpoint.
  std::vector<ShardSpec> ToLoad(int ps) const;
  // The shards that are made before the first step, by ps, and the parts of tables that get other
  // options.
  const std::map<int, std::vector<ShardSpec>>& to_make() const { return made_; }
  // The tables among these that exist.
  const std::set<VariableId>& to_change() const { return changed_; }

  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  // A variable that the program has declared. The choice of the job's state decides whether it is
  // made or loaded.
  struct Declared {
    VariableSpec spec;
    std::optional<Colocation> with;
    VariableId id;
    std::map<int, std::vector<ShardSpec>> shards;  // by ps
  };
  // The layout of a state's variables and of the declared variables on the current servers.
  struct NewLayout {
    std::shared_ptr<const Layout> layout = Layout::Empty();
    std::map<int, std::vector<ShardSpec>> loaded, made;  // by ps
    std::set<std::string> unclaimed;
  };

  // PrepareVariable for any layout.
  absl::StatusOr<Change> PrepareIn(const Layout& layout, const VariableSpec& spec,
                                   const std::optional<Colocation>& with, VariableId id);
  // The change for a variable of the restored state that the program now declares. Nullopt: the
  // state does not have it.
  std::optional<absl::StatusOr<Change>> ClaimRestored(const VariableSpec& spec,
                                                      const Layout& layout) const;
  // Cuts the variable with its partitioner and places its shards, as `arrangement_` says or by the
  // job's placement rule.
  absl::Status CutAndPlace(const VariableSpec& spec, const Layout& layout, Change& change);
  // The ps of each shard, by the job's placement rule.
  std::vector<int> PlaceShards(const VariableLayout& variable, const Layout& layout) const;
  // Lays out the state and `declared`, and makes the result the layout.
  absl::Status Relayout(const JobState& state, const std::vector<Declared>& declared,
                        const NewId& new_id);
  // Computes the layout for the current servers. Does not change layout().
  absl::StatusOr<NewLayout> LayOut(const JobState& state, const std::vector<Declared>& declared,
                                   const NewId& new_id);
  // Adds one variable to `relaid`.
  absl::Status AddTo(NewLayout& relaid, const JobState& state, const VariableSpec& spec,
                     const std::optional<Colocation>& with, VariableId id);
  // The colocation that the program asked for, if it is still possible.
  std::optional<Colocation> ColocationOf(const std::string& variable, const Layout& layout) const;
  // The variable's spec with a partitioner that cuts it as it was cut before.
  VariableSpec WithSavedCut(const VariableLayout& saved, const Layout& layout) const;
  // The variable's own format, or else the strategy's.
  WireFormat WireOf(const VariableSpec& spec) const;
  // The restored variable as the program now declares it.
  VariableLayout Claimed(VariableLayout restored, const VariableSpec& declared) const;
  // Logs that the declared table has other options than the saved one, if it has.
  void TellChange(const VariableSpec& declared, const VariableSpec& saved) const;
  // FailedPrecondition: the declared variable has another dtype or shape than the saved one.
  absl::Status CheckSameVariable(const VariableSpec& declared, const VariableSpec& saved) const;

  const CoordinatorOptions& options_;
  int num_ps_ = 0;
  std::shared_ptr<const Layout> layout_ = Layout::Empty();
  int next_placement_ = 0;
  // While the job's variables are placed anew: the ps of each shard, by the variable's name.
  std::map<std::string, std::vector<int>> arrangement_;
  // Variables that the program places beside others, by name.
  std::map<std::string, Colocation> colocated_;
  std::vector<Declared> declared_;
  // Variables of the state that the program has not declared.
  std::set<std::string> unclaimed_;
  // Shards that are read from the checkpoint, by ps.
  std::map<int, std::vector<ShardSpec>> loaded_;
  // Shards that are made before the first step, by ps, and the parts of `changed_`.
  std::map<int, std::vector<ShardSpec>> made_;
  // Tables that the servers hold and that get other options.
  std::set<VariableId> changed_;
  std::string origin_, remedy_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LAYOUT_PLAN_H_
