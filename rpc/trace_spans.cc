#include "rpc/trace_spans.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "rpc/page_text.h"

namespace divvy {
namespace {

using Json = nlohmann::ordered_json;

// Collects spans, and cuts them to the step's time.
class Spans {
 public:
  explicit Spans(absl::Duration length) : length_(length) {}
  // Leaves out what took no time.
  void Add(v1::Job job, int index, const char* name, absl::Duration begin, absl::Duration end) {
    if (end > begin) Add({job, index, name, begin, end - begin});
  }
  void Add(TraceSpan span) {
    const absl::Duration end = Cut(span.begin + span.took);
    span.begin = Cut(span.begin);
    span.took = end - span.begin;
    span.served = std::min(span.served, span.took);
    spans_.push_back(std::move(span));
  }
  std::vector<TraceSpan> Take() && { return std::move(spans_); }

 private:
  absl::Duration Cut(absl::Duration at) const {
    return std::clamp(at, absl::ZeroDuration(), length_);
  }

  const absl::Duration length_;
  std::vector<TraceSpan> spans_;
};

absl::Duration At(int64_t ns) { return absl::Nanoseconds(std::max<int64_t>(ns, 0)); }

// `origin`: when the dispatch arrived at the worker.
void AddWorker(const v1::TracedStep& step, absl::Duration origin, Spans& spans) {
  const v1::StepTrace& parts = step.parts();
  const auto add = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    spans.Add(v1::WORKER, step.worker(), name, origin + At(begin_ns), origin + At(end_ns));
  };
  add("waits", 0, parts.began_ns());
  add("compute", parts.began_ns(), parts.computed_ns());
  const int64_t sent = parts.committed_ns() > 0 ? parts.committed_ns() : parts.reported_ns();
  add("prepares", parts.computed_ns(), sent);
  if (parts.committed_ns() > 0) add("commits", parts.committed_ns(), parts.reported_ns());
}

void AddCalls(const v1::StepTrace& parts, absl::Duration origin, Spans& spans) {
  std::vector<const v1::StepTrace::Call*> calls;
  for (const v1::StepTrace::Call& call : parts.calls()) calls.push_back(&call);
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto* a, const auto* b) { return a->ps() < b->ps(); });
  for (const v1::StepTrace::Call* call : calls)
    spans.Add({v1::PS, call->ps(), call->commit() ? "commit" : "pull",
               origin + At(call->since_ns()), At(call->took_ns()), At(call->served_ns()),
               call->retries()});
}

Json AsJson(const google::protobuf::Message& message) { return Json::parse(JsonText(message)); }

Json StepAsJson(uint64_t job_id, const v1::TracedStep& step) {
  Json json = AsJson(step);
  json["traceparent"] = TraceparentOf(job_id, step);
  return json;
}
Json StepsAsJson(uint64_t job_id, const google::protobuf::RepeatedPtrField<v1::TracedStep>& steps) {
  Json all = Json::array();
  for (const v1::TracedStep& step : steps) all.push_back(StepAsJson(job_id, step));
  return all;
}
Json CallsAsJson(uint64_t job_id, const google::protobuf::RepeatedPtrField<v1::ServedCall>& calls) {
  Json all = Json::array();
  for (const v1::ServedCall& call : calls) {
    all.push_back(AsJson(call));
    if (call.step() != 0) all.back()["trace_id"] = TraceIdOf(job_id, call.step());
  }
  return all;
}

// In ASCII. Parsing has undone the escapes of characters that a terminal may obey: they are escaped
// again, and nothing throws.
std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// ---- Chrome -------------------------------------------------------------------------------------

// Processes and threads of trace events: a process for each task, and as many threads as spans of
// the task overlap.
class Tracks {
 public:
  struct Track {
    int process = 0, thread = 0;
  };
  Track For(v1::Job job, int index, double begin_us, double end_us) {
    const auto [found, is_new] =
        processes_.try_emplace({job, index}, Process{static_cast<int>(processes_.size()) + 1, {}});
    Process& process = found->second;
    auto thread = std::find_if(process.ends_us.begin(), process.ends_us.end(),
                               [&](double end) { return end <= begin_us; });
    if (thread == process.ends_us.end()) thread = process.ends_us.insert(thread, 0);
    *thread = end_us;
    return {process.number, static_cast<int>(thread - process.ends_us.begin()) + 1};
  }
  void AddNames(Json& events) const {
    for (const auto& [task, process] : processes_)
      events.push_back({{"name", "process_name"},
                        {"ph", "M"},
                        {"pid", process.number},
                        {"tid", 0},
                        {"args", {{"name", NameOfTask(task.first, task.second)}}}});
  }

 private:
  struct Process {
    int number = 0;
    // When the last span of each thread ends.
    std::vector<double> ends_us;
  };
  std::map<std::pair<v1::Job, int>, Process> processes_;
};

double Microseconds(absl::Duration time) { return absl::ToDoubleMicroseconds(time); }

// When the step was asked for, by the clock of the task that tells it.
absl::Time BeginOf(const v1::TracedStep& step) {
  return absl::FromUnixNanos(step.ended_ns()) - LengthOf(step);
}

