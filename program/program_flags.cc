#include "program/program_flags.h"

#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "program/own_flags.h"
#include "task/flag_help.h"

namespace divvy {
namespace {

// The files that define flags of Divvy; a flag knows the file it is defined in, as the compiler was
// told of it.
constexpr absl::string_view kOwnFiles[] = {"program/role_flags.cc", "task/task_flags.cc",
                                           "ps_server/service/run.cc"};

// Where our files lie: a program's file of the same name lies elsewhere.
absl::string_view OwnRoot() { return absl::StripSuffix(__FILE__, "program/program_flags.cc"); }

bool IsChanged(const absl::CommandLineFlag& flag) {
  return flag.CurrentValue() != flag.DefaultValue();
}

bool IsProgramFlag(const absl::CommandLineFlag& flag) {
  if (IsAbseilFlag(flag.Name())) return false;
  const std::string file = flag.Filename();
  for (const absl::string_view own : kOwnFiles) {
    if (file == absl::StrCat(OwnRoot(), own)) return false;
  }
  return true;
}

std::map<std::string, absl::CommandLineFlag*> ProgramFlags() {
  std::map<std::string, absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsProgramFlag(*flag)) flags.emplace(std::string(name), flag);
  }
  return flags;
}

absl::Status CheckKnown(const std::map<std::string, absl::CommandLineFlag*>& flags,
                        const std::map<std::string, std::string>& values) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : values) {
    if (flags.count(name) == 0) unknown.push_back(absl::StrCat("--", name));
  }
  if (unknown.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("runs another program than the coordinator: it has no flag ",
                   absl::StrJoin(unknown, ", "), ". Deploy one binary to all tasks"));
}

std::string HelpOfOwn() {
  const std::set<std::string> own = ProgramFlagNames();
  return FlagHelp("flags of this program:", std::vector<std::string>(own.begin(), own.end()));
}

}  // namespace

std::map<std::string, std::string> ChangedProgramFlags() {
  std::map<std::string, std::string> changed;
  for (const auto& [name, flag] : ProgramFlags()) {
    if (IsChanged(*flag)) changed[name] = flag->CurrentValue();
  }
  return changed;
}

std::set<std::string> ProgramFlagNames() {
  std::set<std::string> names;
  for (const auto& [name, flag] : ProgramFlags()) names.insert(name);
  return names;
}

std::map<std::string, std::string> ChangedFlags() {
  std::map<std::string, std::string> changed;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsAbseilFlag(name) && IsChanged(*flag)) changed[std::string(name)] = flag->CurrentValue();
  }
  return changed;
}

std::string HelpOfProgram() {
  std::vector<std::string> embedded, others;
  for (const OwnFlag& flag : OwnFlags())
    ((flag.users & kUsedByEmbedded) != 0 ? embedded : others).push_back(std::string(flag.name));
  return absl::StrCat(
      HelpOfOwn(),
      FlagHelp("flags of the cluster in this process, and of the tasks of another:", embedded),
      FlagHelp("flags that only tasks of a cluster have (docs/operations.md says which):", others));
}

std::string HelpOfTask(const std::vector<Role>& roles) {
  uint8_t users = 0;
  for (const Role role : roles) users |= UserOf(role);
  std::vector<std::string> names;
  for (const OwnFlag& flag : OwnFlags()) {
    if ((flag.users & users) != 0) names.push_back(std::string(flag.name));
  }
  return absl::StrCat(HelpOfOwn(), FlagHelp("flags, with their defaults:", names));
}

absl::Status SetProgramFlags(const std::map<std::string, std::string>& values) {
  const auto flags = ProgramFlags();
  RETURN_IF_ERROR(CheckKnown(flags, values));
  for (const auto& [name, flag] : flags) {
    const auto found = values.find(name);
    std::string error;
    if (!flag->ParseFrom(found == values.end() ? flag->DefaultValue() : found->second, &error)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, ": ", error));
    }
  }
  return absl::OkStatus();
}

}  // namespace divvy
