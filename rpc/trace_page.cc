#include "rpc/trace_page.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rpc/page_text.h"
#include "rpc/trace_spans.h"

namespace divvy {
namespace {

constexpr int kMostShown = 16;

constexpr char kTraceStyle[] =
    "body{font:15px/1.5 sans-serif;margin:2em;color:#222}h1{font-size:1.4em}h2{font-size:1.1em}"
    "h3{font-size:1em;margin:1.5em 0 0}p{margin:0;color:#666}"
    "th{text-align:left;font-weight:normal;color:#666;padding-right:2em}"
    "td{font-variant-numeric:tabular-nums;padding-right:2em}"
    "text{font-size:12px;fill:#666}.queued{fill:#bbb}.dispatch,.report,.not{fill:#9aa0a6}"
    ".waits,.prepares{fill:#fdd663}.compute{fill:#1a73e8}.commits{fill:#a8dab5}"
    ".pull{fill:#f29900;fill-opacity:.6}.commit{fill:#188038;fill-opacity:.6}"
    ".served{fill:#222;fill-opacity:.5}.lost{fill:#d93025}";

std::string Ago(absl::Time now, int64_t ended_ns) {
  return AgoText(now - absl::FromUnixNanos(ended_ns));
}

// ---- of a step ----------------------------------------------------------------------------------

class Picture {
 public:
  explicit Picture(absl::Duration length) : length_(length) {}

  void Add(const TraceSpan& span) {
    NextLane(NameOfTask(span.job, span.index));
    std::string words = absl::StrCat(span.name, ": ", TimeText(span.took));
    if (span.served > absl::ZeroDuration())
      absl::StrAppend(&words, ", at the ps ", TimeText(span.served));
    if (span.retries > 0) absl::StrAppend(&words, ", ", TriesText(span));
    Box(span.name, span.begin, span.took, 2, kLane - 4, words);
    if (span.served > absl::ZeroDuration())
      Box("served", span.begin + (span.took - span.served) / 2, span.served, 5, kLane - 10, words);
  }
  std::string Svg() const {
    const double height = kLane * lanes_;
    return absl::StrFormat(
        "<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\">%s</svg>\n",
        kNames + kWidth, height, kNames + kWidth, height, shapes_);
  }

 private:
  static constexpr double kNames = 80, kWidth = 720, kLane = 18;

  // Spans of one task follow each other.
  void NextLane(const std::string& name) {
    if (name == lane_) return;
    lane_ = name;
    ++lanes_;
    absl::StrAppendFormat(&shapes_, "<text x=\"0\" y=\"%.0f\">%s</text>", kLane * lanes_ - 5,
                          HtmlEscaped(name));
  }
  void Box(const std::string& kind, absl::Duration begin, absl::Duration took, double top,
           double height, const std::string& words) {
    // The narrowest that is seen.
    constexpr double kLeast = 0.8;
    absl::StrAppendFormat(&shapes_,
                          "<rect class=\"%s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" "
                          "height=\"%.0f\"><title>%s</title></rect>",
                          kind, kNames + At(begin), kLane * (lanes_ - 1) + top,
                          std::max(At(took), kLeast), height, HtmlEscaped(words));
  }
  double At(absl::Duration time) const {
    return length_ <= absl::ZeroDuration() ? 0 : kWidth * absl::FDivDuration(time, length_);
  }

