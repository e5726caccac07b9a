// Which tasks use which of Divvy's flags: task/flags.inc, as a table.
#ifndef DIVVY_TASK_OWN_FLAGS_H_
#define DIVVY_TASK_OWN_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/role.h"

namespace divvy {

// Who reads a flag, as bits of OwnFlag::users.
enum FlagUser : uint8_t {
  kUsedByChief = 1,
  kUsedByPs = 2,
  kUsedByWorker = 4,
  kUsedByEvaluator = 8,
  // The whole cluster in one process: a flag without this bit is refused there.
  kUsedByEmbedded = 16,
};

// The bit of a task of that role. Pure.
constexpr FlagUser UserOf(Role role) {
  switch (role) {
    case Role::kChief: return kUsedByChief;
    case Role::kPs: return kUsedByPs;
    case Role::kWorker: return kUsedByWorker;
    case Role::kEvaluator: break;
  }
  return kUsedByEvaluator;
}

struct OwnFlag {
  absl::string_view name;
  uint8_t users = 0;
  // needs no value, and may be written --noNAME
  bool is_switch = false;
  // completes "--name: ..." where a cluster in one process refuses it
  absl::string_view why_not_embedded = "";
  absl::string_view meaning = "";
};

// All flags of Divvy that a task may be given, in the order in which people meet them. Lives
// forever.
absl::Span<const OwnFlag> OwnFlags();
// By the name as it is written, --noNAME of a switch too; null: it is the program's own, or
// Abseil's.
const OwnFlag* FindOwnFlag(absl::string_view name);
// "coordinator, worker": the names of these bits, for people. Pure.
std::string UsersText(uint8_t users);
// InvalidArgument unless one of `users` reads each flag that is given; names those that do.
// `given`: FlagsGiven (flag_help.h). Flags that are not Divvy's are not judged. Pure.
absl::Status CheckFlagsOf(absl::string_view binary, uint8_t users,
                          absl::Span<const std::string> given);

}  // namespace divvy

#endif  // DIVVY_TASK_OWN_FLAGS_H_
