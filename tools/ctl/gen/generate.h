// The files that `divvyctl gen` prints.
#ifndef DIVVY_TOOLS_CTL_GEN_GENERATE_H_
#define DIVVY_TOOLS_CTL_GEN_GENERATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/ctl/gen/job.h"
#include "tools/ctl/gen/make_job.h"

namespace divvy::gen {

// The text of all files of this kind. InvalidArgument: a flag that the kind does not use, or the
// problems of MakeJob. Pure.
absl::StatusOr<std::string> Generate(Kind kind, const GenOptions& options);

// The names of all flags of gen. Pure.
std::vector<std::string> FlagNames();
// The kinds that use a flag: "kubernetes, tfjob, jobset". Empty: there is no such flag of gen.
// Pure.
std::string KindsThatUse(absl::string_view flag);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_GENERATE_H_
