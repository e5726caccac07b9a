#include "wire/trace.h"

#include "wire/fields.h"

namespace divvy::wire {
namespace {

v1::TracedStep ToProto(const TracedStep& run, absl::Duration now, absl::Time wall) {
  v1::TracedStep step;
  step.set_step(run.step.value());
  step.set_attempt(run.attempt);
  if (run.ordinal) step.set_ordinal(*run.ordinal);
  step.set_function(Escaped(run.function, kMaxNameBytes));
  step.set_worker(run.worker);
  if (run.outcome) step.set_outcome(kOutcomes.ToWire(*run.outcome));
  step.set_ended_ns(absl::ToUnixNanos(wall - (now - run.ended)));
  step.set_queued_ns(absl::ToInt64Nanoseconds(run.queued));
  step.set_total_ns(absl::ToInt64Nanoseconds(run.total));
  if (run.parts) *step.mutable_parts() = Encoded<v1::StepTrace>(*run.parts);
  return step;
}

}  // namespace

v1::GetTracesReply ToProto(const TraceLog& log, JobId job, absl::Duration now, absl::Time wall) {
  v1::GetTracesReply reply;
  reply.set_job_id(job.value());
  for (const TracedStep& run : log.Last()) *reply.add_last() = ToProto(run, now, wall);
  for (const TracedStep& run : log.Slowest(now)) *reply.add_slowest() = ToProto(run, now, wall);
  return reply;
}

}  // namespace divvy::wire