void AddEvents(uint64_t job_id, const v1::TracedStep& step, absl::Time origin, Tracks& tracks,
               Json& events) {
  const double base = Microseconds(BeginOf(step) - origin);
  for (const TraceSpan& span : SpansOf(step)) {
    const double begin = base + Microseconds(span.begin), took = Microseconds(span.took);
    const Tracks::Track track = tracks.For(span.job, span.index, begin, begin + took);
    Json args = {
        {"step", NameOf(step)}, {"end", EndOf(step)}, {"trace_id", TraceIdOf(job_id, step.step())}};
    if (span.retries > 0) args["retries"] = span.retries;
    events.push_back({{"name", span.name},
                      {"cat", absl::AsciiStrToLower(v1::Job_Name(span.job))},
                      {"ph", "X"},
                      {"ts", begin},
                      {"dur", took},
                      {"pid", track.process},
                      {"tid", track.thread},
                      {"args", std::move(args)}});
    if (span.served == absl::ZeroDuration()) continue;
    const double served = Microseconds(span.served);
    events.push_back({{"name", absl::StrCat(span.name, " served")},
                      {"cat", "ps"},
                      {"ph", "X"},
                      {"ts", begin + (took - served) / 2},
                      {"dur", served},
                      {"pid", track.process},
                      {"tid", track.thread}});
  }
}

}  // namespace

absl::Duration LengthOf(const v1::TracedStep& step) { return At(step.queued_ns()) + TotalOf(step); }

absl::Duration TotalOf(const v1::TracedStep& step) { return At(step.total_ns()); }

// Unsigned: an answer may hold any number.
uint64_t NumberOf(const v1::TracedStep& step) { return static_cast<uint64_t>(step.ordinal()) + 1; }

std::vector<TraceSpan> SpansOf(const v1::TracedStep& step) {
  const absl::Duration queued = At(step.queued_ns()), length = LengthOf(step);
  Spans spans(length);
  spans.Add(v1::CHIEF, 0, "queued", absl::ZeroDuration(), queued);
  if (!step.has_parts()) {
    const bool is_lost = step.outcome() == v1::Report::OUTCOME_NONE;
    spans.Add(v1::CHIEF, 0, is_lost ? "lost" : "not told", queued, length);
    return std::move(spans).Take();
  }
  const absl::Duration reported = At(step.parts().reported_ns());
  const absl::Duration away = std::max(At(step.total_ns()) - reported, absl::ZeroDuration()) / 2;
  const absl::Duration origin = queued + away;
  spans.Add(v1::CHIEF, 0, "dispatch", queued, origin);
  spans.Add(v1::CHIEF, 0, "report", origin + reported, length);
  AddWorker(step, origin, spans);
  AddCalls(step.parts(), origin, spans);
  return std::move(spans).Take();
}

std::string NameOf(const v1::TracedStep& step) {
  return absl::StrCat(
      step.function(),
      step.has_ordinal() ? absl::StrCat(", training step ", NumberOf(step)) : ", read-only",
      ", worker ", step.worker(),
      step.attempt() > 1 ? absl::StrCat(", attempt ", step.attempt()) : "");
}

std::string EndOf(const v1::TracedStep& step) {
  if (step.outcome() == v1::Report::OUTCOME_NONE) return "worker lost";
  return absl::StrReplaceAll(absl::AsciiStrToLower(v1::Report::Outcome_Name(step.outcome())),
                             {{"_", " "}});
}

std::string QueueText(const v1::TracedStep& step) {
  if (step.queued_ns() <= 0) return "";
  return absl::StrCat("after ", TimeText(At(step.queued_ns())), " in the queue");
}

std::string TriesText(const TraceSpan& span) {
  return span.retries == 0 ? "" : absl::StrCat("sent ", int64_t{span.retries} + 1, " times");
}

std::string LeftOutText(const v1::TracedStep& step) {
  const uint32_t left_out = step.parts().left_out();
  if (left_out == 0) return "";
  return left_out == 1 ? "1 shorter pull or commit is not shown"
                       : absl::StrCat(left_out, " shorter pulls and commits are not shown");
}

std::string TraceIdOf(uint64_t job_id, uint64_t step) {
  return absl::StrFormat("%016x%016x", job_id, step);
}

std::string TraceparentOf(uint64_t job_id, const v1::TracedStep& step) {
  return absl::StrFormat("00-%s-%016x-01", TraceIdOf(job_id, step.step()), step.attempt());
}

std::string JsonOf(uint64_t job_id, const v1::TracedStep& step) {
  return TextOf(StepAsJson(job_id, step));
}

std::string JsonOf(const v1::GetTracesReply& traces) {
  Json json = AsJson(traces);
  json["last"] = StepsAsJson(traces.job_id(), traces.last());
  json["slowest"] = StepsAsJson(traces.job_id(), traces.slowest());
  json["last_calls"] = CallsAsJson(traces.job_id(), traces.last_calls());
  json["slowest_calls"] = CallsAsJson(traces.job_id(), traces.slowest_calls());
  return TextOf(json) + "\n";
}

// Events of one thread must come in the order of their begins, or be nested.
std::string ChromeJsonOf(uint64_t job_id, const std::vector<v1::TracedStep>& steps) {
  std::vector<v1::TracedStep> ordered = steps;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return BeginOf(a) < BeginOf(b); });
  Json events = Json::array();
  Tracks tracks;
  for (const v1::TracedStep& step : ordered)
    AddEvents(job_id, step, BeginOf(ordered.front()), tracks, events);
  tracks.AddNames(events);
  return TextOf({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace divvy
