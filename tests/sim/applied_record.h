// The commits that parameter servers have applied, as seen on the network. The servers' own
// history, which the code under test writes, is checked against this record.
#ifndef DIVVY_TESTS_SIM_APPLIED_RECORD_H_
#define DIVVY_TESTS_SIM_APPLIED_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
  // Records that server `ps` has just answered that it applied this commit for the first time.
  void Applied(Incarnation ps, Epoch lineage, const CommitRequest& request);

  // Whether each entry was applied by all of its participants or by none. `servers` are the
  // parameter servers of the job in this lineage.
  bool AllWhole(const std::vector<Incarnation>& servers, Epoch lineage) const;

  // The ids of `applied`, in the order in which any server applied them first. Entries that have
  // not been answered yet come last.
  std::vector<EntryId> InOrder(const std::map<EntryId, std::set<int>>& applied,
                               Epoch lineage) const;

  // Describes what is wrong with a server's history of its lineage; empty if nothing is. The
  // history may hold a commit that has been applied and not answered yet.
  std::string Contradiction(Incarnation ps, const ParameterServerSnapshot& seen) const;

 private:
  struct Entry {
    int times = 0, participants = 0;
    // The number of commits that all servers had applied before.
    int64_t since = 0;
  };
  int64_t commits_ = 0;
  // By server and lineage.
  std::map<std::pair<Incarnation, Epoch>, std::map<EntryId, Entry>> applied_;
};

// The serial that the program gave its direct write; kSerialOfEvictions for an eviction, which is a
// write of the coordinator itself; nullopt if the commit is a step's.
constexpr int64_t kSerialOfEvictions = -1;
std::optional<int64_t> SerialOf(const CommitRequest& request);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_APPLIED_RECORD_H_
