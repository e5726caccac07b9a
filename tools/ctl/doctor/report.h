// What `divvyctl doctor` prints.
#ifndef DIVVY_TOOLS_CTL_DOCTOR_REPORT_H_
#define DIVVY_TOOLS_CTL_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/ctl/doctor/checks.h"

namespace divvy::doctor {

// What was looked at: "this machine, TF_CONFIG, 5 tasks". Pure.
std::string LookedAt(const Facts& facts);
// Three lines for a finding with this number, escaped. Pure.
std::string TextOf(const Finding& finding, int number);

}  // namespace divvy::doctor

#endif  // DIVVY_TOOLS_CTL_DOCTOR_REPORT_H_
