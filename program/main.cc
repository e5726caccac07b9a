#include "program/main.h"

#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/terminal.h"
#include "ops/blas_threads.h"
#include "program/embedded.h"

ABSL_FLAG(int, ps, 2, "parameter servers of the embedded cluster");
ABSL_FLAG(int, workers, 2, "workers of the embedded cluster");
ABSL_FLAG(int, replicas_per_worker, 1, "replicas of a worker, each on a thread of its own");
ABSL_FLAG(uint64_t, seed, 1, "of the job: initial values and the order of the data follow from it");
ABSL_FLAG(int, blas_threads, 0, "threads a matrix product may use; 0: cores / replicas, at least 1");
ABSL_FLAG(bool, check_numerics, false, "a step that writes a value that is not finite fails, and leaves no trace");
ABSL_FLAG(absl::Duration, report_every, absl::Seconds(5), "a line of progress, where there is no terminal");

namespace divvy {
namespace {

constexpr int kBadConfiguration = 78;   // EX_CONFIG

int Refuse(absl::string_view what) {
  WriteStandardError(absl::StrCat(what, "\n"));
  return kBadConfiguration;
}

EmbeddedSetup SetupFromFlags(const StrategyOptions& strategy) {
  EmbeddedSetup setup;
  setup.options = {absl::GetFlag(FLAGS_ps), absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_replicas_per_worker), strategy, absl::GetFlag(FLAGS_seed)};
  setup.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  setup.report.emplace();
  setup.report->terminal = StandardErrorTerminal();
  setup.report->report_every = std::max(absl::Milliseconds(100), absl::GetFlag(FLAGS_report_every));
  setup.report->write = WriteStandardError;
  return setup;
}

// The program's own code: what it throws ends it, with a message instead of a core.
absl::Status CallTrain(TrainFunction* train, Coordinator& coordinator) {
  try {
    return train(coordinator);
  } catch (const std::exception& exception) {
    return absl::UnknownError(absl::StrCat("Train threw: ", exception.what()));
  }
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kDataLoss: return 65;             // EX_DATAERR
    case absl::StatusCode::kNotFound: return 66;             // EX_NOINPUT
    case absl::StatusCode::kInternal: return 70;             // EX_SOFTWARE
    case absl::StatusCode::kResourceExhausted: return 74;    // EX_IOERR
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated: return 77;      // EX_NOPERM
    case absl::StatusCode::kUnavailable: return 138;         // start it again
    default: return 1;
  }
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("a Divvy program. --ps=P --workers=W: the size of the embedded cluster");
  absl::ParseCommandLine(argc, argv);
  if (std::getenv("TF_CONFIG") != nullptr) return Refuse("TF_CONFIG is set, but this version of Divvy runs the whole cluster in one process: unset TF_CONFIG");
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  if (!program.ok()) return Refuse(program.status().message());
  auto cluster = EmbeddedCluster::Start(SetupFromFlags((*program)->options));
  if (!cluster.ok()) return Refuse(cluster.status().message());
  if (absl::GetFlag(FLAGS_blas_threads) > 0) SetBlasThreads(absl::GetFlag(FLAGS_blas_threads));
  WriteStandardError(absl::StrCat("embedded cluster: chief, ", absl::GetFlag(FLAGS_ps), " ps, ", absl::GetFlag(FLAGS_workers),
                                  " workers in this process (no network, no TLS)\n"));
  BlockingCoordinator& coordinator = (*cluster)->coordinator();
  const absl::Status result = coordinator.Finish(CallTrain((*program)->train, coordinator));
  (*cluster)->reporter()->Summarize(PeakMemoryBytes());
  if (!result.ok()) WriteStandardError(absl::StrCat(absl::StatusCodeToString(result.code()), ": ", result.message(), "\n"));
  return ExitCodeOf(result);
}

}  // namespace divvy
