// What every task tells people about itself.
#ifndef DIVVY_RPC_ADMIN_SERVICE_H_
#define DIVVY_RPC_ADMIN_SERVICE_H_

#include <functional>
#include <utility>

#include "proto/divvy.grpc.pb.h"

namespace divvy {

// Admin.GetStatus: answers what `status` returns, at once.
class AdminService : public v1::Admin::CallbackService {
 public:
  // REQUIRES: `status` is thread-safe and does not block.
  explicit AdminService(std::function<v1::TaskStatus()> status) : status_(std::move(status)) {}

  v1::TaskStatus status() const { return status_(); }
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request, v1::TaskStatus* reply) override;

 private:
  const std::function<v1::TaskStatus()> status_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_ADMIN_SERVICE_H_
