// The methods of the protocol, and the roles that may call each.
#ifndef DIVVY_TESTS_E2E_HOSTILE_METHODS_H_
#define DIVVY_TESTS_E2E_HOSTILE_METHODS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {

inline constexpr char kPull[] = "/divvy.v1.ParameterServerData/Pull";
inline constexpr char kCommit[] = "/divvy.v1.ParameterServerData/Commit";
inline constexpr char kGetStatus[] = "/divvy.v1.Admin/GetStatus";
// A worker ends a Steps stream of another session with OK, because it has taken nothing from it.
inline constexpr char kSteps[] = "/divvy.v1.Worker/Steps";
inline constexpr char kRegister[] = "/divvy.v1.Coordinator/Register";

struct Method {
  std::string path;
  std::vector<Role> served_by;
  // The roles that may call it.
  std::vector<std::string> allowed;
  // Makes a message that decodes, but belongs to no job that exists.
  std::string (*valid)(uint64_t seed);

  bool IsServedBy(TaskId task) const;
  bool MayBeCalledBy(const std::string& role) const;
  bool IsDataStream() const { return path == kPull || path == kCommit; }
};

// Every RPC of the protocol, and its two data streams.
const std::vector<Method>& Methods();

// The name of the code, for example "PERMISSION_DENIED".
std::string CodeName(const grpc::Status& status);
// The status in a data stream's reply; OK if the reply carries what was asked for.
absl::Status StatusOfReply(const std::string& message);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_METHODS_H_
