// Asks several tasks at once.
#ifndef DIVVY_TOOLS_CTL_SURVEY_H_
#define DIVVY_TOOLS_CTL_SURVEY_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/time.h"

namespace divvy {

// Calls of Admin to each of several tasks. For one thread.
//
//   Survey<v1::GetStatusRequest, v1::TaskStatus> survey(addresses, credentials, timeout);
//   for (const auto& answer : survey.Run(request, &v1::Admin::Stub::async_interface::GetStatus))
//   ...
template <typename Request, typename Reply>
class Survey {
 public:
  struct Answer {
    std::string address;
    grpc::ClientContext context;
    Reply reply;
    absl::Status status;
    // By this machine's clock: when the answer came, and how long the call took.
    absl::Time came;
    absl::Duration took;
  };
  using Method = void (v1::Admin::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>);

  // `timeout`: for each task.
  Survey(const std::vector<std::string>& addresses,
         const std::shared_ptr<grpc::ChannelCredentials>& credentials, absl::Duration timeout)
      : addresses_(addresses), timeout_(timeout) {
    for (const std::string& address : addresses)
      stubs_.push_back(v1::Admin::NewStub(MakeChannel(address, credentials)));
  }

  // Waits until each task has answered or timed out. The answers are in the order of the addresses,
  // and valid until the next call. Each call uses the connections of the one before.
  const std::vector<std::unique_ptr<Answer>>& Run(const Request& request, Method method) {
    MakeAnswers();
    const absl::Duration start = Clock::Real().Elapsed();
    for (size_t i = 0; i < answers_.size(); ++i) {
      Answer& answer = *answers_[i];
      (stubs_[i]->async()->*method)(&answer.context, &request, &answer.reply,
                                    [this, &answer, start](grpc::Status status) {
                                      answer.came = Clock::Real().WallTime();
                                      answer.took = Clock::Real().Elapsed() - start;
                                      answer.status = FromGrpc(status, answer.address);
                                      MutexLock lock(mu_);
                                      ++answered_;
                                      changed_.NotifyAll();
                                    });
    }
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return answered_ == answers_.size(); });
    return answers_;
  }

 private:
  void MakeAnswers() {
    const gpr_timespec deadline = GrpcDeadline(timeout_);
    answers_.clear();
    for (const std::string& address : addresses_) {
      answers_.push_back(std::make_unique<Answer>());
      answers_.back()->address = address;
      answers_.back()->context.set_deadline(deadline);
    }
    MutexLock lock(mu_);
    answered_ = 0;
  }

  const std::vector<std::string> addresses_;
  const absl::Duration timeout_;
  std::vector<std::unique_ptr<v1::Admin::Stub>> stubs_;
  std::vector<std::unique_ptr<Answer>> answers_;
  Mutex mu_;
  CondVar changed_;
  size_t answered_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_SURVEY_H_
