// What a coordinator is asked to run, and what it keeps of each task, step, loop and change that it
// has under way. Plain records: the rules are in the parts of CoordinatorCore that use them, all
// under its lock.
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_RECORDS_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_RECORDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/backoff.h"
#include "cluster/clients.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"
#include "cluster/transfer_plan.h"
#include "coordinator/core/step_rules.h"

namespace divvy {

using StatusCallback = std::function<void(absl::Status)>;

// A step of a series counts once in the life of its job.
struct StepNumber {
  std::string series;
  int64_t number = 0;
};

// A closure: a registered step function and its arguments.
struct StepRequest {
  std::string function;
  Nest args;               // iterators are PerWorkerHandle leaves
  bool read_only = false;  // has no ordinal, writes nothing
  std::optional<StepNumber> once = {};
};

// A loop over a dataset: steps of `step` are made as workers have room, until the pass (or with
// last_step set: that training step) is reached.
struct RunRequest {
  StepRequest step;    // args without the iterator
  std::string source;  // of the data
  Nest source_args;
  bool leased = true;
  // go on, pass after pass, until so many training steps are finished; begins where the last such
  // loop over the same source stopped, if no other came between
  std::optional<int64_t> last_step;
  // What StopRun calls it: the caller's choice.
  uint64_t token = 0;
};

namespace coordinator_records {

// Another process registers as a task that we know: whether the known one still lives is being
// found out.
struct Claim {
  Incarnation by;
  std::string address;
  absl::Duration since;
  bool answered = false;  // the known one has: it lives
};

struct Ps {
  int index = 0;
  std::string address;
  std::shared_ptr<ParameterClient> client;
  Incarnation incarnation;
  int64_t max_commit_bytes = 0;  // 0: any
  PsAttachReply attach_reply;    // to the last Attach
  bool attached = false, ready = false;
  // Of Attach: an answer to an older one, and its timer, are void.
  uint64_t tries = 0;
  std::optional<Claim> claim;
  uint64_t acked_seq = 0;
  bool sync_outstanding = false, sync_wanted = false;
  // Clock::Elapsed() of the first of the calls that failed since the last answer
  std::optional<absl::Duration> silent_since;
  std::string last_error;
  Backoff backoff{0};
  std::string Text() const {
    return "ps " + std::to_string(index) + (address.empty() ? "" : " (" + address + ")");
  }
};

using WorkerStream = ResumableStream<ToWorker, FromWorker>;
struct Step;
struct Worker {
  enum class State : uint8_t { kDialing, kJoining, kReady };
  int index = 0;
  std::string address;
  std::shared_ptr<WorkerClient> client;
  Incarnation incarnation;
  int replicas = 1, slots = 1;
  State state = State::kDialing;
  bool attaching = false;       // a call of Attach is under way
  uint64_t tries = 0;           // of Attach: an answer to an older one, and its timer, are void
  std::string last_error;       // of the last Attach that failed
  bool serves_another = false;  // so it says: another job, or another coordinator
  bool has_served = false;      // it has attached in this life of ours
  absl::Duration known_since;   // at this address, and allowed to attach
  std::optional<Claim> claim;
  // Of this session.
  uint64_t pings = 0, pongs = 0;
  // `pings` before the claim: one more Pong than these was sent after it
  uint64_t claim_pings = 0;
  // drains: gets no more work
  bool leaving = false;
  // valid from kJoining on
  SessionId session;
  // Every ps knows the session when it acknowledged this Sync.
  uint64_t join_seq = 0;
  std::unique_ptr<WorkerStream> stream;
  std::shared_ptr<StreamConnection<ToWorker>> connection;
  // tells the listener of this connection from those of older ones
  uint64_t connection_number = 0;
  std::optional<absl::Duration> broken_since;
  absl::Duration last_heard;
  // In order of dispatch.
  std::vector<std::shared_ptr<Step>> in_flight;
  // Of the first of them, as far as it counts towards its deadline.
  absl::Duration run_time;
  // It was told to stop at its deadline.
  bool cancelled_late = false;
  Pong pong;
  Backoff backoff{0};
};

struct RunState;

struct Step {
  enum class State : uint8_t { kQueued, kInFlight, kFencing, kClosed };
  StepRequest request;
  std::vector<ResourceId> iterators;
  std::set<int> returned_by = {};  // workers that could not run it: others come first
  ResultCallback<Nest> result;
  std::shared_ptr<RunState> run;  // null: scheduled by the program
  EntryId id;                     // 0 before the first dispatch
  std::optional<int64_t> ordinal;
  uint32_t attempt = 0;
  std::vector<InputLease> leases;
  double learning_rate_scale = 1;
  State state = State::kQueued;
  int worker = -1;             // of the attempt in flight
  std::map<int, int> applied;  // StepFacts::applied
  uint32_t forgiven = 0;       // attempts that a rewind has undone
  uint64_t begun = 0;          // RedoLog::finishes() at the start of this attempt
  bool replayed =
      false;  // it had finished before a rewind: nobody waits for it, it counts no second time
  uint64_t finished = 0;  // of a replayed one: its number in the log
  int first_worker = -1;  // of a replayed one: that ran it then
  bool overran = false;   // this attempt has been told to stop: it ran past step_deadline
  absl::Status refusal;   // why the slots that it needs cannot be made
  std::set<Incarnation> devices_lost = {};  // StepFacts::devices_lost
  absl::Duration not_before;  // Clock::Elapsed(): it is dispatched then at the earliest
};

struct RunState {
  RunRequest request;
  std::function<void(Nest)> value;
  StatusCallback done;
  ResourceId iterator;
  int64_t outstanding = 0;  // steps made and not yet closed
  bool stopped = false;     // makes no more steps
};

// A worker is being shut out: its steps go on elsewhere when every ps has acknowledged it.
struct FenceWait {
  int worker = 0;
  uint64_t seq = 0;
  std::set<int> acked;  // ps
  std::vector<std::shared_ptr<Step>> steps;
};

struct DirectWrite {
  EntryId id;
  std::map<int, CommitRequest> commits;  // by ps; those not yet answered
  std::vector<int> participants;
  StatusCallback done;
};

// A read by the program, outside any step.
struct DirectRead {
  std::vector<VariableRead> reads;
  PullPlan plan;
  std::map<int, PullRequest> requests;  // by ps; those not yet answered
  std::map<int, PullReply> replies;
  ResultCallback<std::vector<Tensor>> done;
};

// A call that waits to raise the error of a step, until its batch has been cancelled.
struct Raiser {
  StatusCallback raise;
  std::function<void()> again;
  // That ends with the error: its pass is kept in every cut until it has been told.
  std::shared_ptr<RunState> run;
};

// A Schedule beyond max_queued_steps.
struct WaitingSchedule {
  StepRequest request;
  ResultCallback<Nest> result;
  StatusCallback accepted;
};

}  // namespace coordinator_records
}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_RECORDS_H_
