// What parameter servers have applied, as the network saw it: beside their own history, which the
// code under test writes.
#ifndef DIVVY_TESTS_SIM_APPLIED_RECORD_H_
#define DIVVY_TESTS_SIM_APPLIED_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/ids.h"
#include "protocol/messages.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy::sim {

// Not thread-safe.
class AppliedRecord {
 public:
  // A server has said that it applied this commit just now, for the first time.
  void Applied(Incarnation ps, Epoch lineage, const CommitRequest& request);

  // Whether each entry was applied by all servers that it is for, or by none; `servers`: those of
  // the job, in this lineage.
  bool AllWhole(const std::vector<Incarnation>& servers, Epoch lineage) const;

  // What is wrong with a server's history of its lineage; empty: nothing. A commit may have been
  // applied and not answered yet.
  std::string Contradiction(Incarnation ps, const ParameterServerSnapshot& seen) const;

 private:
  struct Entry {
    int times = 0, participants = 0;
  };
  // By server and lineage.
  std::map<std::pair<Incarnation, Epoch>, std::map<EntryId, Entry>> applied_;
};

// The number that the program has given its direct write; nullopt: a step's commit.
std::optional<int64_t> SerialOf(const CommitRequest& request);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_APPLIED_RECORD_H_
