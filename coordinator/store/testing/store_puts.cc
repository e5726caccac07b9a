// A process that tools/crash_points kills at every system call.
//
//   store_puts put DIR          puts the script's changes into a store in DIR, and prints a line
//   for
//                               each acknowledged change
//   store_puts check DIR LINES  checks that the store in DIR has all changes that the file LINES
//                               names as acknowledged, or one change more, and takes further
//                               changes
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/testing/store_script.h"

namespace divvy {
namespace {

absl::Status PutFrom(Store& store, size_t first) {
  const std::vector<StoreChange> script = StoreScript();
  for (size_t i = first; i < script.size(); ++i) {
    RETURN_IF_ERROR(PutInline(store, script[i]));
    // std::endl flushes, so that a kill does not lose the line.
    std::cout << "done: change " << i + 1 << std::endl;
    if (!std::cout) return absl::ResourceExhaustedError("the line could not be printed");
  }
  return absl::OkStatus();
}

absl::Status Put(const std::string& directory) {
  InlineExecutor executor;
  ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, SqliteStore::Open(directory, executor));
  return PutFrom(*store, 0);
}

absl::Status Check(const std::string& directory, const std::string& lines) {
  ASSIGN_OR_RETURN(const std::string printed, FileSystem::Real().ReadFile(lines));
  const size_t done = std::count(printed.begin(), printed.end(), '\n');
  InlineExecutor executor;
  ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, SqliteStore::Open(directory, executor));
  ASSIGN_OR_RETURN(const StoredJob stored, store->Load());
  const std::vector<StoreContent> states = StatesOf(StoreScript());
  const size_t state = std::find(states.begin(), states.end(), ContentOf(stored)) - states.begin();
  std::cout << done << " changes were done, the store holds state " << state << "\n";
  if (state != done && state != done + 1)
    return absl::DataLossError(
        "the store has neither exactly the acknowledged changes nor one change more");
  return PutFrom(*store, state);
}

absl::Status Main(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "put") return Put(words[1]);
  if (words.size() == 3 && words[0] == "check") return Check(words[1], words[2]);
  return absl::InvalidArgumentError("usage: store_puts put DIR | check DIR LINES");
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  const absl::Status status = divvy::Main({argv + 1, argv + argc});
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
