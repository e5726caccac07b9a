// What --version prints.
#ifndef DIVVY_TASK_VERSION_LINE_H_
#define DIVVY_TASK_VERSION_LINE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// "divvyctl 0.1.0 (commit 529a9564)" and a newline. Without the parenthesis if `commit`
// (base/build_info.h) is empty.
std::string VersionLine(absl::string_view program, absl::string_view commit);

}  // namespace divvy

#endif  // DIVVY_TASK_VERSION_LINE_H_
