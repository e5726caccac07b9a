// What every task tells people about itself, and what a coordinator does for them.
#ifndef DIVVY_TASK_ADMIN_SERVICE_H_
#define DIVVY_TASK_ADMIN_SERVICE_H_

#include <functional>
#include <optional>
#include <utility>

#include "cluster/clients.h"
#include "cluster/ids.h"
#include "proto/divvy.grpc.pb.h"

namespace divvy {

// What an operator may ask of a coordinator. REQUIRES: the functions are thread-safe and do not
// block; each answers once, or lets its callback go.
struct OperatorCalls {
  // Of the coordinator: a request that means another life does nothing.
  Incarnation incarnation;
  std::function<void(ResultCallback<v1::RequestCheckpointReply>)> save;
  std::function<void(ResultCallback<v1::DrainReply>)> drain;
  std::function<void(int num_ps, ResultCallback<v1::ResizeReply>)> resize;
};

// The service Admin. GetStatus answers what `status` returns, at once. The others are a
// coordinator's: refused with INVALID where there are no OperatorCalls, and with WRONG_INCARNATION
// where they mean another life.
class AdminService : public v1::Admin::CallbackService {
 public:
  // REQUIRES: `status` is thread-safe and does not block.
  explicit AdminService(std::function<v1::TaskStatus()> status,
                        std::optional<OperatorCalls> calls = std::nullopt)
      : status_(std::move(status)), calls_(std::move(calls)) {}

  v1::TaskStatus status() const { return status_(); }
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::TaskStatus* reply) override;
  grpc::ServerUnaryReactor* RequestCheckpoint(grpc::CallbackServerContext* context,
                                              const v1::RequestCheckpointRequest* request,
                                              v1::RequestCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request, v1::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Resize(grpc::CallbackServerContext* context,
                                   const v1::ResizeRequest* request,
                                   v1::ResizeReply* reply) override;

 private:
  template <typename Request, typename Reply, typename Call>
  grpc::ServerUnaryReactor* Operate(absl::string_view name, grpc::CallbackServerContext* context,
                                    const Request& request, Reply& reply, const Call& call);

  const std::function<v1::TaskStatus()> status_;
  const std::optional<OperatorCalls> calls_;
};

}  // namespace divvy

#endif  // DIVVY_TASK_ADMIN_SERVICE_H_
