// `divvyctl status`: what the tasks of a cluster are and do.
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
  // Of the tasks to ask, "host:port".
  std::vector<std::string> addresses;
  // address -> "ps 0", as far as they are known before they answer
  std::map<std::string, std::string> names;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  absl::Duration timeout = absl::Seconds(2);  // for each
  bool json = false;
};

// Asks all at once and prints a table (or one JSON object a line) on standard output, in the order
// of the addresses; a task that does not answer has a line that says why. Blocks for the timeout at
// most. 0: all answered; 1: some did not.
int ShowStatus(const StatusOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_STATUS_H_
