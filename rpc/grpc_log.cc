#include "rpc/grpc_log.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "grpc/support/log.h"

namespace divvy {
namespace {

thread_local std::vector<std::string>* kept_errors = nullptr;

void LogOne(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  if (kept_errors != nullptr) {
    kept_errors->push_back(args->message);
    return;
  }
  Log({Severity::kWarning, args->file, args->line, absl::StrCat("gRPC: ", args->message)});
}

struct KnownFailure {
  absl::string_view sign;
  absl::string_view text;
};
constexpr KnownFailure kListenFailures[] = {
    {"Address already in use", "the port is in use: another process listens there"},
    {"Cannot assign requested address", "this machine has no such address"},
    {"Permission denied", "permission denied: ports below 1024 need privileges"},
    {"Name or service not known", "there is no such host name"},
};

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(LogOne);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

GrpcErrors::GrpcErrors() { kept_errors = &errors_; }
GrpcErrors::~GrpcErrors() { kept_errors = nullptr; }
std::vector<std::string> GrpcErrors::Take() { return std::exchange(errors_, {}); }

std::string ListenFailure(absl::Span<const std::string> errors) {
  const std::string all = absl::StrJoin(errors, "; ");
  for (const KnownFailure& known : kListenFailures) {
    if (absl::StrContains(all, known.sign)) return std::string(known.text);
  }
  return all.empty() ? "no reason given" : all;
}

}  // namespace divvy
