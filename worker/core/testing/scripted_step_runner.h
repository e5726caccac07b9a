// Step functions and data without threads: lists of moves, played on an Executor that may be a
// simulated one.
#ifndef DIVVY_WORKER_CORE_TESTING_SCRIPTED_STEP_RUNNER_H_
#define DIVVY_WORKER_CORE_TESTING_SCRIPTED_STEP_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "worker/core/step_runner.h"

namespace divvy {

namespace script {

// The results of the step's Read moves so far, in order.
using Reads = std::vector<std::vector<Tensor>>;

// Pulls. An error ends the step.
struct Read {
  std::vector<VariableRead> reads;
};
// Stages a write. An error ends the step.
struct Stage {
  StagedWrite write;
};
// Stages writes that depend on the values read. An error ends the step.
struct Compute {
  std::function<absl::StatusOr<std::vector<StagedWrite>>(const Reads& reads)> writes;
};
// Takes this long.
struct Take {
  absl::Duration time;
};
// Waits until `ready` is true; it is called each millisecond.
struct Until {
  std::function<bool()> ready;
};
// Ends the step with this error, as an error of the user.
struct Fail {
  absl::Status error;
};
// Ends the step with Reason::kInputAborted.
struct LoseInput {};
// Ends the step with Reason::kEndOfData.
struct RunOut {};
// Reports that an iterator has no element for the step. The step continues.
struct Ended {
  EndedInput input;
};
// From here on the step ignores a cancel.
struct IgnoreCancel {};
// Ends the step with this value. A script without a Return ends with the empty Nest.
struct Return {
  std::function<Nest(const Reads& reads)> value;
};
using Move = std::variant<Read, Stage, Compute, Take, Until, Fail, LoseInput, RunOut, Ended,
                          IgnoreCancel, Return>;

}  // namespace script

// Plays the script of a step's function. Thread-safe. A step whose function is not defined fails
// with NotFound, as an unknown function does in ThreadStepRunner.
//
//   ScriptedStepRunner runner(executor);
//   runner.Define("count", [](const StepCall&) -> std::vector<script::Move> {
//     return {script::Take{absl::Milliseconds(3)}, script::Stage{AddOne("counter")}};
//   });
//
// A script gets its StepCall, so another attempt may behave differently: touch other variables,
// fail, or run out of leased positions.
class ScriptedStepRunner : public StepRunner {
 public:
  using Script = std::function<std::vector<script::Move>(const StepCall& call)>;

  // REQUIRES: `executor` outlives every step started.
  explicit ScriptedStepRunner(Executor& executor);
  void Define(std::string function, Script script);

  // Every move begins in a task of its own, so that any event may happen between two moves.
  void Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
             std::function<void(StepEnd)> done) override;

  // Only records the call, as "train: b, w".
  void CopyAhead(const std::string& function, const std::vector<WholeValue>& values) override;

  int64_t started() const;
  std::vector<std::string> copied_ahead() const;

 private:
  Executor& executor_;
  mutable Mutex mu_;
  std::vector<std::string> copied_ahead_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, Script> scripts_ DIVVY_GUARDED_BY(mu_);
  int64_t started_ DIVVY_GUARDED_BY(mu_) = 0;
};

// Data of which only the number of elements is known. Thread-safe.
class ScriptedInputOpener : public InputOpener {
 public:
  struct Source {
    std::optional<int64_t> elements;  // of a pass
    absl::Status error;               // the result of opening it
    absl::Duration time;              // that opening takes
    std::optional<ElementDigest> first = {};
    // Each worker has its own share of the data. A worker that joined after the data was cut has no
    // share, and cannot open it.
    bool is_cut = false;
  };

  // REQUIRES: `executor` outlives every Open.
  explicit ScriptedInputOpener(Executor& executor);
  void Define(std::string name, Source source);

  // NotFound: the source is not defined.
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
            ResultCallback<OpenedInput> done) override;
  void Close(ResourceId iterator) override;
  void ReadAhead(const InputLease& positions) override;
  void ForgetAhead(const InputLease& positions) override;

  std::map<ResourceId, MakeResource> open() const;  // iterators that are open
  // The next element of the worker's share of data that is cut. nullopt: none is left, or the
  // iterator is not open.
  std::optional<int64_t> Next(ResourceId iterator);
  // The first position of each request to prefetch, over all iterators.
  std::vector<int64_t> ahead() const;

 private:
  Executor& executor_;
  mutable Mutex mu_;
  std::map<std::string, Source> sources_ DIVVY_GUARDED_BY(mu_);
  std::map<ResourceId, MakeResource> open_ DIVVY_GUARDED_BY(mu_);
  std::set<int64_t> ahead_ DIVVY_GUARDED_BY(mu_);
  struct Share {
    int64_t next = 0, end = 0, step = 1;
  };
  std::map<ResourceId, Share> shares_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_TESTING_SCRIPTED_STEP_RUNNER_H_
