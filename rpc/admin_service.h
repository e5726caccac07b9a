// The gRPC service Admin: the status of every task, and operator requests to a coordinator.
#ifndef DIVVY_RPC_ADMIN_SERVICE_H_
#define DIVVY_RPC_ADMIN_SERVICE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "proto/divvy.grpc.pb.h"
#include "protocol/clients.h"
#include "protocol/ids.h"

namespace divvy {

// Returns the status of the task. REQUIRES: thread-safe, and does not block.
using StatusOfTask = std::function<v1::TaskStatus()>;

// The operator requests of a coordinator. REQUIRES: the functions are thread-safe and do not block.
// Each calls its callback once, or destroys it; the caller then gets Unavailable.
struct OperatorCalls {
  // The incarnation of this coordinator. A request for another incarnation has no effect.
  Incarnation incarnation;
  // Makes a checkpoint now.
  std::function<void(ResultCallback<v1::RequestCheckpointReply>)> save;
  // Ends the chief as SIGTERM does.
  std::function<void(ResultCallback<v1::DrainReply>)> drain;
  // Changes the number of parameter servers to `num_ps`.
  std::function<void(int num_ps, ResultCallback<v1::ResizeReply>)> resize;
  std::function<void(ResultCallback<v1::RebalanceReply>)> rebalance;
};

// Finds the rows that an operator asks a parameter server for. REQUIRES: thread-safe, and does not
// block. Calls its callback once, or destroys it; the caller then gets Unavailable.
using RowsForOperator =
    std::function<void(v1::GetTableRowsRequest, ResultCallback<v1::GetTableRowsReply>)>;

// Returns what the task has kept of the times of steps. REQUIRES: as StatusOfTask.
using TracesOfTask = std::function<v1::GetTracesReply()>;

// The service Admin. GetLogs returns at once the last entries of the process's log, and GetTraces
// what `traces` returns; a task without it has kept nothing. GetStatus returns at once what
// `status` returns. GetTableRows is for a parameter server, and is refused with INVALID by another
// task. The other methods are for a coordinator. They are refused with INVALID if there are no
// OperatorCalls, and with WRONG_INCARNATION if the request names another incarnation: the operator
// then asks for the status and repeats the request. Every method first checks the caller
// (CheckUnaryCall). Thread-safe; no method blocks.
class AdminService : public v1::Admin::CallbackService {
 public:
  // No `calls`: the task is not a coordinator. No `rows`: it is not a parameter server.
  explicit AdminService(StatusOfTask status, std::optional<OperatorCalls> calls = std::nullopt,
                        RowsForOperator rows = nullptr, TracesOfTask traces = nullptr)
      : status_(std::move(status)),
        calls_(std::move(calls)),
        rows_(std::move(rows)),
        traces_(std::move(traces)) {}

  // The status in one line, for the log. Without the tasks that a coordinator shows.
  std::string StatusText() const;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::TaskStatus* reply) override;
  grpc::ServerUnaryReactor* RequestCheckpoint(grpc::CallbackServerContext* context,
                                              const v1::RequestCheckpointRequest* request,
                                              v1::RequestCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* GetTableRows(grpc::CallbackServerContext* context,
                                         const v1::GetTableRowsRequest* request,
                                         v1::GetTableRowsReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request, v1::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Resize(grpc::CallbackServerContext* context,
                                   const v1::ResizeRequest* request,
                                   v1::ResizeReply* reply) override;
  grpc::ServerUnaryReactor* Rebalance(grpc::CallbackServerContext* context,
                                      const v1::RebalanceRequest* request,
                                      v1::RebalanceReply* reply) override;
  grpc::ServerUnaryReactor* GetTraces(grpc::CallbackServerContext* context,
                                      const v1::GetTracesRequest* request,
                                      v1::GetTracesReply* reply) override;
  grpc::ServerUnaryReactor* GetLogs(grpc::CallbackServerContext* context,
                                    const v1::GetLogsRequest* request,
                                    v1::GetLogsReply* reply) override;

 private:
  template <typename Request, typename Reply, typename Call>
  grpc::ServerUnaryReactor* Operate(absl::string_view name, grpc::CallbackServerContext* context,
                                    const Request& request, Reply& reply, const Call& call);

  const StatusOfTask status_;
  const std::optional<OperatorCalls> calls_;
  const RowsForOperator rows_;
  const TracesOfTask traces_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_ADMIN_SERVICE_H_
