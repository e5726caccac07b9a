// The seams behind which step bodies and data live, because both may block and a core may not
// (docs/internals/architecture.md, "A core never waits").
//
// In a live process ThreadStepRunner and DataInputOpener stand behind them; in the simulation and
// in the core's tests worker/core/testing plays scripts.
#ifndef DIVVY_WORKER_CORE_STEP_RUNNER_H_
#define DIVVY_WORKER_CORE_STEP_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protocol/clients.h"
#include "protocol/messages.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"
#include "variables/layout.h"
#include "variables/transfer_plan.h"

namespace divvy {

// One run of a step function.
struct StepCall {
  EntryId step;
  uint32_t attempt = 1;
  // number of the training step, the same on every attempt; absent: read-only
  std::optional<int64_t> ordinal;
  std::string function;            // the registered name
  Nest args;                       // iterators are PerWorkerHandle leaves
  std::vector<InputLease> inputs;  // the positions it may take from leased iterators
  uint64_t seed = 0;               // from (job, step): the same on every attempt
  double learning_rate_scale = 1;  // the core has it already; for display
};

// What a running step reads and writes. Nothing it stages is seen by anybody else before the step
// has ended well.
//
// Thread-safe; no method blocks. Lives as long as somebody holds it; after the step has ended every
// call is refused.
class StepTransaction {
 public:
  virtual ~StepTransaction() = default;

  // Whose variables these are.
  virtual JobId job() const = 0;
  // The variables as they were when the step began; the same for the whole step.
  virtual std::shared_ptr<const Layout> layout() const = 0;

  // The values, in the order of `reads` (whole ones in the variable's shape, rows as ids.shape +
  // row shape, in the order asked). One message to each ps concerned. A variable read whole has one
  // value for the whole step, however often and from how many replicas it is asked for: it travels
  // once. The step's own staged assigns, adds and scatters are seen. `done` is called once, perhaps
  // before Pull returns, never under a lock. A ps that cannot be reached is waited for; it never
  // fails the step.
  // NotFound: no such variable (near names). InvalidArgument: an id outside the variable.
  // FailedPrecondition: the step has staged a gradient for it, whose effect only the ps knows; or
  // the step is over. Cancelled: the step was cancelled or its worker's session ended; return soon.
  virtual void Pull(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done) = 0;

  // Adds the writes, in this order, to the step's commit: all, or (with an error) none. All that a
  // parameter server could refuse is refused here. NotFound: no such variable (near names).
  // InvalidArgument: dtype, shape, an id out of range, no optimizer, or (where numerics are
  // checked) a value that is not finite. FailedPrecondition: a read-only step, a write to a
  // variable after its gradient, or the step is over. Cancelled: as Pull.
  virtual absl::Status Stage(std::vector<StagedWrite> writes) = 0;

  // Whether the result no longer matters. Never false again.
  virtual bool cancelled() const = 0;
};

// How a run of a step function ended.
struct StepEnd {
  StepEnd(absl::StatusOr<Nest> result, std::vector<EndedInput> ended = {})
      : result(std::move(result)), ended(std::move(ended)) {}  // NOLINT: a result is one
  absl::StatusOr<Nest> result;
  // iterators that had no element for the step, or fewer than it has replicas, whatever the
  // function made of it
  std::vector<EndedInput> ended;
};

// A variable's whole value.
struct WholeValue {
  std::string variable;
  Tensor value;
};

// Runs step functions. Thread-safe.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Begins to run the step and returns. `done` is called once, on any thread, perhaps before Start
  // returns: with the value, or with the function's error. An error of Reason::kEndOfData means
  // that there was no element left, Reason::kInputAborted that an input of this worker is gone (the
  // step is run again), Reason::kDeviceLost that a GPU of this process has failed for good (the
  // step is run again elsewhere, and this worker ends): any other is the user's. After a cancel the
  // result does not matter, but `done` is still called, for until then the worker runs nothing
  // else. The core calls Start for one step of a session after another; a step of a session that
  // has ended may still be running meanwhile.
  virtual void Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
                     std::function<void(StepEnd)> done) = 0;

  // These values have been pulled for a step of `function` that waits for the steps before it.
  // Those that the function's replicas have last read on GPUs may be copied there now, beside what
  // the GPUs compute. Nobody waits for that, and whether it is done changes no result. The copies
  // go with the values.
  virtual void CopyAhead(const std::string& function, const std::vector<WholeValue>& values) {}
};

// An iterator that has been opened.
struct OpenedInput {
  // Of a whole pass, where known.
  std::optional<int64_t> elements;
  // Of leased data: of the list of its first elements, where there is one.
  std::optional<ElementDigest> first;
};

// Opens the data that steps iterate over. Thread-safe; no method blocks.
class InputOpener {
 public:
  virtual ~InputOpener() = default;

  // Makes the iterator `resource.iterator` of this worker, which steps may name from now on (they
  // wait for it). `done` is called once, perhaps before Open returns: with what is known of it, or
  // with the error that every step using it will meet too.
  virtual void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
                    ResultCallback<OpenedInput> done) = 0;

  // Forgets the iterator; unknown ones: nothing happens. Steps that use it fail with
  // Reason::kInputAborted. It may be opened anew.
  virtual void Close(ResourceId iterator) = 0;

  // A step that waits for those before it will take these positions: where that saves time they are
  // read as soon as no step before it wants the iterator. Which elements a step gets is the same
  // with it and without. Unknown iterators: nothing happens.
  virtual void ReadAhead(const InputLease& positions) = 0;
  // It will not, or has: what was read ahead and not taken is forgotten.
  virtual void ForgetAhead(const InputLease& positions) = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STEP_RUNNER_H_
