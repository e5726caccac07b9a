// Which variables a job has, and where each of them lies on the parameter servers.
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
#include "cluster/job_state.h"
#include "cluster/layout.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"

namespace divvy {

// The layout as it is, and what changes of it will be. Calls nobody. Not thread-safe: the
// coordinator's lock guards it.
class LayoutPlan {
 public:
  // One variable, as it is to be.
  struct Change {
    VariableLayout variable;
    // By ps: to be made.
    std::map<int, std::vector<ShardSpec>> shards;
    // shards of them: the next variable comes after these
    int placed_in_turn = 0;
  };
  // Gives the id of a new variable.
  using NewId = std::function<VariableId()>;

  // REQUIRES: `options` outlives it.
  explicit LayoutPlan(const CoordinatorOptions& options) : options_(options) {}

  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  // The servers on which variables are placed from here on.
  void SetNumPs(int num_ps) { num_ps_ = num_ps; }

  // ---- single changes ----

  // A new variable, or one that the state of the job has and the program now declares.
  // AlreadyExists, InvalidArgument, NotFound (of `with`), FailedPrecondition (it is another one in
  // the state).
  absl::StatusOr<Change> PrepareVariable(const VariableSpec& spec,
                                         const std::optional<Colocation>& with, VariableId id);
  // The slots that `optimizer` needs for `variable`. Nullopt: they exist, or the variable does not.
  std::optional<Change> PrepareSlots(const std::string& variable, const Optimizer& optimizer) const;
  // The layout with the change. ResourceExhausted: no message to a worker could carry it.
  absl::StatusOr<std::shared_ptr<const Layout>> With(const Change& change) const;
  // The change has been carried out and `next` is the layout. `name`, `with`: of a variable that
  // the program creates.
  void Apply(const Change& change, std::shared_ptr<const Layout> next, const std::string& name,
             const std::optional<Colocation>& with);

  // ---- the state that an epoch begins with ----

  // While nobody knows yet what the state will be, a variable is a declaration. Its shards are
  // made, or loaded, when that is decided.
  absl::Status Declare(const VariableSpec& spec, const std::optional<Colocation>& with,
                       VariableId id);
  std::vector<std::string> DeclaredNames() const;
  // What error messages say of the state that is restored: what it is, and what to do if the
  // program wants another.
  void SetOrigin(std::string text, std::string remedy) {
    origin_ = std::move(text), remedy_ = std::move(remedy);
  }
  // Cuts and places the variables of the state, and those that are declared, for the servers that
  // there are now. What the state holds is loaded, the rest is made. An error: all is as it was.
  absl::Status Relayout(const JobState& state, const NewId& new_id) {
    return Relayout(state, declared_, new_id);
  }
  // The same for another number of servers, when the job runs and everything is in `state`.
  absl::Status PlaceAnew(const JobState& state, const NewId& new_id);
  // The servers keep what they hold, as `held` says. What is declared beside it is made.
  absl::Status Adopt(std::shared_ptr<const Layout> held);
  // There is nothing to load: all that is declared is made.
  void MakeAllDeclared();
  // A checkpoint with this layout has been committed. From here on all of it is loaded.
  void LoadAll(const Layout& committed);
  // What `ps` loads.
  std::vector<ShardSpec> ToLoad(int ps) const;
  // What is made before the first step, by ps.
  const std::map<int, std::vector<ShardSpec>>& to_make() const { return made_; }

  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  // A variable of the program, while nobody knows yet whether it is made or loaded.
  struct Declared {
    VariableSpec spec;
    std::optional<Colocation> with;
    VariableId id;
    std::map<int, std::vector<ShardSpec>> shards;  // by ps
  };
  // What a state's variables, and those declared beside it, become on the servers that there are.
  struct Relaid {
    std::shared_ptr<const Layout> layout = Layout::Empty();
    std::map<int, std::vector<ShardSpec>> loaded, made;  // by ps
    std::set<std::string> unclaimed;
  };

  absl::StatusOr<Change> PrepareIn(const Layout& layout, const VariableSpec& spec,
                                   const std::optional<Colocation>& with, VariableId id);
  std::optional<absl::StatusOr<Change>> ClaimRestored(const VariableSpec& spec,
                                                      const Layout& layout) const;
  absl::Status CutAndPlace(const VariableSpec& spec, const Layout& layout, Change& change);
  std::vector<int> PlaceShards(const VariableLayout& variable, const Layout& layout) const;
  absl::Status Relayout(const JobState& state, const std::vector<Declared>& declared,
                        const NewId& new_id);
  absl::StatusOr<Relaid> LayOut(const JobState& state, const std::vector<Declared>& declared,
                                const NewId& new_id);
  absl::Status AddTo(Relaid& relaid, const JobState& state, const VariableSpec& spec,
                     const std::optional<Colocation>& with, VariableId id);
  std::optional<Colocation> ColocationOf(const std::string& variable, const Layout& layout) const;
  VariableSpec AsItWasCut(const VariableLayout& saved, const Layout& layout) const;
  absl::Status CheckSameVariable(const VariableSpec& declared, const VariableSpec& saved) const;

  const CoordinatorOptions& options_;
  int num_ps_ = 0;
  std::shared_ptr<const Layout> layout_ = Layout::Empty();
  int next_placement_ = 0;
  // variables that the program wants beside others, by name
  std::map<std::string, Colocation> colocated_;
  std::vector<Declared> declared_;
  // variables that came with the state and are not declared
  std::set<std::string> unclaimed_;
  // By ps: read from the checkpoint.
  std::map<int, std::vector<ShardSpec>> loaded_;
  // By ps: made before the first step.
  std::map<int, std::vector<ShardSpec>> made_;
  std::string origin_, remedy_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LAYOUT_PLAN_H_
