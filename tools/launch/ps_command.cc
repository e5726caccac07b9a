#include "tools/launch/ps_command.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/file_system.h"
#include "base/process.h"
#include "task/own_flags.h"

namespace divvy {
namespace {

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

// python, python3, python3.11, ...; not python-config.
bool IsPython(absl::string_view name) {
  return absl::ConsumePrefix(&name, "python") &&
         name.find_first_not_of("0123456789.") == absl::string_view::npos;
}

// The flag of Divvy that a word begins, as Abseil reads it: "--name=value", "-name=value", or
// --name and the value in the next word. Null: none.
const OwnFlag* FlagIn(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return nullptr;
  absl::ConsumePrefix(&word, "-");
  return FindOwnFlag(word.substr(0, word.find('=')));
}

}  // namespace

std::vector<std::string> PsCommand(const std::vector<std::string>& command,
                                   const std::string& ps_server) {
  if (ps_server.empty() || command.empty() || !IsPython(FileName(command[0]))) return command;
  std::vector<std::string> stock = {ps_server};
  for (size_t i = 1; i < command.size() && command[i] != "--"; ++i) {
    const OwnFlag* const flag = FlagIn(command[i]);
    if (flag == nullptr) continue;
    const bool read = (flag->users & kUsedByPs) != 0;
    if (read) stock.push_back(command[i]);
    const bool takes_next = !flag->is_switch && !absl::StrContains(command[i], '=');
    if (!takes_next || i + 1 == command.size()) continue;
    ++i;
    if (read) stock.push_back(command[i]);
  }
  return stock;
}

std::string InstalledPsServer() {
  const std::string own = ExecutablePath();
  const std::string folder = own.substr(0, own.rfind('/') + 1);
  for (const char* const name : {"ps_server", "divvy-ps-server", "../ps_server/ps_server"}) {
    const std::string path = absl::StrCat(folder, name);
    if (!folder.empty() && FileSystem::Real().Stat(path).ok()) return path;
  }
  return "";
}

}  // namespace divvy
