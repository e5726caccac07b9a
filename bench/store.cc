// bazel run //bench:store [-- --format=json] [DIRECTORY]
//
// Changes per second of the coordinator's store, one after another. Each change writes the row of a
// new variable and the row of the job. The ceiling is appending a page to a file and syncing it,
// the cheapest durable write. Works in DIRECTORY (default: the working directory), and removes its
// files.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/mutex.h"
#include "bench/rounds.h"
#include "coordinator/store/sqlite_store.h"

namespace divvy::bench {
namespace {

constexpr int kChanges = 200;

void PutAndWait(Store& store, StoreChange change) {
  Mutex mu;
  CondVar told;
  bool over = false;
  store.Put(std::move(change), [&](absl::Status status) {
    DIVVY_CHECK(status.ok());
    MutexLock lock(mu);
    over = true;
    told.NotifyAll();
  });
  MutexLock lock(mu);
  told.Wait(mu, [&] { return over; });
}

// A change with the row of a new variable in four shards and the job's row.
StoreChange NewVariable(uint32_t id) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.name = absl::StrCat("model/layer", id, "/kernel");
  row.layout.spec.shape = Shape{1024, 64};
  row.layout.offsets = {0, 256, 512, 768, 1024};
  row.layout.ps = {0, 1, 2, 3};
  JobRow job;
  job.next_variable_id = id + 1;
  return {job, {row}};
}

void Run(const std::string& directory) {
  const std::string state = directory + "/bench_store", pages = directory + "/bench_store.pages";
  ThreadPoolExecutor executor(1);
  std::unique_ptr<Store> store = SqliteStore::Open(state, executor).value();
  const std::unique_ptr<WritableFile> file =
      FileSystem::Real().OpenForWrite(pages, WriteMode::kReplace).value();
  uint32_t id = 1;
  const Contender figure{"changes", [&] { PutAndWait(*store, NewVariable(id++)); }};
  const Contender ceiling{
      "appending and syncing a page",
      [&] { DIVVY_CHECK(file->Append(std::string(4096, 'x')).ok() && file->Sync().ok()); }};
  Extras extras;
  const Comparison comparison = CompareLatencies(figure, ceiling, kChanges, extras);
  Show("store", comparison, {"/s"}, extras);
  store.reset();
  for (const std::string& made : {state + "/divvy.db", state, pages})
    DIVVY_CHECK(FileSystem::Real().Remove(made).ok());
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  divvy::bench::Run(arguments.size() > 1 ? arguments[1] : ".");
}
