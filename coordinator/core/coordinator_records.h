// The records that a coordinator keeps: the requests of the program, and the state of each task,
// step, loop and write that is under way. Plain data, guarded by the coordinator's lock. The parts
// of CoordinatorCore that use a record have its rules.
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
#include "coordinator/core/shard_loads.h"
#include "coordinator/core/step_rules.h"
#include "protocol/backoff.h"
#include "protocol/clients.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "variables/transfer_plan.h"

namespace divvy {

using StatusCallback = std::function<void(absl::Status)>;

// A numbered step of a series. It counts once in the life of its job, however often it is
// scheduled.
struct StepNumber {
  std::string series;
  int64_t number = 0;
};

// What the program asks to run: the name of a registered step function, and its arguments.
struct StepRequest {
  std::string function;
  // Iterators are PerWorkerHandle leaves.
  Nest args;
  // A read-only step has no ordinal and writes nothing.
  bool read_only = false;
  std::optional<StepNumber> once = {};
};

// A loop over a dataset. The loop makes a step whenever a worker has room, until the pass ends.
// With last_step, it goes on until that training step has finished.
struct RunRequest {
  // The step that the loop makes again and again. Its args do not have the iterator; the loop adds
  // it.
  StepRequest step;
  // The name of the data source.
  std::string source;
  Nest source_args;
  bool leased = true;
  // Continue, pass after pass, until so many training steps have finished. If no other loop has run
  // since the last such loop over the same source, this one resumes where that one stopped.
  std::optional<int64_t> last_step;
  // Identifies the loop for StopRun. The caller chooses it.
  uint64_t token = 0;
};

namespace coordinator_records {

// Another process has registered as a task that the coordinator knows already. The coordinator is
// finding out whether the known process still lives.
struct Claim {
  Incarnation by;
  std::string address;
  absl::Duration since;
  // The known process has answered, so it lives.
  bool answered = false;
};

// A parameter server.
struct Ps {
  int index = 0;
  std::string address;
  std::shared_ptr<ParameterClient> client;
  Incarnation incarnation;
  // The largest commit that it accepts; 0: no limit.
  int64_t max_commit_bytes = 0;
  // The reply to the last Attach.
  PsAttachReply attach_reply;
  // Whether it has attached in this epoch, and whether it has its part of the state.
  bool attached = false, ready = false;
  // The bytes of the checkpoint that it has read in this epoch, and that it has to read; 0: it has
  // not said.
  int64_t loaded_bytes = 0, bytes_to_load = 0;
  // A process with this index had attached, and another one takes its place.
  bool is_lost = false;
  // Grows with each call of Attach and with each epoch. Replies and timers that belong to an older
  // value are ignored.
  uint64_t tries = 0;
  std::optional<Claim> claim;
  // The last Sync that it has acknowledged.
  uint64_t acked_seq = 0;
  // Whether a Sync is in flight, and whether another one must follow it.
  bool sync_outstanding = false, sync_wanted = false;
  // What it last told of its parts of dynamic tables in this epoch.
  std::vector<SyncReply::Table> tables;
  // How much its shards are used in this epoch, and what they may take together (0: not known).
  ShardLoads loads;
  int64_t memory_limit_bytes = 0;
  // Clock::Elapsed() of the first call that has failed since the last answer.
  std::optional<absl::Duration> silent_since;
  std::string last_error;
  Backoff backoff{0};
  // How log lines and errors name it.
  std::string Text() const {
    return "ps " + std::to_string(index) + (address.empty() ? "" : " (" + address + ")");
  }
};

using WorkerStream = ResumableStream<ToWorker, FromWorker>;
struct Step;
// A worker. The coordinator keeps its record while it is away.
struct Worker {
  enum class State : uint8_t {
    // It has no session.
    kDialing,
    // It has attached, and not every ps accepts its session yet.
    kJoining,
    // It gets steps.
    kReady
  };
  int index = 0;
  std::string address;
  std::shared_ptr<WorkerClient> client;
  Incarnation incarnation;
  int replicas = 1, slots = 1;
  State state = State::kDialing;
  // A call of Attach is under way.
  bool attaching = false;
  // Grows with each call of Attach. Replies and timers that belong to an older value are ignored.
  uint64_t tries = 0;
  // The error of the last Attach that failed.
  std::string last_error;
  // It says that it serves another job or another coordinator.
  bool serves_another = false;
  // It has attached in this life of the coordinator.
  bool has_served = false;
  // It was lost, and has not attached since.
  bool is_lost = false;
  // Since when it is known at this address and may attach.
  absl::Duration known_since;
  std::optional<Claim> claim;
  // The pings sent and the pongs received in this session.
  uint64_t pings = 0, pongs = 0;
  // The value of `pings` before the claim. A Pong beyond this number was sent after the claim.
  uint64_t claim_pings = 0;
  // The worker drains: it gets no more work.
  bool leaving = false;
  // Valid from kJoining on.
  SessionId session;
  // The Sync that introduces the session. Once every ps has acknowledged it, the worker is kReady.
  uint64_t join_seq = 0;
  std::unique_ptr<WorkerStream> stream;
  // The layout has changed since it was sent on `stream`.
  bool layout_is_old = false;
  std::shared_ptr<StreamConnection<ToWorker>> connection;
  // Distinguishes the listener of this connection from those of older connections.
  uint64_t connection_number = 0;
  std::optional<absl::Duration> broken_since;
  absl::Duration last_heard;
  // The steps dispatched to it, in the order of dispatch.
  std::vector<std::shared_ptr<Step>> in_flight;
  // The sum of what these are expected to take (Step::expected).
  absl::Duration expected;
  // The part of the first step's run time that counts towards step_deadline.
  absl::Duration run_time;
  // How often it could not run a step since it last ran one; steps that it returns while it rests
  // do not count. It gets no step before Clock::Elapsed() reaches `rests_until`.
  int returned = 0;
  absl::Duration rests_until;
  // The first step was told to stop at its deadline.
  bool cancelled_late = false;
  Pong pong;
  Backoff backoff{0};
};

struct RunState;

// A step, from the moment when it is queued until it is closed.
struct Step {
  enum class State : uint8_t {
    kQueued,
    kInFlight,
    // Its worker is lost, and the fence is not complete.
    kFencing,
    kClosed
  };
  StepRequest request;
  std::vector<ResourceId> iterators;
  // Worker processes that could not run it, and how often each of them said so. Others are tried
  // first.
  std::map<Incarnation, int> returned_by = {};
  ResultCallback<Nest> result;
  // The loop that made it. Null: the program scheduled it.
  std::shared_ptr<RunState> run;
  // 0 before the first dispatch.
  EntryId id;
  std::optional<int64_t> ordinal;
  uint32_t attempt = 0;
  std::vector<InputLease> leases;
  double learning_rate_scale = 1;
  // As Dispatch::tick.
  uint32_t tick = 0;
  State state = State::kQueued;
  // The worker of the attempt in flight.
  int worker = -1;
  // Of its arguments.
  int64_t arg_bytes = 0;
  // Clock::Elapsed() when it was queued; for a replayed step, when it was queued again.
  absl::Duration queued_at;
  // Clock::Elapsed() when it began to wait for the next dispatch: at the program's call, or at the
  // end of the attempt before.
  absl::Duration waits_since = {};
  // Clock::Elapsed() at the dispatch of the last attempt, and its Dispatch::trace_over. trace_over
  // is empty if the attempt is not to be traced.
  absl::Duration sent_at;
  std::optional<absl::Duration> trace_over = {};
  // The worker was told to give it back, because the steps before it take longer than expected.
  bool recalled = false;
  // What this attempt was expected to take when it was dispatched; finite.
  absl::Duration expected;
  // As StepFacts::applied.
  std::map<int, int> applied;
  // Attempts that do not count towards max_step_attempts: a rewind has undone them, or the step had
  // not begun when its worker was lost or gave it back.
  uint32_t forgiven = 0;
  // RedoLog::finishes() at the start of this attempt.
  uint64_t begun = 0;
  // The step had finished before a rewind and is run again. No caller waits for it, and it does not
  // count a second time.
  bool replayed = false;
  // For a replayed step: RedoLog::Entry::finished.
  uint64_t finished = 0;
  // For a replayed step: the worker that ran it the first time.
  int first_worker = -1;
  // This attempt has been told to stop because it ran past step_deadline.
  bool overran = false;
  // Why the slots that it needs cannot be made.
  absl::Status refusal;
  // The worker processes that lost a GPU while they ran it. Their number is
  // StepFacts::devices_lost.
  std::set<Incarnation> devices_lost = {};
  // The step is not dispatched before Clock::Elapsed() reaches this time.
  absl::Duration not_before;
};

// A loop under way.
struct RunState {
  RunRequest request;
  std::function<void(Nest)> value;
  StatusCallback done;
  ResourceId iterator;
  // Steps that the loop has made and that are not closed yet.
  int64_t outstanding = 0;
  // The loop makes no more steps.
  bool stopped = false;
};

// A lost worker that is being fenced. Its steps may run on other workers once every ps has
// acknowledged Sync number `seq`, which no longer has the worker's session.
struct FenceWait {
  int worker = 0;
  uint64_t seq = 0;
  // The ps that have acknowledged that Sync or a later one.
  std::set<int> acked;
  // The steps that were in flight at the worker.
  std::vector<std::shared_ptr<Step>> steps;
};

// A write by the program, outside any step.
struct DirectWrite {
  EntryId id;
  // As CommitRequest::tick.
  uint32_t tick = 0;
  // By ps: the commits that are not answered yet.
  std::map<int, CommitRequest> commits;
  std::vector<int> participants;
  StatusCallback done;
  // It lets rows of a dynamic table go. The program does not know of it.
  bool evicts = false;
};

// A read by the program, outside any step.
struct DirectRead {
  std::vector<VariableRead> reads;
  PullPlan plan;
  // By ps: the requests that are not answered yet.
  std::map<int, PullRequest> requests;
  // By ps: the answers so far.
  std::map<int, PullReply> replies;
  ResultCallback<std::vector<Tensor>> done;
};

// A call that waits to raise a step's error, until the batch of the step has been cancelled.
struct ErrorWaiter {
  StatusCallback raise;
  std::function<void()> again;
  // The loop that ends with the error. Its pass stays in every cut until the program has the error.
  std::shared_ptr<RunState> run;
};

// A Schedule that waits because max_queued_steps steps are queued.
struct WaitingSchedule {
  StepRequest request;
  ResultCallback<Nest> result;
  StatusCallback accepted;
  // Clock::Elapsed() at the call.
  absl::Duration since = {};
};

}  // namespace coordinator_records
}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_RECORDS_H_
