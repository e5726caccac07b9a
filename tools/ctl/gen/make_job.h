// Makes the model of a job from what the user asked for.
#ifndef DIVVY_TOOLS_CTL_GEN_MAKE_JOB_H_
#define DIVVY_TOOLS_CTL_GEN_MAKE_JOB_H_

#include "absl/status/statusor.h"
#include "tools/ctl/gen/job.h"

namespace divvy::gen {

// "kubernetes"; the word behind `divvyctl gen`. Pure.
absl::string_view KindName(Kind kind);
// nullopt: there is no such kind. Pure.
std::optional<Kind> ParseKind(absl::string_view name);

// Fills in the defaults of `kind`, and divides the arguments and the memory among the roles.
// InvalidArgument: every problem at once, each with the flag and what to write. Whether the kind
// uses the flags is not checked. Pure.
absl::StatusOr<Job> MakeJob(Kind kind, GenOptions options);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_MAKE_JOB_H_
