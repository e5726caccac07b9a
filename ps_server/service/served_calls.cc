#include "ps_server/service/served_calls.h"

#include <string>

#include "protocol/error.h"
#include "wire/text.h"

namespace divvy {

void ServedCalls::Note(const DataOutcome& outcome, absl::Duration now) {
  if (outcome.took == absl::ZeroDuration()) return;
  kept_.Add(now, outcome.took, {outcome, now});
}

v1::ServedCall ServedCalls::ToProto(const Call& call, absl::Duration now, absl::Time wall) {
  v1::ServedCall out;
  out.set_commit(call.outcome.method == DataMethod::kCommit);
  out.set_step(call.outcome.entry.value());
  out.set_session(call.outcome.session.value());
  out.set_ended_ns(absl::ToUnixNanos(wall - (now - call.ended)));
  out.set_took_ns(absl::ToInt64Nanoseconds(call.outcome.took));
  out.set_bytes(call.outcome.bytes);
  out.set_rows(call.outcome.rows);
  out.set_duplicate(call.outcome.duplicate);
  if (!call.outcome.status.ok()) out.set_refusal(wire::Escaped(call.outcome.status.message()));
  return out;
}

v1::GetTracesReply ServedCalls::ToProto(JobId job, absl::Duration now, absl::Time wall) const {
  v1::GetTracesReply reply;
  reply.set_job_id(job.value());
  for (const Call& call : kept_.Last()) *reply.add_last_calls() = ToProto(call, now, wall);
  for (const Call& call : kept_.Slowest(now)) *reply.add_slowest_calls() = ToProto(call, now, wall);
  return reply;
}

}  // namespace divvy
