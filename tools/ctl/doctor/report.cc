#include "tools/ctl/doctor/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "wire/text.h"

namespace divvy::doctor {

std::string LookedAt(const Facts& facts) {
  std::vector<std::string> parts = {"this machine"};
  if (facts.config) parts.push_back(facts.config->source);
  if (!facts.tasks.empty())
    parts.push_back(absl::StrCat(facts.tasks.size(), facts.tasks.size() == 1 ? " task" : " tasks"));
  if (facts.checkpoints) parts.push_back(facts.checkpoints->path);
  if (facts.certificates) parts.push_back(facts.certificates->cert);
  return wire::Escaped(absl::StrJoin(parts, ", "));
}

std::string TextOf(const Finding& finding, int number) {
  return absl::StrCat(number, ". ", wire::Escaped(finding.what),
                      "\n   why:  ", wire::Escaped(finding.why),
                      "\n   mend: ", wire::Escaped(finding.mend), "\n");
}

}  // namespace divvy::doctor
