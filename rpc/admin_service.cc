#include "rpc/admin_service.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/recent_log.h"
#include "base/status_macros.h"
#include "rpc/unary_handler.h"
#include "rpc/wall_time.h"

namespace divvy {
namespace {

absl::Status CheckTarget(const absl::StatusOr<Incarnation>& target,
                         const std::optional<OperatorCalls>& calls) {
  RETURN_IF_ERROR(target);
  if (!calls)
    return MakeError(Reason::kInvalid,
                     "this task is not the coordinator, and only the coordinator does this: give "
                     "its address");
  if (*target == calls->incarnation) return absl::OkStatus();
  return MakeError(Reason::kWrongIncarnation,
                   "the request is for another incarnation of the coordinator, which has been "
                   "restarted since: ask for its status, and repeat the request");
}

v1::GetLogsReply::Severity ToProto(Severity severity) {
  switch (severity) {
    case Severity::kInfo: return v1::GetLogsReply::INFO;
    case Severity::kWarning: return v1::GetLogsReply::WARNING;
    case Severity::kError: return v1::GetLogsReply::ERROR;
  }
  return v1::GetLogsReply::ERROR;
}

absl::StatusOr<v1::GetLogsReply> LogsFor(const v1::GetLogsRequest& request) {
  if (request.entries() < 0)
    return MakeError(Reason::kInvalid, absl::StrCat("entries is ", request.entries(),
                                                    ", wanted a number from 1, or 0 for all"));
  const RecentLog log = LastEntries(
      request.entries() == 0 ? RecentLog::kMostEntries : static_cast<size_t>(request.entries()));
  v1::GetLogsReply reply;
  reply.set_written(log.written);
  for (const LoggedEntry& entry : log.entries) {
    v1::GetLogsReply::Entry& out = *reply.add_entries();
    out.set_time_ns(absl::ToUnixNanos(entry.at));
    out.set_severity(ToProto(entry.severity));
    out.set_text(entry.text);
    out.set_file(entry.file);
    out.set_line(entry.line);
  }
  return reply;
}

// Fills in the reply and finishes the call.
template <typename Reply>
ResultCallback<Reply> Into(std::shared_ptr<internal::UnaryFinisher> finisher, Reply& reply) {
  return [finisher = std::move(finisher), &reply](const absl::StatusOr<Reply>& result) {
    if (result.ok()) reply = *result;
    finisher->Finish(result.status());
  };
}

}  // namespace

std::string AdminService::StatusText() const {
  v1::TaskStatus status = status_();
  if (status.has_coordinator()) status.mutable_coordinator()->clear_tasks();
  return status.ShortDebugString();
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const v1::GetStatusRequest*,
                                                  v1::TaskStatus* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  internal::UnaryFinisher finisher(reactor, "Admin.GetStatus");
  const absl::Status checked = CheckUnaryCall(*context, "Admin.GetStatus");
  if (checked.ok()) {
    *reply = status_();
    SendWallTime(*context);
  }
  finisher.Finish(checked);
  return reactor;
}

// `call` gets the callback for its reply.
template <typename Request, typename Reply, typename Call>
grpc::ServerUnaryReactor* AdminService::Operate(absl::string_view name,
                                                grpc::CallbackServerContext* context,
                                                const Request& request, Reply& reply,
                                                const Call& call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto finisher = std::make_shared<internal::UnaryFinisher>(reactor, name);
  absl::Status checked = CheckUnaryCall(*context, name);
  if (checked.ok()) checked = CheckTarget(wire::FromProto(request), calls_);
  if (checked.ok())
    call(Into(finisher, reply));
  else
    finisher->Finish(checked);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetTableRows(grpc::CallbackServerContext* context,
                                                     const v1::GetTableRowsRequest* request,
                                                     v1::GetTableRowsReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto finisher = std::make_shared<internal::UnaryFinisher>(reactor, "Admin.GetTableRows");
  absl::Status checked = CheckUnaryCall(*context, "Admin.GetTableRows");
  if (checked.ok() && !rows_)
    checked = MakeError(Reason::kInvalid,
                        "this task is not a parameter server, and only these have rows of tables: "
                        "give their addresses");
  if (checked.ok())
    rows_(*request, Into(finisher, *reply));
  else
    finisher->Finish(checked);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::RequestCheckpoint(
    grpc::CallbackServerContext* context, const v1::RequestCheckpointRequest* request,
    v1::RequestCheckpointReply* reply) {
  return Operate(
      "Admin.RequestCheckpoint", context, *request, *reply,
      [this](ResultCallback<v1::RequestCheckpointReply> done) { calls_->save(std::move(done)); });
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* request,
                                              v1::DrainReply* reply) {
  return Operate("Admin.Drain", context, *request, *reply,
                 [this](ResultCallback<v1::DrainReply> done) { calls_->drain(std::move(done)); });
}

grpc::ServerUnaryReactor* AdminService::Resize(grpc::CallbackServerContext* context,
                                               const v1::ResizeRequest* request,
                                               v1::ResizeReply* reply) {
  const auto resize = [this, num_ps = request->num_ps()](ResultCallback<v1::ResizeReply> done) {
    calls_->resize(num_ps, std::move(done));
  };
  return Operate("Admin.Resize", context, *request, *reply, resize);
}

grpc::ServerUnaryReactor* AdminService::Rebalance(grpc::CallbackServerContext* context,
                                                  const v1::RebalanceRequest* request,
                                                  v1::RebalanceReply* reply) {
  return Operate(
      "Admin.Rebalance", context, *request, *reply,
      [this](ResultCallback<v1::RebalanceReply> done) { calls_->rebalance(std::move(done)); });
}

grpc::ServerUnaryReactor* AdminService::GetTraces(grpc::CallbackServerContext* context,
                                                  const v1::GetTracesRequest*,
                                                  v1::GetTracesReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  internal::UnaryFinisher finisher(reactor, "Admin.GetTraces");
  const absl::Status checked = CheckUnaryCall(*context, "Admin.GetTraces");
  if (checked.ok() && traces_) *reply = traces_();
  finisher.Finish(checked);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::GetLogs(grpc::CallbackServerContext* context,
                                                const v1::GetLogsRequest* request,
                                                v1::GetLogsReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  internal::UnaryFinisher finisher(reactor, "Admin.GetLogs");
  absl::Status checked = CheckUnaryCall(*context, "Admin.GetLogs");
  if (checked.ok()) {
    absl::StatusOr<v1::GetLogsReply> logs = LogsFor(*request);
    checked = logs.status();
    if (logs.ok()) *reply = *std::move(logs);
  }
  finisher.Finish(checked);
  return reactor;
}

}  // namespace divvy
