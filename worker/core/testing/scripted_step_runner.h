// Step bodies and data without threads: played from lists of moves, on an Executor that may be a
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

// What a step has read so far: the results of its Read moves, in order.
using Reads = std::vector<std::vector<Tensor>>;

struct Read {
  std::vector<VariableRead> reads;
};  // an error ends the step with it
struct Stage {
  StagedWrite write;
};  // so does one of these
struct Compute {
  std::function<absl::StatusOr<std::vector<StagedWrite>>(const Reads& reads)> writes;
};  // stages what depends on what was read
struct Take {
  absl::Duration time;
};  // goes on after so long
struct Until {
  std::function<bool()> ready;
};  // goes on when it holds: looked at each millisecond
struct Fail {
  absl::Status error;
};                    // ends with the user's error
struct LoseInput {};  // ends with Reason::kInputAborted
struct RunOut {};     // ends with Reason::kEndOfData
struct Ended {
  EndedInput input;
};                       // an iterator has nothing for the step, which goes on
struct IgnoreCancel {};  // from here on
struct Return {
  std::function<Nest(const Reads& reads)> value;
};  // without one: the empty Nest at the end
using Move = std::variant<Read, Stage, Compute, Take, Until, Fail, LoseInput, RunOut, Ended,
                          IgnoreCancel, Return>;

}  // namespace script

// Thread-safe. A step whose function is not defined fails with NotFound, as an unknown name does in
// life.
//
//   ScriptedStepRunner runner(executor);
//   runner.Define("count", [](const StepCall&) -> std::vector<script::Move> {
//     return {script::Take{absl::Milliseconds(3)}, script::Stage{AddOne("counter")}};
//   });
//
// A script sees its StepCall, so it can behave differently on another attempt: touch other
// variables, fail, run out of its leased positions.
class ScriptedStepRunner : public StepRunner {
 public:
  using Script = std::function<std::vector<script::Move>(const StepCall& call)>;

  // REQUIRES: `executor` outlives every step started.
  explicit ScriptedStepRunner(Executor& executor);
  void Define(std::string function, Script script);

  // Every move begins in a task of its own, so that anything may happen between two of them.
  void Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
             std::function<void(StepEnd)> done) override;

  // Only remembers what it was told: "train: b, w".
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

// Data that is a number of elements. Thread-safe.
class ScriptedInputOpener : public InputOpener {
 public:
  struct Source {
    std::optional<int64_t> elements;  // of a pass
    absl::Status error;               // of opening it
    absl::Duration time;              // that opening takes
    std::optional<ElementDigest> first = {};
    // Each worker has a share of it; one that came after it was cut has none, and cannot open it.
    bool is_cut = false;
  };

  // REQUIRES: `executor` outlives every Open.
  explicit ScriptedInputOpener(Executor& executor);
  void Define(std::string name, Source source);

  // A source that is not defined is NotFound.
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
            ResultCallback<OpenedInput> done) override;
  void Close(ResourceId iterator) override;
  void ReadAhead(const InputLease& positions) override;
  void ForgetAhead(const InputLease& positions) override;

  std::map<ResourceId, MakeResource> open() const;  // those opened and not closed
  // The next element of the worker's share of data that is cut; nullopt: none is left, or it is not
  // open.
  std::optional<int64_t> Next(ResourceId iterator);
  // The first positions to be read ahead, of all iterators.
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
