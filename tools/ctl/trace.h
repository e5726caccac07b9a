// `divvyctl trace` shows where the time of a step went.
#ifndef DIVVY_TOOLS_CTL_TRACE_H_
#define DIVVY_TOOLS_CTL_TRACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/divvy.pb.h"

namespace divvy {

// Which steps are shown. None of these: the last one.
struct TraceChoice {
  // The number of a training step, from 1. All its attempts are shown.
  std::optional<int64_t> step = {};
  // So many of the slowest.
  std::optional<int> slowest = {};
  // So many of the last ones, the newest first. Those whose worker was lost are among them.
  std::optional<int> last = {};
};

enum class TraceFormat { kTable, kJson, kChrome };

struct TraceOptions {
  std::string address;  // of the coordinator, "host:port"
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  absl::Duration timeout = absl::Seconds(5);
  TraceChoice choice = {};
  TraceFormat format = TraceFormat::kTable;
};

// Asks the coordinator, or a worker, and returns the text to print. Blocks at most for twice the
// timeout. Errors: those of ChooseSteps, and of the call.
absl::StatusOr<std::string> TraceText(const TraceOptions& options);

// The parts of it, which are pure.

// NotFound: no step has been traced yet, or not this one; the message names the nearest that were.
// InvalidArgument: the task is a parameter server, which knows no steps. `job`: the task's role;
// JOB_NONE: not known.
absl::StatusOr<std::vector<v1::TracedStep>> ChooseSteps(v1::Job job,
                                                        const v1::GetTracesReply& traces,
                                                        const TraceChoice& choice);
// The step as lines with bars. Text from outside is escaped for a terminal. `now`: wall time.
std::string TraceLines(uint64_t job_id, const v1::TracedStep& step, absl::Time now);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_TRACE_H_
