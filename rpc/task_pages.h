// The pages that a task serves over HTTP (--http_address).
#ifndef DIVVY_RPC_TASK_PAGES_H_
#define DIVVY_RPC_TASK_PAGES_H_

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "proto/divvy.pb.h"
#include "rpc/admin_service.h"
#include "rpc/http_server.h"
#include "rpc/status_history.h"

namespace divvy {

// The status in Prometheus' text format: gauges and counters of the role, and those of the process.
// `certificate_end`: of the task's certificate, if it has one.
std::string MetricsOf(const v1::TaskStatus& status, bool serving,
                      std::optional<absl::Time> certificate_end = std::nullopt);
// The status as JSON, with the names of divvy.proto.
std::string JsonOf(const v1::TaskStatus& status);
// Gives these pages:
//   /healthz       200: the process answers
//   /readyz        200: the task serves; 503: it does not, with what it waits for
//   /metrics       for Prometheus
//   /statusz       for people
//   /statusz.json  the same as data
//   /tracez        where the time of steps went, for people
//   /tracez.json   the same as data
// Another path gives 404 with this list. Thread-safe.
class TaskPages {
 public:
  struct Sources {
    // As rpc/admin_service.h requires.
    StatusOfTask status;
    // Metrics that MetricsOf does not have. Null: there are none. REQUIRES: outlives the pages.
    const MetricsRegistry* metrics = nullptr;
    // Where pictures come from. Null: there are none. REQUIRES: outlives the pages.
    const StatusHistory* history = nullptr;
    // The file of the task's certificate. Empty: it has none.
    std::string certificate = {};
    // What the task has kept of the times of steps. Null: nothing.
    TracesOfTask traces = nullptr;
  };
  explicit TaskPages(Sources sources) : sources_(std::move(sources)) {}
  // A new one is not serving.
  void SetServing(bool serving) { serving_ = serving; }
  HttpPage Page(absl::string_view path) const;

 private:
  HttpPage Readiness() const;
  // Blocks on the file of the certificate.
  std::string Metrics() const;
  std::string Html() const;
  v1::GetTracesReply Traces() const;
  std::string TraceHtml() const;

  const Sources sources_;
  std::atomic<bool> serving_{false};
};

}  // namespace divvy

#endif  // DIVVY_RPC_TASK_PAGES_H_
