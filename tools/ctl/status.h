// `divvyctl status` shows what each task of a cluster does.
#ifndef DIVVY_TOOLS_CTL_STATUS_H_
#define DIVVY_TOOLS_CTL_STATUS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace divvy {

struct StatusOptions {
  // The addresses of the tasks to ask, "host:port".
  std::vector<std::string> addresses;
  // Address -> "ps 0", as far as known before the tasks answer.
  std::map<std::string, std::string> names;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  absl::Duration timeout = absl::Seconds(2);  // for each task
  bool json = false;
};

// Asks all tasks at once. Prints a table (or one JSON object per line) to standard output, in the
// order of the addresses. A task that does not answer has a line with the reason. Blocks at most
// for the timeout. Returns 0 if all have answered, otherwise 1.
int ShowStatus(const StatusOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_STATUS_H_
