// The seams behind which step functions and data lie. Both may block, and a core may not
// (docs/internals/architecture.md, "A core never waits").
//
// In a process of a cluster, ThreadStepRunner and DataInputOpener implement them. In the simulation
// and in the core's tests, worker/core/testing plays scripts.
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
  // Number of the training step, the same on every attempt; absent for a read-only step.
  std::optional<int64_t> ordinal;
  std::string function;            // the registered name
  Nest args;                       // iterators are PerWorkerHandle leaves
  std::vector<InputLease> inputs;  // positions that it may take from leased iterators
  uint64_t seed = 0;               // from (job, step): the same on every attempt
  double learning_rate_scale = 1;  // for display; the core applies it
};

// The reads and writes of a running step. Nobody else sees a staged write before the step has
// succeeded.
//
// Thread-safe; no method blocks. It lives as long as somebody holds it. After the end of the step
// every call is refused.
class StepTransaction {
 public:
  virtual ~StepTransaction() = default;

  // The job that owns the variables.
  virtual JobId job() const = 0;
  // The layout as it was when the step began; the same for the whole step.
  virtual std::shared_ptr<const Layout> layout() const = 0;

  // Reads values, and returns them in the order of `reads`. A whole variable has the variable's
  // shape; rows have the shape ids.shape + row shape, in the order of the ids. The step's own
  // staged assigns, adds and scatters are included.
  //
  // One message goes to each ps concerned. A variable that is read whole has one value for the
  // whole step, and travels once, however often and from however many replicas it is read. An
  // unreachable ps is waited for; it never fails the step. `done` is called once, perhaps before
  // Pull returns, never under a lock.
  //
  // NotFound: there is no such variable (the message lists similar names). InvalidArgument: an id
  // is outside the variable. FailedPrecondition: the step has staged a gradient for the variable,
  // and only the ps can compute its effect; or the step is over. Cancelled: the step was cancelled,
  // or the session of its worker has ended; the step function should return soon.
  virtual void Pull(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done) = 0;

  // Adds the writes, in this order, to the step's commit: all of them, or none and an error. Stage
  // checks everything that a parameter server could refuse, so that a commit cannot be refused
  // later.
  //
  // NotFound: there is no such variable (the message lists similar names). InvalidArgument: wrong
  // dtype or shape, an id out of range, a variable without an optimizer, or (with check_numerics) a
  // value that is not finite. FailedPrecondition: a write in a read-only step, a write to a
  // variable after its gradient, or the step is over. Cancelled: as for Pull.
  virtual absl::Status Stage(std::vector<StagedWrite> writes) = 0;

  // Whether the result no longer matters. Once true, it stays true.
  virtual bool cancelled() const = 0;
};

// How a run of a step function ended.
struct StepEnd {
  StepEnd(absl::StatusOr<Nest> result, std::vector<EndedInput> ended = {})
      : result(std::move(result)), ended(std::move(ended)) {}  // NOLINT: implicit on purpose
  absl::StatusOr<Nest> result;
  // The iterators that had no element for the step, or fewer elements than the worker has replicas,
  // whatever the function made of it.
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
  // returns, with the value or with the function's error. Three reasons of errors have a meaning
  // for the core; any other error is the user's:
  //   kEndOfData      no element was left
  //   kInputAborted   an input of this worker is gone: the step is run again
  //   kDeviceLost     a GPU of this process has failed for good: the step is run again elsewhere,
  //   and
  //                   this worker ends
  //
  // `done` is called after a cancel, too: the result does not matter then, but the worker runs
  // nothing else before. The core starts the steps of one session one after another. A step of a
  // session that has ended may still be running meanwhile.
  virtual void Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
                     std::function<void(StepEnd)> done) = 0;

  // Tells the runner that `values` have been pulled for a queued step of `function`. The runner may
  // copy those that the function's replicas last read on GPUs to these GPUs now, while the GPUs
  // compute. Nobody waits for the copies, and they change no result. A copy is freed with its
  // value.
  virtual void CopyAhead(const std::string& function, const std::vector<WholeValue>& values) {}
};

// An iterator that has been opened.
struct OpenedInput {
  // Number of elements of a whole pass, if known.
  std::optional<int64_t> elements;
  // Leased data only: the digest of the list of the first elements, if there are any.
  std::optional<ElementDigest> first;
};

// Opens the data that steps iterate over. Thread-safe; no method blocks.
class InputOpener {
 public:
  virtual ~InputOpener() = default;

  // Opens the iterator `resource.iterator` of this worker. Steps may name it from now on, and wait
  // until it is open. `done` is called once, perhaps before Open returns, with the facts known of
  // the data or with an error. Every step that uses the iterator gets the same error.
  virtual void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
                    ResultCallback<OpenedInput> done) = 0;

  // Closes the iterator. Steps that use it fail with Reason::kInputAborted. It may be opened again.
  // An unknown iterator is ignored.
  virtual void Close(ResourceId iterator) = 0;

  // Tells that a queued step will take these positions. If that saves time, they are prefetched as
  // soon as no earlier step needs the iterator. Prefetching does not change which elements a step
  // gets. An unknown iterator is ignored.
  virtual void ReadAhead(const InputLease& positions) = 0;
  // The step has taken these positions, or never will: drops the prefetched elements that are left.
  virtual void ForgetAhead(const InputLease& positions) = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STEP_RUNNER_H_