  const absl::Duration length_;
  std::string lane_, shapes_;
  int lanes_ = 0;
};

std::string StepPart(uint64_t job_id, const v1::TracedStep& step, absl::Time now) {
  const std::vector<TraceSpan> spans = SpansOf(step);
  Picture picture(LengthOf(step));
  std::string times;
  for (const TraceSpan& span : spans) {
    picture.Add(span);
    absl::StrAppend(&times, "<tr><th>", HtmlEscaped(NameOfTask(span.job, span.index)), "</th><td>",
                    span.name, "</td><td>", TimeText(span.begin), "</td><td>", TimeText(span.took),
                    "</td><td>", span.served > absl::ZeroDuration() ? TimeText(span.served) : "",
                    "</td></tr>\n");
  }
  const std::string queue = QueueText(step), left_out = LeftOutText(step);
  return absl::StrCat(
      "<h3>", HtmlEscaped(NameOf(step)), ": ", TimeText(TotalOf(step)), ", ",
      HtmlEscaped(EndOf(step)), "</h3><p>", queue, queue.empty() ? "" : "; ",
      Ago(now, step.ended_ns()), "; traceparent ", TraceparentOf(job_id, step), "; entry ",
      step.step(), left_out.empty() ? "" : "; ", left_out, "</p>\n", picture.Svg(),
      "<details><summary>times</summary><table>\n<tr><th>task</th><th>what</th><th>from</th>"
      "<th>took</th><th>at the ps</th></tr>\n",
      times, "</table></details>\n");
}

std::string StepsPart(uint64_t job_id, absl::string_view title,
                      std::vector<const v1::TracedStep*> steps, absl::Time now) {
  std::string part = absl::StrCat("<h2>", title, "</h2>\n");
  if (steps.empty()) absl::StrAppend(&part, "<p>none yet</p>\n");
  if (steps.size() > kMostShown) steps.resize(kMostShown);
  for (const v1::TracedStep* step : steps) absl::StrAppend(&part, StepPart(job_id, *step, now));
  return part;
}

// ---- of a ps ------------------------------------------------------------------------------------

std::string CallsPart(uint64_t job_id, absl::string_view title,
                      std::vector<const v1::ServedCall*> calls, absl::Time now) {
  if (calls.empty())
    return absl::StrCat("<h2>", title, "</h2>\n<p>no pull or commit has been answered yet</p>\n");
  if (calls.size() > kMostShown) calls.resize(kMostShown);
  int64_t longest = 1;
  for (const v1::ServedCall* call : calls) longest = std::max(longest, call->took_ns());
  std::string part = absl::StrCat(
      "<h2>", title,
      "</h2>\n<table><tr><th>what</th><th>took</th><th></th><th>entry</th><th>trace id</th>"
      "<th>session</th><th>rows</th><th>bytes</th><th>when</th><th></th></tr>\n");
  for (const v1::ServedCall* call : calls) {
    const char* const kind = call->commit() ? "commit" : "pull";
    const double width =
        200.0 * static_cast<double>(call->took_ns()) / static_cast<double>(longest);
    absl::StrAppendFormat(
        &part,
        "<tr><td>%s</td><td>%s</td><td><svg width=\"200\" height=\"12\" role=\"img\"><rect "
        "class=\"%s\" width=\"%.1f\" height=\"12\"/></svg></td><td>%d</td><td>%s</td><td>%d</td>"
        "<td>%d</td><td>%d</td><td>%s</td><td>%s</td></tr>\n",
        kind, TimeText(absl::Nanoseconds(call->took_ns())), kind, width, call->step(),
        call->step() == 0 ? "" : TraceIdOf(job_id, call->step()), call->session(), call->rows(),
        call->bytes(), Ago(now, call->ended_ns()),
        call->duplicate() ? "had been applied before" : HtmlEscaped(call->refusal()));
  }
  return part + "</table>\n";
}

template <typename T>
std::vector<const T*> Pointers(const google::protobuf::RepeatedPtrField<T>& all) {
  std::vector<const T*> pointers;
  for (const T& one : all) pointers.push_back(&one);
  return pointers;
}
template <typename T>
std::vector<const T*> NewestFirst(const google::protobuf::RepeatedPtrField<T>& all) {
  std::vector<const T*> pointers = Pointers(all);
  std::reverse(pointers.begin(), pointers.end());
  return pointers;
}

}  // namespace

std::string TracePage(v1::Job job, int index, const v1::GetTracesReply& traces, absl::Time now) {
  const std::string name = HtmlEscaped(NameOfTask(job, index));
  std::string page =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", name,
                   ": steps - Divvy</title><style>", kTraceStyle, "</style></head>\n<body><h1>",
                   name, ": where the time of steps went</h1>\n");
  const uint64_t job_id = traces.job_id();
  if (job == v1::PS) {
    absl::StrAppend(&page,
                    CallsPart(job_id, "The slowest pulls and commits of the last 10 minutes",
                              Pointers(traces.slowest_calls()), now),
                    CallsPart(job_id, "The last ones", NewestFirst(traces.last_calls()), now));
  } else {
    absl::StrAppend(
        &page,
        StepsPart(job_id, "The slowest steps of the last 10 minutes, from dispatch to report",
                  Pointers(traces.slowest()), now),
        StepsPart(job_id, "The last sampled steps, and those whose worker was lost",
                  NewestFirst(traces.last()), now));
  }
  return page +
         "<p><a href=\"/statusz\">status</a>, <a href=\"/tracez.json\">as data</a></p>"
         "</body></html>\n";
}

}  // namespace divvy
