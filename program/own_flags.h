// Which tasks use which of Divvy's flags. The flags themselves are defined where their values are
// read; a test holds this table to them.
#ifndef DIVVY_PROGRAM_OWN_FLAGS_H_
#define DIVVY_PROGRAM_OWN_FLAGS_H_

#include <cstdint>

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
};

// All flags of Divvy that a task may be given, in the order in which people meet them. Lives
// forever.
absl::Span<const OwnFlag> OwnFlags();
// By the name as it is written, --noNAME of a switch too; null: it is the program's own, or
// Abseil's.
const OwnFlag* FindOwnFlag(absl::string_view name);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_OWN_FLAGS_H_
