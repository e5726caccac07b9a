#include "rpc/status_page.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/number_text.h"
#include "google/protobuf/text_format.h"
#include "rpc/findings.h"
#include "rpc/page_text.h"

namespace divvy {
namespace {

// ---- text ---------------------------------------------------------------------------------------

std::string SinceText(int64_t ns) { return ns > 0 ? SpanText(absl::Nanoseconds(ns)) : ""; }

// ---- tables -------------------------------------------------------------------------------------

std::string Row(absl::string_view name, absl::string_view value) {
  return absl::StrCat("<tr><th>", HtmlEscaped(name), "</th><td>", HtmlEscaped(value),
                      "</td></tr>\n");
}

// A row of cells that are escaped here.
std::string Cells(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    absl::StrAppend(&row, "<", tag, ">", HtmlEscaped(cell), "</", tag, ">");
  return row + "</tr>\n";
}

// A row for each number or text of `message`.
std::string Rows(const google::protobuf::Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& fields = *message.GetReflection();
  std::string rows;
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    // The other tasks have a table of their own.
    if (field.message_type() == v1::TaskStatus::descriptor()) continue;
    if (field.is_repeated()) {
      for (int j = 0; j < fields.FieldSize(message, &field); ++j) {
        if (field.message_type() != nullptr)
          absl::StrAppend(&rows,
                          Row(absl::StrCat(field.name(), " ", j),
                              fields.GetRepeatedMessage(message, &field, j).ShortDebugString()));
      }
      continue;
    }
    if (field.has_presence() && !fields.HasField(message, &field)) continue;
    std::string value;
    if (field.message_type() != nullptr)
      value = fields.GetMessage(message, &field).ShortDebugString();
    else
      google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1, &value);
    absl::StrAppend(&rows, Row(absl::StrReplaceAll(field.name(), {{"_", " "}}), value));
  }
  return rows;
}

const google::protobuf::Message* RoleOf(const v1::TaskStatus& status) {
  switch (status.role_case()) {
    case v1::TaskStatus::kCoordinator: return &status.coordinator();
    case v1::TaskStatus::kPs: return &status.ps();
    case v1::TaskStatus::kWorker: return &status.worker();
    case v1::TaskStatus::ROLE_NOT_SET: return nullptr;
  }
  return nullptr;
}

// Every step waits for something briefly: only longer waits are shown at the top.
constexpr int64_t kLeastShownWaitNs = 1'000'000'000;

// ---- parts of the page --------------------------------------------------------------------------

std::string HeadRows(const v1::TaskStatus& status) {
  std::string rows =
      absl::StrCat(Row("job", absl::StrFormat("%016x", status.job_id())),
                   Row("epoch", absl::StrCat(status.epoch())), Row("build", status.build()));
  if (status.state_ns() > 0)
    absl::StrAppend(&rows, Row(absl::StrCat(status.state(), " for"), SinceText(status.state_ns())));
  return rows;
}

std::string JobRows(const v1::CoordinatorStatus& job, absl::Time now) {
  std::string rows = absl::StrCat(
      Row("steps", absl::StrCat(job.finished_steps(), " training, ", job.finished_reads(),
                                " read-only; ", NumberText(job.steps_per_second()), "/s")),
      Row("not ended",
          absl::StrCat(job.queued(), " queued, ", job.in_flight(), " in flight",
                       job.oldest_step_ns() > 0
                           ? absl::StrCat("; the oldest for ", SinceText(job.oldest_step_ns()))
                           : "")),
      Row("examples",
          absl::StrCat(job.examples(), "; ", NumberText(job.examples_per_second()), "/s")));
  if (job.has_work()) absl::StrAppend(&rows, Row("long work", job.work().text()));
  if (job.has_loss()) absl::StrAppend(&rows, Row("loss", NumberText(job.loss())));
  const v1::CoordinatorStatus::Checkpoints& saved = job.checkpoints();
  std::string checkpoints = absl::StrCat(saved.made(), " made, ", saved.failed(), " failed");
  if (saved.last_success_ns() > 0)
    absl::StrAppend(&checkpoints, "; the last one ",
                    SpanText(now - absl::FromUnixNanos(saved.last_success_ns())), " ago, ",
                    BytesText(saved.last_bytes()), " in ",
                    TimeText(absl::Nanoseconds(saved.last_duration_ns())));
  absl::StrAppend(&checkpoints, "; ", job.finished_steps() - job.durable_steps(),
                  " steps are in none");
  absl::StrAppend(
      &rows, Row("checkpoints", checkpoints),
      Row("recoveries", absl::StrCat(job.worker_recoveries(), " of workers, ", job.ps_recoveries(),
                                     " of parameter servers, ", job.rewinds(), " rewinds, ",
                                     job.replayed_steps(), " steps run again")),
      Row("redo log", absl::StrCat(BytesText(job.redo_log_bytes()), " of ",
                                   BytesText(job.redo_log_limit_bytes()))));
  return rows;
}

