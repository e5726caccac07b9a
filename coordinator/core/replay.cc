// Rewinds and replays: what the coordinator does for them (recovery.h has the rules).
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "coordinator/core/coordinator_core.h"
#include "protocol/error.h"

namespace divvy {

// ---- rewind ----

void CoordinatorCore::Rewind(std::string why) {
  if (phase_.IsFinal() || phase_.IsEndCertain()) return;
  // A process that was asked to end has no time to replay the steps that were in flight.
  if (IsDraining()) return FailJob(Drained());
  if (const absl::Status may = recovery_.CountRewind(why); !may.ok()) return FailJob(may);
  StartRewind(std::move(why));
  outbox_.Add([text = absl::StrCat(recovery_.rewind()->why, ". All parameter servers go back to ",
                                   checkpoint_maker_.newest() ? checkpoint_maker_.newest()->name()
                                                              : "the beginning",
                                   ", and ", recovery_.rewind()->steps_left,
                                   " steps are run again")] { DIVVY_LOG(WARNING) << text; });
}

void CoordinatorCore::StartRewind(std::string why) {
  std::optional<JobPhase::Ending> ending;
  if (auto* const under_way = phase_.Get<JobPhase::Ending>()) ending = std::move(*under_way);
  recovery_.Begin(std::move(why), std::move(ending));
  passes_.BeginRewind();
  phase_.Enter(JobPhase::Attaching());
  checkpoint_maker_.Drop();
  layout_changes_.Rewind();
  writes_.DropHold();
  stored_.Forget();
  DropSessions();
  steps_.Rewind();
  recovery_.Prepare();
  ForgetCoveredHistory();
  RestartEpoch(stored_.row().epoch);
}

// Each worker gets another session in the new epoch. Its work in the former epoch cannot be applied
// any more.
void CoordinatorCore::DropSessions() {
  workers_.DropFences();
  for (auto& [index, worker] : workers_.all()) {
    workers_.EndSession(worker);
    worker.last_heard = clock_.Elapsed();
    worker.attaching = false;
    // Answers to calls of the former epoch are ignored.
    ++worker.tries;
    passes_.WorkerGone(index);
  }
}

// A base has no list of the entries that made its values.
void CoordinatorCore::ForgetCoveredHistory() {
  for (auto finished = history_.finished.begin(); finished != history_.finished.end();) {
    const RedoLog::Entry* const entry = recovery_.log().Next(finished->first);
    finished = entry != nullptr && entry->id == finished->first ? std::next(finished)
                                                                : history_.finished.erase(finished);
  }
}

// The base cannot be read any more. An older checkpoint does not help, because no log has the
// entries between that checkpoint and the base.
void CoordinatorCore::FailBase(const absl::Status& error) {
  ErrorDetail detail;
  detail.reason = Reason::kPsLost;
  FailJob(MakeError(
      absl::StatusCode::kDataLoss, detail,
      absl::StrCat(error.message(), ". The job cannot go on from ",
                   checkpoint_maker_.newest()->name(), " after it lost a parameter server (",
                   recovery_.rewind()->why,
                   "). Start the program again: it goes on from an older checkpoint, if it calls "
                   "RestoreLatest")));
}

// ---- replay ----

void CoordinatorCore::BeginReplay() {
  phase_.Enter(JobPhase::Replaying{clock_.Elapsed()});
  WantSync();
  for (auto& [index, worker] : workers_.all()) {
    if (!worker.leaving) AttachWorker(worker);
  }
  layout_changes_.StartNext();
  if (!RuleHolds(Rule::kReadsWaitForReplay)) SendReads();
}

void CoordinatorCore::OnReplayAdvanced() {
  if (ids_.NeedsSync(recovery_.next())) WantSync();
}

// The checkpoint is still good: the next start continues from it without a replay.
void CoordinatorCore::OnReplayFailed(const Step& step, const absl::Status& error) {
  FailJob(MakeError(
      Reason::kPsLost,
      absl::StrCat("step ", step.request.function, " (", step.id.value(),
                   ") had finished, and failed when it was run again after a parameter server was ",
                   "lost: ", error.message(),
                   ". A step must depend on its args, inputs, variables and seed() alone, and data "
                   "that is not leased ",
                   "may end early; --durability=checkpoint runs nothing again", RemedyOfLoss())));
}

void CoordinatorCore::FinishReplay() {
  Recovery::Rewind rewind = recovery_.End();
  phase_.Enter(JobPhase::Running());
  stored_.row().lineage = history_.lineage = stored_.row().epoch;
  PutThen(stored_.Whole(*layout_plan_.layout()),
          [mark = stored_.MarkNow()](CoordinatorCore& core)
              DIVVY_REQUIRES(core.mu_) { core.NoteStored(mark); });
  outbox_.Add([text = absl::StrCat("the replay is complete ",
                                   absl::FormatDuration(clock_.Elapsed() - rewind.since),
                                   " after the rewind began: everything that had finished is "
                                   "applied again")] { DIVVY_LOG(INFO) << text; });
  // The update has the version that the workers have already. It makes them drop all values that
  // they have read, because the state was not complete then.
  workers_.SendToAll(LayoutUpdate{layout_plan_.layout()});
  for (const auto& [id, make] : rewind.iterators) workers_.SendToAll(DropResource{id});
  // Variables that were created during the replay may have filled the log.
  recovery_.GiveUpFullLog();
  passes_.EndRewind();
  steps_.Resume();
  WantSync();
  ReleaseWaiters();
  if (rewind.ending) {
    phase_.Enter(*std::move(rewind.ending));
    phase_.Get<JobPhase::Ending>()->seq = WantSync();
  }
}

// ---- the log ----

// A checkpoint has been committed. It becomes the base, and the log keeps the entries after its
// cut.
void CoordinatorCore::MoveBase(const JobState& committed) {
  origin_.NoteSaved();
  layout_plan_.LoadAll(*committed.layout);
  // The covered entries are destroyed after the lock is released.
  outbox_.Add([covered = recovery_.log().MoveBase(committed.cut, committed.layout->version())] {});
}

}  // namespace divvy
