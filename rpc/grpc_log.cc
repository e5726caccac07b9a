#include "rpc/grpc_log.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "rpc/failure_text.h"
#include "wire/text.h"

namespace divvy {
namespace {

thread_local std::string* kept_errors = nullptr;

LogLimit& GrpcLogLimit() {
  static LogLimit* const limit = new LogLimit;
  return *limit;
}

// Escapes the text, because it may contain bytes that a peer sent.
void LogLimited(const char* file, int line, absl::string_view raw) {
  const std::string text = wire::Escaped(raw);
  if (GrpcLogLimit().Admit(text)) Log({Severity::kWarning, file, line, text});
}

void LogOne(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  if (kept_errors != nullptr) {
    absl::StrAppend(kept_errors, args->message, "\n");
    return;
  }
  std::string text = HandshakeFailure(args->message);
  if (text.empty()) text = absl::StrCat("gRPC: ", args->message);
  LogLimited(args->file, args->line, text);
}

// Errors that protobuf finds in a peer's message before our own code sees the message.
void LogOneOfProtobuf(google::protobuf::LogLevel level, const char* file, int line,
                      const std::string& message) {
  if (level >= google::protobuf::LOGLEVEL_WARNING)
    LogLimited(file, line, absl::StrCat("protobuf: ", message));
}

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(LogOne);
  google::protobuf::SetLogHandler(LogOneOfProtobuf);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

GrpcErrors::GrpcErrors() { kept_errors = &text_; }
GrpcErrors::~GrpcErrors() { kept_errors = nullptr; }

}  // namespace divvy