std::string MemoryText(const v1::PsStatus& ps) {
  std::string text = BytesText(ps.memory_bytes());
  if (ps.memory_limit_bytes() > 0)
    absl::StrAppend(&text, " of ", BytesText(ps.memory_limit_bytes()));
  return text;
}

// What the task does, and what is odd about it or awaited by it.
std::vector<std::string> TaskCells(const v1::TaskStatus& task, const v1::TaskStatus& whole) {
  std::string load, memory, steps;
  if (task.has_ps()) {
    load = absl::StrCat(task.ps().shards(), " shards, ", NumberText(task.ps().rows_per_second()),
                        " rows/s, ", BytesText(static_cast<int64_t>(task.ps().bytes_per_second())),
                        "/s");
    memory = MemoryText(task.ps());
  } else if (task.has_worker()) {
    const v1::WorkerStatus& worker = task.worker();
    load = absl::StrCat(NumberText(worker.steps_per_second()), " steps/s, waits for data ",
                        absl::StrFormat("%.0f %%", 100 * worker.input_wait_share()));
    if (worker.step_p50_ns() > 0)
      steps = absl::StrCat(TimeText(absl::Nanoseconds(worker.step_p50_ns())), " / ",
                           TimeText(absl::Nanoseconds(worker.step_p99_ns())));
  }
  std::vector<std::string> notes;
  for (const v1::TaskStatus::Finding& finding : whole.findings()) {
    if (finding.job() == task.job() && finding.index() == task.index())
      notes.push_back(finding.text());
  }
  for (const v1::TaskStatus::Wait& wait : task.waits())
    notes.push_back(absl::StrCat("waits for ", wait.text()));
  return {NameOfTask(task.job(), task.index()),
          task.state(),
          SinceText(task.state_ns()),
          load,
          memory,
          steps,
          absl::StrJoin(notes, "; ")};
}

// A row for each task that `status` shows: those of the job, or the task itself.
std::string TaskTable(const v1::TaskStatus& status) {
  std::string table = absl::StrCat(
      "<table class=\"tasks\">\n",
      Cells({"task", "state", "for", "load", "memory", "step p50 / p99", "notes"}, "th"));
  if (!status.has_coordinator()) absl::StrAppend(&table, Cells(TaskCells(status, status), "td"));
  for (const v1::TaskStatus& task : status.coordinator().tasks())
    absl::StrAppend(&table, Cells(TaskCells(task, status), "td"));
  return table + "</table>\n";
}

// A line over time, of the points that are finite: a loss may be none. Empty if there are fewer
// than two of them.
std::string Svg(const StatusHistory::Picture& picture) {
  constexpr double kWidth = 240, kHeight = 48;
  std::vector<TimedValue> points;
  for (const TimedValue& point : picture.points) {
    if (std::isfinite(point.value)) points.push_back(point);
  }
  if (points.size() < 2) return "";
  double least = 0, most = 0;
  for (const TimedValue& point : points) {
    least = std::min(least, point.value);
    most = std::max(most, point.value);
  }
  const double height = most > least ? most - least : 1;
  const absl::Duration begin = points.front().at;
  const double span = absl::ToDoubleSeconds(points.back().at - begin);
  std::string line;
  for (const TimedValue& point : points)
    absl::StrAppendFormat(&line, "%.1f,%.1f ",
                          kWidth * absl::ToDoubleSeconds(point.at - begin) / span,
                          kHeight * (most - point.value) / height);
  return absl::StrFormat(
      "<figure><figcaption>%s: %s, at most %s</figcaption><svg viewBox=\"0 -1 %.0f %.0f\" "
      "width=\"%.0f\" height=\"%.0f\" role=\"img\"><polyline points=\"%s\"/></svg></figure>\n",
      HtmlEscaped(picture.title), NumberText(points.back().value), NumberText(most), kWidth,
      kHeight + 2, kWidth, kHeight, line);
}

