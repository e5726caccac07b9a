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

bool IsReadByPs(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "--")) return false;
  const OwnFlag* const flag = FindOwnFlag(word.substr(0, word.find('=')));
  return flag != nullptr && (flag->users & kUsedByPs) != 0;
}

}  // namespace

std::vector<std::string> PsCommand(const std::vector<std::string>& command,
                                   const std::string& ps_server) {
  if (ps_server.empty() || command.empty() || !IsPython(FileName(command[0]))) return command;
  std::vector<std::string> stock = {ps_server};
  for (const std::string& word : command) {
    if (IsReadByPs(word)) stock.push_back(word);
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
