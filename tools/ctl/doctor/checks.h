// The checks of `divvyctl doctor`. Each is a pure function of what was seen.
#ifndef DIVVY_TOOLS_CTL_DOCTOR_CHECKS_H_
#define DIVVY_TOOLS_CTL_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/ctl/doctor/facts.h"

namespace divvy::doctor {

struct Finding {
  // What is wrong, in a clause; why that matters, or what is behind it; and the command or the
  // change that mends it. They hold what tasks sent: escape them before they reach a terminal.
  std::string what, why, mend;

  // What --fix does. Only what loses nothing and gives nobody more rights. kMakeDirectory does not
  // end the finding: somebody must see that the new directory is on the shared volume.
  enum class Fix : uint8_t { kNone, kMakeDirectory, kCloseKey };
  Fix fix = Fix::kNone;
  // The directory or the file for that.
  std::string path = {};
};

struct Check {
  absl::string_view name;
  std::vector<Finding> (*run)(const Facts& facts);
};

// All checks, in the order in which their findings are told.
absl::Span<const Check> AllChecks();

// The findings of all checks. Pure.
std::vector<Finding> Examine(const Facts& facts);

}  // namespace divvy::doctor

#endif  // DIVVY_TOOLS_CTL_DOCTOR_CHECKS_H_