std::string PicturesPart(const std::vector<StatusHistory::Picture>& pictures) {
  std::string part;
  for (const StatusHistory::Picture& picture : pictures) absl::StrAppend(&part, Svg(picture));
  if (part.empty()) return part;
  return absl::StrCat("<h2>The last 10 minutes</h2>\n<div>", part, "</div>\n");
}

std::string WarningsPart(const std::vector<LoggedEntry>& warnings) {
  if (warnings.empty()) return "";
  std::string part = "<h2>Warnings</h2>\n<table>\n";
  for (auto entry = warnings.rbegin(); entry != warnings.rend(); ++entry)
    absl::StrAppend(
        &part,
        Row(absl::FormatTime("%Y-%m-%d %H:%M:%S", entry->at, absl::LocalTimeZone()),
            absl::StrCat(entry->severity == Severity::kError ? "error: " : "", entry->text)));
  return part + "</table>\n";
}

constexpr char kStyle[] =
    "body{font:15px/1.5 sans-serif;margin:2em;color:#222}h1{font-size:1.4em}h2{font-size:1.1em}"
    "th{text-align:left;font-weight:normal;color:#666;padding-right:2em;vertical-align:top}"
    "td{font-variant-numeric:tabular-nums;vertical-align:top}.tasks td{padding-right:2em}"
    ".wait,.find{background:#fff3cd;padding:.3em .6em}figure{display:inline-block;margin:0 2em "
    "1em 0}figcaption{color:#666}polyline{fill:none;stroke:#1a73e8;stroke-width:1.5}";

}  // namespace

std::string HtmlOf(const v1::TaskStatus& status, const PageContext& context) {
  const std::string name = HtmlEscaped(NameOfTask(status.job(), status.index()));
  std::string page =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", name,
                   " - Divvy</title><style>", kStyle, "</style></head>\n<body><h1>", name, ": ",
                   HtmlEscaped(status.state()), context.serving ? "" : ", not serving", "</h1>\n");
  for (const v1::TaskStatus::Wait& wait : status.waits()) {
    if (wait.since_ns() < kLeastShownWaitNs) continue;
    absl::StrAppendFormat(&page, "<p class=\"wait\">waits for %s (%.1f s)</p>\n",
                          HtmlEscaped(wait.text()), static_cast<double>(wait.since_ns()) * 1e-9);
  }
  for (const v1::TaskStatus::Finding& finding : status.findings())
    absl::StrAppend(&page, "<p class=\"find\">",
                    HtmlEscaped(NameOfTask(finding.job(), finding.index())), ": ",
                    HtmlEscaped(finding.text()), "</p>\n");
  absl::StrAppend(&page, "<table>\n", HeadRows(status));
  if (status.has_coordinator()) absl::StrAppend(&page, JobRows(status.coordinator(), context.now));
  absl::StrAppend(&page, "</table>\n");
  if (status.has_coordinator()) absl::StrAppend(&page, "<h2>Tasks</h2>\n");
  if (RoleOf(status) != nullptr) absl::StrAppend(&page, TaskTable(status));
  absl::StrAppend(&page, PicturesPart(context.pictures), WarningsPart(context.warnings));
  if (const google::protobuf::Message* const role = RoleOf(status))
    absl::StrAppend(&page, "<details><summary>All numbers</summary><table>\n", Rows(*role),
                    "</table></details>\n");
  absl::StrAppend(&page,
                  "<p><a href=\"/tracez\">where the time of steps went</a>, "
                  "<a href=\"/statusz.json\">as data</a>, "
                  "<a href=\"/metrics\">for Prometheus</a></p></body></html>\n");
  return page;
}

}  // namespace divvy
