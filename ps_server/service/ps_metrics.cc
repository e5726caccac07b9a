#include "ps_server/service/ps_metrics.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"

namespace divvy {
namespace {

constexpr char kRejected[] = "divvy_push_rejected_total",
               kRejectedHelp[] = "Commits that were refused, by reason.";
// These are served from the start, so that the first refusal shows as an increase.
constexpr Reason kReasons[] = {
    Reason::kWrongJob,      Reason::kWrongIncarnation, Reason::kStaleEpoch,
    Reason::kNotAttached,   Reason::kNotReady,         Reason::kInvalid,
    Reason::kSessionFenced, Reason::kStepClosed,       Reason::kUnknownShard,
    Reason::kBadCommit,     Reason::kMemoryLimit,      Reason::kNotAuthorized};

}  // namespace

PsMetrics::PsMetrics(MetricsRegistry& registry)
    : pull_rows_(registry.GetCounter("divvy_pull_rows_total",
                                     "Rows that were read. A dense shard counts its rows.")),
      push_rows_(registry.GetCounter("divvy_push_rows_total",
                                     "Rows that commits wrote. A dense shard counts its rows.")),
      pull_bytes_(registry.GetCounter("divvy_pull_bytes_total", "Values that were read.")),
      push_bytes_(registry.GetCounter("divvy_push_bytes_total", "Values that commits brought.")),
      duplicates_(registry.GetCounter("divvy_push_duplicate_total",
                                      "Commits that had been applied before and were dropped.")),
      stale_epochs_(registry.GetCounter("divvy_stale_epoch_rejected_total",
                                        "Pulls and commits of an epoch that is over.")),
      apply_seconds_(registry.GetHistogram(
          "divvy_apply_seconds",
          "From the arrival of a whole commit until it is applied, with the wait for its turn.")),
      rejected_otherwise_(registry.GetCounter(kRejected, kRejectedHelp, {{"reason", "other"}})) {
  for (const Reason reason : kReasons)
    rejected_[reason] =
        &registry.GetCounter(kRejected, kRejectedHelp,
                             {{"reason", absl::AsciiStrToLower(std::string(ReasonName(reason)))}});
}

void PsMetrics::Note(const DataOutcome& outcome) {
  if (!outcome.status.ok() && ReasonOf(outcome.status) == Reason::kStaleEpoch) stale_epochs_.Add(1);
  if (outcome.method == DataMethod::kCommit) return NoteCommit(outcome);
  if (!outcome.status.ok()) return;
  pull_rows_.Add(static_cast<uint64_t>(outcome.rows));
  pull_bytes_.Add(static_cast<uint64_t>(outcome.bytes));
}

void PsMetrics::NoteCommit(const DataOutcome& outcome) {
  push_bytes_.Add(static_cast<uint64_t>(outcome.bytes));
  if (!outcome.status.ok()) {
    const auto known = rejected_.find(ReasonOf(outcome.status));
    (known == rejected_.end() ? rejected_otherwise_ : *known->second).Add(1);
  } else if (outcome.duplicate) {
    duplicates_.Add(1);
  } else {
    push_rows_.Add(static_cast<uint64_t>(outcome.rows));
    apply_seconds_.Observe(absl::ToDoubleSeconds(outcome.took));
  }
}

}  // namespace divvy
