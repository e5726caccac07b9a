#include "tools/ctl/gen/generate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/ctl/gen/formats.h"

namespace divvy::gen {
namespace {

constexpr uint32_t Bit(Kind kind) { return 1u << static_cast<int>(kind); }
constexpr uint32_t O = Bit(Kind::kKubernetes) | Bit(Kind::kTfJob) | Bit(Kind::kJobSet),
                   C = Bit(Kind::kCompose), L = Bit(Kind::kSlurm), D = Bit(Kind::kSystemd),
                   P = Bit(Kind::kPrometheus);

struct FlagUse {
  absl::string_view name;
  uint32_t kinds;
  bool (*is_given)(const GenOptions& options);
};
// The flags that are no std::optional, then those of flags.inc.
constexpr FlagUse kFlags[] = {
    {"ps", O | C | L | D | P, [](const GenOptions&) { return true; }},
    {"workers", O | C | L | D | P, [](const GenOptions&) { return true; }},
    {"evaluator", O | C | D, [](const GenOptions& options) { return options.evaluator; }},
    {"monitoring", C, [](const GenOptions& options) { return options.monitoring; }},
#define DIVVY_GEN_FLAG(type, name, field, kinds, meaning) \
  {#name, kinds, [](const GenOptions& options) { return options.field.has_value(); }},
#include "tools/ctl/gen/flags.inc"
};

std::string KindsText(uint32_t kinds) {
  std::vector<absl::string_view> names;
  for (const Kind kind : kKinds) {
    if ((kinds & Bit(kind)) != 0) names.push_back(KindName(kind));
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckFlags(Kind kind, const GenOptions& options) {
  std::vector<std::string> problems;
  for (const FlagUse& flag : kFlags) {
    if ((flag.kinds & Bit(kind)) == 0 && flag.is_given(options))
      problems.push_back(absl::StrCat("--", flag.name, " (", KindsText(flag.kinds), ")"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gen ", KindName(kind), " does not use ",
                                                 absl::StrJoin(problems, ", "),
                                                 ": leave it out; in brackets are the kinds that "
                                                 "do"));
}

std::string Print(Kind kind, const Job& job) {
  switch (kind) {
    case Kind::kKubernetes: return KubernetesFile(job);
    case Kind::kTfJob: return TfJobFile(job);
    case Kind::kJobSet: return JobSetFile(job);
    case Kind::kSlurm: return SlurmFile(job);
    case Kind::kSystemd: return SystemdFiles(job);
    case Kind::kPrometheus: return PrometheusFile(job);
    case Kind::kCompose: break;
  }
  return ComposeFile(job);
}

}  // namespace

absl::StatusOr<std::string> Generate(Kind kind, const GenOptions& options) {
  if (const absl::Status flags = CheckFlags(kind, options); !flags.ok()) return flags;
  const absl::StatusOr<Job> job = MakeJob(kind, options);
  if (!job.ok()) return job.status();
  return Print(kind, *job);
}

std::vector<std::string> FlagNames() {
  std::vector<std::string> names;
  for (const FlagUse& flag : kFlags) names.emplace_back(flag.name);
  return names;
}

std::string KindsThatUse(absl::string_view flag) {
  for (const FlagUse& use : kFlags) {
    if (use.name == flag) return KindsText(use.kinds);
  }
  return "";
}

}  // namespace divvy::gen
