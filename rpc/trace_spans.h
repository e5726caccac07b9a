// The times of a step, put on one line of time.
#ifndef DIVVY_RPC_TRACE_SPANS_H_
#define DIVVY_RPC_TRACE_SPANS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/divvy.pb.h"

namespace divvy {

// A part of a step's time.
struct TraceSpan {
  v1::Job job = v1::CHIEF;
  int index = 0;
  // "queued", "dispatch", "waits", "compute", "prepares", "commits", "pull", "commit", "report";
  // "lost": the worker was; "not told": the worker has not sent its times
  std::string name;
  // From the moment when the step began to wait for its dispatch.
  absl::Duration begin, took;
  // The part of a pull or a commit in which the ps had it; 0: not said.
  absl::Duration served = {};
  uint32_t retries = 0;
};

// All are pure.

// In the order of the roles: coordinator, worker, parameter servers by index. The clocks of hosts
// differ, so the worker's times are durations. They are placed between the dispatch and the report
// as if both messages took equally long. A span that a worker claims to lie outside its step is
// cut.
std::vector<TraceSpan> SpansOf(const v1::TracedStep& step);
// What they are part of: `queued` and `total`.
absl::Duration LengthOf(const v1::TracedStep& step);

// From the dispatch to the report: the slowest steps are those with the greatest.
absl::Duration TotalOf(const v1::TracedStep& step);

// The number of a training step, from 1. REQUIRES: step.has_ordinal().
uint64_t NumberOf(const v1::TracedStep& step);
// "train, training step 131, worker 0"; "attempt 2" if it is not the first.
std::string NameOf(const v1::TracedStep& step);
// "ok", "failed", "worker lost", ...
std::string EndOf(const v1::TracedStep& step);
// "after 2.00 ms in the queue". Empty: the step did not wait for its dispatch.
std::string QueueText(const v1::TracedStep& step);
// How often a pull or a commit was sent: "sent 2 times". Empty: once.
std::string TriesText(const TraceSpan& span);
// "3 shorter pulls and commits are not shown". Empty: there are none.
std::string LeftOutText(const v1::TracedStep& step);

// The trace id of a step, 32 hexadecimal digits: the job's number and the entry id. Both are in the
// frames of all roles. So each role and each tool finds the id without a message for it, and it is
// the same for all attempts.
std::string TraceIdOf(uint64_t job_id, uint64_t step);
// The header `traceparent` of W3C Trace Context for an attempt: its number is the span.
std::string TraceparentOf(uint64_t job_id, const v1::TracedStep& step);

// As divvy.proto has it, and for each step also "traceparent", for each pull and commit of a ps
// also "trace_id". On one line, in ASCII.
std::string JsonOf(uint64_t job_id, const v1::TracedStep& step);
std::string JsonOf(const v1::GetTracesReply& traces);
// Trace events of Chrome, which Perfetto (ui.perfetto.dev) and chrome://tracing open. Each task is
// a process; spans of one task that overlap are on threads of their own.
std::string ChromeJsonOf(uint64_t job_id, const std::vector<v1::TracedStep>& steps);

}  // namespace divvy

#endif  // DIVVY_RPC_TRACE_SPANS_H_
