#include "rpc/task_pages.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/process_metrics.h"
#include "base/recent_log.h"
#include "rpc/page_text.h"
#include "rpc/peer_certificate.h"
#include "rpc/status_page.h"
#include "rpc/trace_page.h"
#include "rpc/trace_spans.h"
#include "variables/table_parts.h"
#include "wire/messages.h"

namespace divvy {
namespace {

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

void AddRecoveries(const v1::CoordinatorStatus& status, Adder& add) {
  constexpr char kRecoveries[] = "Tasks that were lost, and were replaced or came back.";
  add.Counter("divvy_recoveries_total", kRecoveries, status.worker_recoveries(),
              {{"job", "worker"}});
  add.Counter("divvy_recoveries_total", kRecoveries, status.ps_recoveries(), {{"job", "ps"}});
  add.Counter("divvy_ps_restarts_total", "How often another process took the place of a ps.",
              status.ps_recoveries());
  add.Counter("divvy_worker_sessions_fenced_total",
              "Sessions of workers that have lost their right to commit.",
              status.fenced_sessions());
  add.Counter("divvy_rewinds_total", "How often all parameter servers returned to a checkpoint.",
              status.rewinds());
  add.Counter("divvy_replayed_steps_total", "Steps that had finished and were run again.",
              status.replayed_steps());
  add.Gauge("divvy_goodput_ratio",
            "Steps that have finished, of the runs of steps in this life of the coordinator.",
            status.goodput());
  add.Gauge("divvy_redo_log_bytes", "Memory of the redo log.",
            static_cast<double>(status.redo_log_bytes()));
  add.Gauge("divvy_redo_log_limit_bytes", "The most that it may take.",
            static_cast<double>(status.redo_log_limit_bytes()));
}

void AddCheckpoints(const v1::CoordinatorStatus::Checkpoints& status, Adder& add) {
  if (status.last_success_ns() > 0)
    add.Gauge("divvy_checkpoint_last_success_timestamp_seconds",
              "When the last checkpoint of this coordinator was complete, in seconds from 1970.",
              static_cast<double>(status.last_success_ns()) * 1e-9);
  add.Gauge("divvy_checkpoint_bytes", "The size of the last checkpoint.",
            static_cast<double>(status.last_bytes()));
  add.Counter("divvy_checkpoint_failures_total", "Checkpoints that failed because of a disk.",
              status.failed());
  add.Gauge("divvy_checkpoint_failing",
            "1: a checkpoint failed because of a disk, and none has been made since.",
            status.failing() ? 1 : 0);
  add.Gauge("divvy_checkpoint_interval_seconds",
            "The interval of checkpoints; 0: only on request and at the end.",
            static_cast<double>(status.interval_ns()) * 1e-9);
}

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
  add.Gauge("divvy_oldest_step_seconds", "The age of the oldest step that has not ended; 0: none.",
            static_cast<double>(status.oldest_step_ns()) * 1e-9);
  add.Counter("divvy_examples_total",
              "Examples in training steps, where the program's metrics count them.",
              status.examples());
  if (status.has_loss()) add.Gauge("divvy_loss", "The last mean loss.", status.loss());
  add.Gauge("divvy_leases", "Positions of data that open steps have.",
            static_cast<double>(status.leased_positions()), {{"state", "open"}});
  AddRecoveries(status, add);
  AddCheckpoints(status.checkpoints(), add);
  add.Gauge("divvy_tasks", kTasks, status.num_ps(), {{"job", "ps"}});
  add.Gauge("divvy_tasks", kTasks, status.num_workers(), {{"job", "worker"}});
  add.Gauge("divvy_tasks_up", kUp, status.ps_up(), {{"job", "ps"}});
  add.Gauge("divvy_tasks_up", kUp, status.workers_up(), {{"job", "worker"}});
}

void AddMemory(const v1::PsStatus& status, Adder& add) {
  const auto memory = [&add](const char* what, int64_t bytes) {
    add.Gauge("divvy_memory_bytes", "Memory by what it is used for.", static_cast<double>(bytes),
              {{"what", what}});
  };
  memory("parameters", status.parameter_bytes());
  memory("slots", status.slot_bytes());
  memory("tables", status.table_bytes());
  memory("buffers", status.buffer_bytes());
  add.Gauge("divvy_memory_used_bytes", "Memory that counts against the limit.",
            static_cast<double>(status.memory_bytes()));
  if (status.memory_limit_bytes() > 0)
    add.Gauge("divvy_memory_limit_bytes", "The most memory that shards and tables may take.",
              static_cast<double>(status.memory_limit_bytes()));
  add.Gauge("divvy_inflight_bytes", "Memory of commits that arrive or are applied.",
            static_cast<double>(status.inflight_bytes()));
}

void AddPs(const v1::PsStatus& status, Adder& add) {
  AddMemory(status, add);
  add.Counter("divvy_worker_sessions_fenced_total",
              "Sessions of workers that have lost their right to commit.",
              status.fenced_sessions());
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

}  // namespace

std::string MetricsOf(const v1::TaskStatus& status, bool serving,
                      std::optional<absl::Time> certificate_end) {
  MetricsRegistry registry;
  Adder add(registry);
  // The build is the version and the commit.
  const std::string version = status.build().substr(0, status.build().find(' '));
  add.Gauge("divvy_build_info", "1; the labels tell the build.", 1,
            {{"version", version}, {"commit", BuildCommit()}, {"compiler", BuildCompiler()}});
  if (certificate_end)
    add.Gauge("divvy_certificate_expiry_timestamp_seconds",
              "When the certificate of the task ends, in seconds from 1970.",
              static_cast<double>(absl::ToUnixSeconds(*certificate_end)));
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

std::string JsonOf(const v1::TaskStatus& status) { return JsonText(status, JsonLines::kMany); }

// Each name is in one of the registries alone, as the format wants it.
std::string TaskPages::Metrics() const {
  return absl::StrCat(
      MetricsOf(
          sources_.status(), serving_,
          sources_.certificate.empty() ? std::nullopt : EndOfCertificate(sources_.certificate)),
      sources_.metrics == nullptr ? "" : sources_.metrics->ToPrometheusText(),
      MetricsRegistry::Default().ToPrometheusText());
}

std::string TaskPages::Html() const {
  PageContext context;
  context.serving = serving_;
  context.now = Clock::Real().WallTime();
  if (sources_.history != nullptr) context.pictures = sources_.history->Pictures();
  context.warnings = RecentWarnings();
  return HtmlOf(sources_.status(), context);
}

v1::GetTracesReply TaskPages::Traces() const {
  return sources_.traces ? sources_.traces() : v1::GetTracesReply();
}

std::string TaskPages::TraceHtml() const {
  const v1::TaskStatus status = sources_.status();
  return TracePage(status.job(), status.index(), Traces(), Clock::Real().WallTime());
}

HttpPage TaskPages::Readiness() const {
  if (serving_) return TextPage(200, "serving\n");
  const v1::TaskStatus status = sources_.status();
  std::string why = absl::StrCat("not serving: ", status.state(), "\n");
  for (const v1::TaskStatus::Wait& wait : status.waits())
    absl::StrAppend(&why, "waits for ", wait.text(), "\n");
  return TextPage(503, std::move(why));
}

HttpPage TaskPages::Page(absl::string_view path) const {
  if (path == "/healthz") return TextPage(200, "ok\n");
  if (path == "/readyz") return Readiness();
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", Metrics()};
  if (path == "/statusz" || path == "/") return {200, "text/html; charset=utf-8", Html()};
  if (path == "/statusz.json") return {200, "application/json", JsonOf(sources_.status())};
  if (path == "/tracez") return {200, "text/html; charset=utf-8", TraceHtml()};
  if (path == "/tracez.json") return {200, "application/json", JsonOf(Traces())};
  return TextPage(404,
                  "there are /healthz, /readyz, /metrics, /statusz, /statusz.json, /tracez and "
                  "/tracez.json\n");
}

}  // namespace divvy
