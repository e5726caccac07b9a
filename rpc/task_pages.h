// The pages that a task serves over HTTP (--http_address).
#ifndef DIVVY_RPC_TASK_PAGES_H_
#define DIVVY_RPC_TASK_PAGES_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"
#include "rpc/admin_service.h"
#include "rpc/http_server.h"

namespace divvy {

// The status in Prometheus' text format: gauges and counters of the role, and those of the process.
std::string MetricsOf(const v1::TaskStatus& status, bool serving);
// The status as JSON, with the names of divvy.proto.
std::string JsonOf(const v1::TaskStatus& status);
// The status as a page for people.
std::string HtmlOf(const v1::TaskStatus& status, bool serving);

// Gives these pages:
//   /healthz       200: the process answers
//   /readyz        200: the task serves; 503: it does not, with what it waits for
//   /metrics       for Prometheus
//   /statusz       for people
//   /statusz.json  the same as data
// Another path gives 404 with this list. Thread-safe.
class TaskPages {
 public:
  // REQUIRES: `status` is as rpc/admin_service.h requires.
  explicit TaskPages(StatusOfTask status) : status_(std::move(status)) {}
  // A new one is not serving.
  void SetServing(bool serving) { serving_ = serving; }
  HttpPage Page(absl::string_view path) const;

 private:
  HttpPage Readiness() const;

  const StatusOfTask status_;
  std::atomic<bool> serving_{false};
};

}  // namespace divvy

#endif  // DIVVY_RPC_TASK_PAGES_H_
