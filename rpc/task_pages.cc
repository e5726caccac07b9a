#include "rpc/task_pages.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/metrics.h"
#include "base/process_metrics.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "variables/table_parts.h"
#include "wire/messages.h"

namespace divvy {
namespace {

// "chief", "ps 0"
std::string NameOf(const v1::TaskStatus& status) {
  const std::string job = absl::AsciiStrToLower(v1::Job_Name(status.job()));
  return status.job() == v1::CHIEF ? job : absl::StrCat(job, " ", status.index());
}

// ---- metrics ------------------------------------------------------------------------------------

class Adder {
 public:
  explicit Adder(MetricsRegistry& registry) : registry_(registry) {}
  void Gauge(const char* name, const char* help, double value,
             const MetricsRegistry::Labels& labels = {}) {
    registry_.GetGauge(name, help, labels).Set(value);
  }
  void Counter(const char* name, const char* help, uint64_t value,
               const MetricsRegistry::Labels& labels = {}) {
    registry_.GetCounter(name, help, labels).Add(value);
  }
  void Counter(const char* name, const char* help, int64_t value,
               const MetricsRegistry::Labels& labels = {}) {
    Counter(name, help, static_cast<uint64_t>(value), labels);
  }

 private:
  MetricsRegistry& registry_;
};

void AddCoordinator(const v1::CoordinatorStatus& status, Adder& add) {
  constexpr char kFinished[] = "Steps that have finished, in all lives of the job.",
                 kSteps[] = "Steps that have not ended.", kTasks[] = "Tasks of the job.",
                 kUp[] = "Tasks that answer.";
  add.Counter("divvy_steps_total", kFinished, status.finished_steps(), {{"kind", "training"}});
  add.Counter("divvy_steps_total", kFinished, status.finished_reads(), {{"kind", "read_only"}});
  add.Gauge("divvy_steps", kSteps, static_cast<double>(status.queued()), {{"state", "queued"}});
  add.Gauge("divvy_steps", kSteps, static_cast<double>(status.in_flight()),
            {{"state", "in_flight"}});
  add.Gauge("divvy_undurable_steps", "Finished training steps that no checkpoint covers.",
            static_cast<double>(status.finished_steps() - status.durable_steps()));
  add.Gauge("divvy_tasks", kTasks, status.num_ps(), {{"job", "ps"}});
  add.Gauge("divvy_tasks", kTasks, status.num_workers(), {{"job", "worker"}});
  add.Gauge("divvy_tasks_up", kUp, status.ps_up(), {{"job", "ps"}});
  add.Gauge("divvy_tasks_up", kUp, status.workers_up(), {{"job", "worker"}});
}

void AddPs(const v1::PsStatus& status, Adder& add) {
  add.Gauge("divvy_shards", "Shards of variables.", status.shards());
  add.Gauge("divvy_shards_bytes", "Memory of the shards.",
            static_cast<double>(status.memory_bytes()));
  add.Counter("divvy_push_applied_total", "Commits applied since the state was made or loaded.",
              status.applied_seq());
  add.Gauge("divvy_push_pending", "Commits that are being applied or wait.", status.commits());
  TablePartStats tables;
  for (const v1::PsStatus::TablePart& part : status.tables())
    tables += wire::FromProto(part.stats()).value_or(TablePartStats());
  add.Gauge("divvy_table_rows", "Rows of dynamic tables.", static_cast<double>(tables.rows));
  add.Gauge("divvy_table_waiting", "Keys that are counted until they are admitted.",
            static_cast<double>(tables.waiting));
  add.Gauge("divvy_table_bytes", "Memory of dynamic tables.", static_cast<double>(tables.bytes));
  add.Counter("divvy_table_admitted_total", "Keys that got a row.", tables.admitted);
  add.Counter("divvy_table_refused_total",
              "Writes to keys that found no room: a table is full, or memory is short.",
              tables.refused);
  add.Counter("divvy_table_evicted_total", "Rows that are gone.", tables.evicted);
  add.Gauge("divvy_sessions", "Sessions of workers that may commit.", status.sessions());
}

void AddWorker(const v1::WorkerStatus& status, Adder& add) {
  add.Counter("divvy_worker_reported_total", "Steps that the worker has reported.",
              status.reported());
  add.Gauge("divvy_worker_queued", "Steps that wait in the worker.", status.queued());
  add.Gauge("divvy_worker_committing", "1: a step is committing.", status.committing());
  for (const v1::WorkerStatus::Device& device : status.devices()) {
    if (device.memory_limit_bytes() == 0) continue;
    const MetricsRegistry::Labels labels = {{"device", device.device()}};
    add.Gauge("divvy_device_memory_bytes", "Memory of tensors on the device.",
              static_cast<double>(device.memory_bytes()), labels);
    add.Gauge("divvy_device_memory_limit_bytes", "The most that tensors may take there.",
              static_cast<double>(device.memory_limit_bytes()), labels);
  }
}

// ---- a page for people --------------------------------------------------------------------------

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Row(absl::string_view name, absl::string_view value) {
  return absl::StrCat("<tr><th>", Escaped(name), "</th><td>", Escaped(value), "</td></tr>\n");
}

// A row for each number or text of `message`.
std::string Rows(const google::protobuf::Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& fields = *message.GetReflection();
  std::string rows;
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      for (int j = 0; j < fields.FieldSize(message, &field); ++j) {
        if (field.message_type() != nullptr)
          absl::StrAppend(&rows, Row(absl::StrCat(field.name(), " ", j),
                                     fields.GetRepeatedMessage(message, &field, j)
                                         .ShortDebugString()));
      }
      continue;
    }
    if (field.message_type() != nullptr) continue;
    std::string value;
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

constexpr char kStyle[] =
    "body{font:15px/1.5 sans-serif;margin:2em;color:#222}h1{font-size:1.4em}"
    "th{text-align:left;font-weight:normal;color:#666;padding-right:2em;vertical-align:top}"
    "td{font-variant-numeric:tabular-nums}.wait{background:#fff3cd;padding:.3em .6em}";

}  // namespace

std::string MetricsOf(const v1::TaskStatus& status, bool serving) {
  MetricsRegistry registry;
  Adder add(registry);
  add.Gauge("divvy_build_info", "1; the labels tell the build.", 1, {{"version", status.build()}});
  add.Gauge("divvy_ready", "1: the task serves.", serving);
  add.Gauge("divvy_epoch", "The generation of the job that the task obeys.",
            static_cast<double>(status.epoch()));
  double longest = 0;
  for (const v1::TaskStatus::Wait& wait : status.waits())
    longest = std::max(longest, static_cast<double>(wait.since_ns()) * 1e-9);
  add.Gauge("divvy_waiting_seconds", "How long the task has waited for something; 0: it does not.",
            longest);
  if (status.has_coordinator()) AddCoordinator(status.coordinator(), add);
  if (status.has_ps()) AddPs(status.ps(), add);
  if (status.has_worker()) AddWorker(status.worker(), add);
  AddProcessMetrics(registry);
  return registry.ToPrometheusText();
}

std::string JsonOf(const v1::TaskStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // It fails on text that is not UTF-8 alone, and all text of a status is.
  if (!google::protobuf::util::MessageToJsonString(status, &json, options).ok()) return "{}\n";
  return json;
}

std::string HtmlOf(const v1::TaskStatus& status, bool serving) {
  const std::string name = Escaped(NameOf(status));
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", name,
      " - Divvy</title><style>", kStyle, "</style></head>\n<body><h1>", name, ": ",
      Escaped(status.state()), serving ? "" : ", not serving", "</h1>\n");
  for (const v1::TaskStatus::Wait& wait : status.waits())
    absl::StrAppendFormat(&page, "<p class=\"wait\">waits for %s (%.1f s)</p>\n",
                          Escaped(wait.text()), static_cast<double>(wait.since_ns()) * 1e-9);
  absl::StrAppend(&page, "<table>\n", Row("job", absl::StrFormat("%016x", status.job_id())),
                  Row("epoch", absl::StrCat(status.epoch())), Row("build", status.build()));
  if (const google::protobuf::Message* const role = RoleOf(status))
    absl::StrAppend(&page, Rows(*role));
  absl::StrAppend(&page,
                  "</table>\n<p><a href=\"/statusz.json\">as data</a>, "
                  "<a href=\"/metrics\">for Prometheus</a></p></body></html>\n");
  return page;
}

HttpPage TaskPages::Readiness() const {
  if (serving_) return TextPage(200, "serving\n");
  const v1::TaskStatus status = status_();
  std::string why = absl::StrCat("not serving: ", status.state(), "\n");
  for (const v1::TaskStatus::Wait& wait : status.waits())
    absl::StrAppend(&why, "waits for ", wait.text(), "\n");
  return TextPage(503, std::move(why));
}

HttpPage TaskPages::Page(absl::string_view path) const {
  if (path == "/healthz") return TextPage(200, "ok\n");
  if (path == "/readyz") return Readiness();
  if (path == "/metrics")
    return {200, "text/plain; version=0.0.4; charset=utf-8", MetricsOf(status_(), serving_)};
  if (path == "/statusz" || path == "/")
    return {200, "text/html; charset=utf-8", HtmlOf(status_(), serving_)};
  if (path == "/statusz.json") return {200, "application/json", JsonOf(status_())};
  return TextPage(404, "there are /healthz, /readyz, /metrics, /statusz and /statusz.json\n");
}

}  // namespace divvy
