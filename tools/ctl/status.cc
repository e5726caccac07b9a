#include "tools/ctl/status.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/config_json.h"
#include "coordinator/report/format.h"
#include "google/protobuf/util/json_util.h"
#include "proto/divvy.grpc.pb.h"
#include "tools/ctl/survey.h"
#include "wire/text.h"

namespace divvy {
namespace {

using StatusSurvey = Survey<v1::GetStatusRequest, v1::TaskStatus>;
using Answer = StatusSurvey::Answer;

std::string TaskName(const v1::TaskStatus& status) {
  switch (status.job()) {
    case v1::CHIEF: return "chief";
    case v1::PS: return absl::StrCat("ps ", status.index());
    case v1::WORKER: return absl::StrCat("worker ", status.index());
    default: return "?";
  }
}

// Empty for a worker of an older build, which does not report its devices.
std::string DevicesOf(const v1::WorkerStatus& worker) {
  std::vector<std::string> gpus;
  for (const v1::WorkerStatus::Device& device : worker.devices()) {
    if (!absl::StartsWith(device.device(), "GPU:")) continue;
    gpus.push_back(absl::StrCat(device.device(), " ", device.name()));
    if (device.memory_limit_bytes() == 0) continue;
    absl::StrAppend(&gpus.back(), " (", FormatBytes(device.memory_bytes()), " of ",
                    FormatBytes(device.memory_limit_bytes()), ")");
  }
  if (!gpus.empty()) return absl::StrCat(", on ", absl::StrJoin(gpus, ", "));
  if (worker.devices_size() > 1)
    return absl::StrCat(", ", worker.devices_size(), " replicas on the CPU");
  return worker.devices_size() == 1 ? ", on the CPU" : "";
}

// The function of the running step and, for a training step, its number in the job. The step's id
// is not shown, because it leaps when a job is started again.
std::string LiveStep(const v1::WorkerStatus& worker) {
  // An older build does not report the function.
  if (worker.live_function().empty()) return absl::StrCat("step ", worker.live_step());
  return worker.has_live_ordinal()
             ? absl::StrCat(worker.live_function(), ", training step ", worker.live_ordinal() + 1)
             : worker.live_function();
}

// ", 1234 rows of 2 tables". Empty: there is no table.
std::string RowsOfTables(const v1::PsStatus& ps) {
  int64_t rows = 0;
  for (const v1::PsStatus::TablePart& table : ps.tables()) rows += table.stats().rows();
  if (ps.tables_size() == 0) return "";
  return absl::StrCat(", ", rows, " rows of ", ps.tables_size(),
                      ps.tables_size() == 1 ? " table" : " tables");
}

// One line for each dynamic table of the job.
std::vector<std::string> TableLines(const v1::CoordinatorStatus& coordinator) {
  std::vector<std::string> lines;
  for (const v1::CoordinatorStatus::Table& table : coordinator.tables()) {
    const v1::TablePartStats& stats = table.stats();
    lines.push_back(absl::StrCat(
        "table ", table.name(), ": ", stats.rows(), " rows",
        table.max_rows() > 0 ? absl::StrCat(" of at most ", table.max_rows()) : "", ", ",
        FormatBytes(stats.bytes()),
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
              : absl::StrCat(", ", c.last_checkpoint(), " holds ", c.durable_steps(), " steps"));
    }
    case v1::TaskStatus::kPs: {
      const v1::PsStatus& ps = status.ps();
      return absl::StrCat(ps.shards(), " shards, ", FormatBytes(ps.memory_bytes()), ", ",
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

constexpr int kLeastWidth = 24;  // of the addresses' column

int WidthOf(const StatusOptions& options) {
  size_t width = kLeastWidth;
  for (const std::string& address : options.addresses) width = std::max(width, address.size());
  return static_cast<int>(width);
}

// "?" if TF_CONFIG does not name the address.
std::string NameOf(const StatusOptions& options, const std::string& address) {
  const auto found = options.names.find(address);
  return found == options.names.end() ? "?" : found->second;
}

void PrintRow(const Answer& answer, const StatusOptions& options) {
  const int width = WidthOf(options);
  if (!answer.status.ok()) {
    absl::PrintF("%-10s %-*s %-10s %s\n", NameOf(options, answer.address), width, answer.address,
                 "no answer", wire::Escaped(answer.status.message()));
    return;
  }
  const v1::TaskStatus& status = answer.reply;
  absl::PrintF("%-10s %-*s %-10s epoch %d  %s\n", TaskName(status), width, answer.address,
               wire::Escaped(status.state()), status.epoch(), wire::Escaped(Figures(status)));
  for (const std::string& line : TableLines(status.coordinator()))
    absl::PrintF("%-10s   %s\n", "", wire::Escaped(line));
  for (const v1::TaskStatus::Wait& wait : status.waits()) {
    const absl::Duration since = absl::Trunc(absl::Nanoseconds(wait.since_ns()), absl::Seconds(1));
    if (since > absl::ZeroDuration())
      absl::PrintF("%-10s   since %s: %s\n", "", absl::FormatDuration(since),
                   wire::Escaped(wait.text()));
  }
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  return google::protobuf::util::MessageToJsonString(message, &json, options).ok() ? json : "{}";
}

v1::Status ErrorOf(const absl::Status& status) {
  v1::Status error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(std::string(status.message()));
  return error;
}

void PrintJson(const Answer& answer, const StatusOptions& options) {
  const std::string json =
      answer.status.ok() ? ToJson(answer.reply) : ToJson(ErrorOf(answer.status));
  absl::PrintF(
      "{\"address\":%s,\"task\":%s,\"%s\":%s}\n", QuoteJson(answer.address),
      QuoteJson(answer.status.ok() ? TaskName(answer.reply) : NameOf(options, answer.address)),
      answer.status.ok() ? "status" : "error", json);
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  StatusSurvey survey(options.addresses, options.credentials, options.timeout);
  bool all = true;
  for (const auto& answer : survey.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
    all = all && answer->status.ok();
    options.json ? PrintJson(*answer, options) : PrintRow(*answer, options);
  }
  return all ? 0 : 1;
}

}  // namespace divvy
