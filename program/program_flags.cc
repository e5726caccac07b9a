#include "program/program_flags.h"

#include <algorithm>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "task/flag_help.h"
#include "task/own_flags.h"

namespace divvy {
namespace {

bool IsChanged(const absl::CommandLineFlag& flag) {
  return flag.CurrentValue() != flag.DefaultValue();
}

bool IsProgramFlag(const absl::CommandLineFlag& flag) {
  const auto is_it = [&flag](const OwnFlag& own) { return own.name == flag.Name(); };
  return !IsAbseilFlag(flag.Name()) && std::none_of(OwnFlags().begin(), OwnFlags().end(), is_it);
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
      FlagHelp("flags that only tasks of a cluster have (docs/operating/operations.md says which):",
               others));
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
