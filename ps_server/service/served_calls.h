// The pulls and commits that a parameter server has answered.
#ifndef DIVVY_PS_SERVER_SERVICE_SERVED_CALLS_H_
#define DIVVY_PS_SERVER_SERVICE_SERVED_CALLS_H_

#include "absl/time/time.h"
#include "base/recent_and_slowest.h"
#include "proto/divvy.pb.h"
#include "protocol/ids.h"
#include "rpc/data_server.h"

namespace divvy {

// Keeps the last 64, and the slowest 32 of ten minutes. Thread-safe.
class ServedCalls {
 public:
  // `now`: Clock::Elapsed. A request that was refused before it was whole is not kept.
  void Note(const DataOutcome& outcome, absl::Duration now);
  // For Admin.GetTraces. `now` and `wall` are the same moment.
  v1::GetTracesReply ToProto(JobId job, absl::Duration now, absl::Time wall) const;

 private:
  struct Call {
    DataOutcome outcome;
    absl::Duration ended;
  };
  static v1::ServedCall ToProto(const Call& call, absl::Duration now, absl::Time wall);

  RecentAndSlowest<Call> kept_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_SERVED_CALLS_H_
