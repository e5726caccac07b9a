#include "tools/ctl/task_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number_text.h"
#include "rpc/page_text.h"

namespace divvy {
namespace {

// Empty for a worker of an older build, which does not report its devices.
std::string DevicesOf(const v1::WorkerStatus& worker) {
  std::vector<std::string> gpus;
  for (const v1::WorkerStatus::Device& device : worker.devices()) {
    if (!absl::StartsWith(device.device(), "GPU:")) continue;
    gpus.push_back(absl::StrCat(device.device(), " ", device.name()));
    if (device.memory_limit_bytes() == 0) continue;
    absl::StrAppend(&gpus.back(), " (", BytesText(device.memory_bytes()), " of ",
                    BytesText(device.memory_limit_bytes()), ")");
  }
  if (!gpus.empty()) return absl::StrCat(", on ", absl::StrJoin(gpus, ", "));
  if (worker.devices_size() > 1)
    return absl::StrCat(", ", worker.devices_size(), " replicas on the CPU");
  return worker.devices_size() == 1 ? ", on the CPU" : "";
}

// ", 1234 rows of 2 tables". Empty: there is no table.
std::string RowsOfTables(const v1::PsStatus& ps) {
  int64_t rows = 0;
  for (const v1::PsStatus::TablePart& table : ps.tables()) rows += table.stats().rows();
  if (ps.tables_size() == 0) return "";
  return absl::StrCat(", ", rows, " rows of ", ps.tables_size(),
                      ps.tables_size() == 1 ? " table" : " tables");
}

}  // namespace

std::string TaskName(const v1::TaskStatus& status) {
  return NameOfTask(status.job(), status.index());
}

std::string LiveStep(const v1::WorkerStatus& worker) {
  // An older build does not report the function.
  if (worker.live_function().empty()) return absl::StrCat("step ", worker.live_step());
  return worker.has_live_ordinal()
             ? absl::StrCat(worker.live_function(), ", training step ", worker.live_ordinal() + 1)
             : worker.live_function();
}

std::vector<std::string> TableLines(const v1::CoordinatorStatus& coordinator) {
  std::vector<std::string> lines;
  for (const v1::CoordinatorStatus::Table& table : coordinator.tables()) {
    const v1::TablePartStats& stats = table.stats();
    lines.push_back(absl::StrCat(
        "table ", table.name(), ": ", stats.rows(), " rows",
        table.max_rows() > 0 ? absl::StrCat(" of at most ", table.max_rows()) : "", ", ",
        BytesText(stats.bytes()),
        stats.waiting() > 0 ? absl::StrCat(", ", stats.waiting(), " keys wait to be admitted") : "",
        stats.evicted() > 0 ? absl::StrCat(", ", stats.evicted(), " evicted") : ""));
    if (stats.refused() > 0)
      absl::StrAppend(&lines.back(), "; full: ", stats.refused(),
                      " writes to new keys found no room (max_rows, --memory_limit_bytes)");
  }
  return lines;
}

std::string Figures(const v1::TaskStatus& status) {
  switch (status.role_case()) {
    case v1::TaskStatus::kCoordinator: {
      const v1::CoordinatorStatus& c = status.coordinator();
      return absl::StrCat(
          c.finished_steps(), " steps, ", c.queued(), " queued, ", c.in_flight(), " in flight, ps ",
          c.ps_up(), "/", c.num_ps(), ", workers ", c.workers_up(), "/", c.num_workers(),
          c.last_checkpoint().empty()
              ? ""
              : absl::StrCat(", ", c.last_checkpoint(), " holds ", c.durable_steps(), " steps"),
          c.has_work() ? absl::StrCat(", ", c.work().text()) : "");
    }
    case v1::TaskStatus::kPs: {
      const v1::PsStatus& ps = status.ps();
      return absl::StrCat(ps.shards(), " shards, ", BytesText(ps.memory_bytes()), ", ",
                          ps.applied_seq(), " commits applied", RowsOfTables(ps));
    }
    case v1::TaskStatus::kWorker: {
      const v1::WorkerStatus& worker = status.worker();
      const std::string live =
          worker.live_step() == 0
              ? "idle"
              : absl::StrCat(worker.committing() ? "commits " : "runs ", LiveStep(worker));
      return absl::StrCat(worker.reported(), " steps reported, ", live, ", ", worker.queued(),
                          " queued", DevicesOf(worker));
    }
    default: return "";
  }
}

}  // namespace divvy
