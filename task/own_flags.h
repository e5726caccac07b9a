// The table of Divvy's flags (task/flags.inc): which tasks use which flag.
#ifndef DIVVY_TASK_OWN_FLAGS_H_
#define DIVVY_TASK_OWN_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "protocol/role.h"

namespace divvy {

// The tasks that read a flag, as bits of OwnFlag::users.
enum FlagUser : uint8_t {
  kUsedByChief = 1,
  kUsedByPs = 2,
  kUsedByWorker = 4,
  kUsedByEvaluator = 8,
  // The whole cluster in one process. It refuses a flag that lacks this bit.
  kUsedByEmbedded = 16,
};

// The bit of a role. Pure.
constexpr FlagUser UserOf(Role role) {
  switch (role) {
    case Role::kChief: return kUsedByChief;
    case Role::kPs: return kUsedByPs;
    case Role::kWorker: return kUsedByWorker;
    case Role::kEvaluator: break;
  }
  return kUsedByEvaluator;
}

// A row of the table.
struct OwnFlag {
  absl::string_view name;
  // FlagUser bits.
  uint8_t users = 0;
  // A bool: needs no value, and may be written --noNAME.
  bool is_switch = false;
  // Completes the error "--name: ..." of a cluster in one process that refuses the flag.
  absl::string_view why_not_embedded = "";
  // The text for --help.
  absl::string_view meaning = "";
};

// All flags of Divvy that a task may have, in the order in which users meet them. Valid forever.
// Thread-safe.
absl::Span<const OwnFlag> OwnFlags();
// Finds a flag by the name on the command line, including --noNAME of a switch. Null: the flag
// belongs to the program or to Abseil. Pure.
const OwnFlag* FindOwnFlag(absl::string_view name);
// The names of these bits for people, e.g. "coordinator, worker". Pure.
std::string UsersText(uint8_t users);
// InvalidArgument if none of `users` reads a flag in `given` (FlagsGiven in flag_help.h). The error
// names every such flag, and the tasks that read it. Flags that are not Divvy's are not checked.
// `binary` is the name for the message. Pure.
absl::Status CheckFlagsOf(absl::string_view binary, uint8_t users,
                          absl::Span<const std::string> given);

}  // namespace divvy

#endif  // DIVVY_TASK_OWN_FLAGS_H_
