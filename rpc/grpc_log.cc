#include "rpc/grpc_log.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "grpc/support/log.h"
#include "rpc/failure_text.h"
#include "rpc/log_limit.h"

namespace divvy {
namespace {

thread_local std::string* kept_errors = nullptr;

LogLimit& Limit() {
  static LogLimit* const limit = new LogLimit;
  return *limit;
}

void LogOne(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  if (kept_errors != nullptr) {
    absl::StrAppend(kept_errors, args->message, "\n");
    return;
  }
  std::string text = HandshakeFailure(args->message);
  if (text.empty()) text = absl::StrCat("gRPC: ", args->message);
  if (Limit().Admit(text)) Log({Severity::kWarning, args->file, args->line, text});
}

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(LogOne);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

GrpcErrors::GrpcErrors() { kept_errors = &text_; }
GrpcErrors::~GrpcErrors() { kept_errors = nullptr; }

}  // namespace divvy
