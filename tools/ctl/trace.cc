#include "tools/ctl/trace.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "rpc/page_text.h"
#include "rpc/trace_spans.h"
#include "tools/ctl/survey.h"
#include "wire/text.h"

namespace divvy {
namespace {

constexpr int kBarWidth = 40;

// "|   ====      |"
std::string BarOf(const TraceSpan& span, absl::Duration length) {
  const auto column = [&](absl::Duration at) {
    return length <= absl::ZeroDuration()
               ? 0
               : static_cast<int>(kBarWidth * absl::FDivDuration(at, length));
  };
  const int begin = std::min(column(span.begin), kBarWidth - 1);
  const int end = std::clamp(column(span.begin + span.took), begin + 1, kBarWidth);
  return absl::StrCat("|", std::string(begin, ' '), std::string(end - begin, '='),
                      std::string(kBarWidth - end, ' '), "|");
}

uint64_t Distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

// The traced training steps that are nearest to `number`: "128, 131".
std::string Nearest(const v1::GetTracesReply& traces, uint64_t number) {
  std::set<uint64_t> known;
  for (const auto* const steps : {&traces.last(), &traces.slowest()}) {
    for (const v1::TracedStep& step : *steps) {
      if (step.has_ordinal()) known.insert(NumberOf(step));
    }
  }
  std::vector<uint64_t> nearest(known.begin(), known.end());
  std::stable_sort(nearest.begin(), nearest.end(), [number](uint64_t a, uint64_t b) {
    return Distance(a, number) < Distance(b, number);
  });
  constexpr size_t kMost = 5;
  if (nearest.size() > kMost) nearest.resize(kMost);
  std::sort(nearest.begin(), nearest.end());
  return absl::StrJoin(nearest, ", ");
}

absl::StatusOr<std::vector<v1::TracedStep>> AttemptsOf(const v1::GetTracesReply& traces,
                                                       int64_t number) {
  const auto wanted = static_cast<uint64_t>(number);
  std::vector<v1::TracedStep> attempts;
  std::set<std::pair<uint64_t, uint32_t>> seen;
  for (const auto* const steps : {&traces.last(), &traces.slowest()}) {
    for (const v1::TracedStep& step : *steps) {
      if (!step.has_ordinal() || NumberOf(step) != wanted) continue;
      if (seen.emplace(step.step(), step.attempt()).second) attempts.push_back(step);
    }
  }
  if (!attempts.empty()) return attempts;
  const std::string nearest = Nearest(traces, wanted);
  return absl::NotFoundError(absl::StrCat(
      "training step ", number,
      " is not among the steps whose times are kept: the last 64 that were sampled (ten a second, "
      "or one in 64 if that is more) and the slowest of 10 minutes",
      nearest.empty() ? "" : absl::StrCat("; the nearest are ", nearest)));
}

template <typename Iterator>
std::vector<v1::TracedStep> FirstOf(Iterator begin, Iterator end, int most) {
  std::vector<v1::TracedStep> steps(begin, end);
  if (steps.size() > static_cast<size_t>(most)) steps.resize(static_cast<size_t>(most));
  return steps;
}

std::string Formatted(const TraceOptions& options, uint64_t job_id,
                      const std::vector<v1::TracedStep>& steps) {
  if (options.format == TraceFormat::kChrome) return ChromeJsonOf(job_id, steps);
  std::string text;
  for (const v1::TracedStep& step : steps) {
    if (options.format == TraceFormat::kJson)
      absl::StrAppend(&text, JsonOf(job_id, step), "\n");
    else
      absl::StrAppend(&text, text.empty() ? "" : "\n",
                      TraceLines(job_id, step, Clock::Real().WallTime()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<v1::TracedStep>> ChooseSteps(v1::Job job,
                                                        const v1::GetTracesReply& traces,
                                                        const TraceChoice& choice) {
  if (job == v1::PS || traces.last_calls_size() > 0 || traces.slowest_calls_size() > 0)
    return absl::InvalidArgumentError(
        "the task is a parameter server, which knows pulls and commits but no steps (they are on "
        "its page /tracez): give the coordinator's address");
  if (traces.last_size() == 0 && traces.slowest_size() == 0)
    return absl::NotFoundError("no step has been traced yet: ask again when steps have finished");
  if (choice.step) return AttemptsOf(traces, *choice.step);
  if (choice.slowest)
    return FirstOf(traces.slowest().begin(), traces.slowest().end(), *choice.slowest);
  if (choice.last) return FirstOf(traces.last().rbegin(), traces.last().rend(), *choice.last);
  return std::vector<v1::TracedStep>{traces.last_size() > 0 ? *traces.last().rbegin()
                                                            : traces.slowest(0)};
}

std::string TraceLines(uint64_t job_id, const v1::TracedStep& step, absl::Time now) {
  const absl::Duration length = LengthOf(step);
  const std::string queue = QueueText(step);
  std::string lines = absl::StrFormat("%s: %s%s%s, %s, %s\n  traceparent %s, entry %d\n",
                                      wire::Escaped(NameOf(step)), TimeText(TotalOf(step)),
                                      queue.empty() ? "" : " ", queue, EndOf(step),
                                      AgoText(now - absl::FromUnixNanos(step.ended_ns())),
                                      TraceparentOf(job_id, step), step.step());
  for (const TraceSpan& span : SpansOf(step)) {
    absl::StrAppendFormat(&lines, "  %-10s %-9s %10s %s", NameOfTask(span.job, span.index),
                          span.name, TimeText(span.took), BarOf(span, length));
    if (span.served > absl::ZeroDuration())
      absl::StrAppend(&lines, " at the ps ", TimeText(span.served));
    if (span.retries > 0) absl::StrAppend(&lines, ", ", TriesText(span));
    absl::StrAppend(&lines, "\n");
  }
  if (const std::string left_out = LeftOutText(step); !left_out.empty())
    absl::StrAppend(&lines, "  ", left_out, "\n");
  return lines;
}

// An answer without steps and calls does not say which role has given it, so the task's status is
// asked for.
absl::StatusOr<std::string> TraceText(const TraceOptions& options) {
  Survey<v1::GetTracesRequest, v1::GetTracesReply> survey({options.address}, options.credentials,
                                                          options.timeout);
  const auto& answer =
      *survey.Run({}, &v1::Admin::StubInterface::async_interface::GetTraces).front();
  RETURN_IF_ERROR(answer.status);
  v1::Job job = v1::JOB_NONE;
  if (answer.reply.last_size() == 0 && answer.reply.slowest_size() == 0) {
    Survey<v1::GetStatusRequest, v1::TaskStatus> status({options.address}, options.credentials,
                                                        options.timeout);
    job =
        status.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus).front()->reply.job();
  }
  absl::StatusOr<std::vector<v1::TracedStep>> steps =
      ChooseSteps(job, answer.reply, options.choice);
  RETURN_IF_ERROR(steps.status());
  return Formatted(options, answer.reply.job_id(), *steps);
}

}  // namespace divvy
