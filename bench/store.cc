// bazel run //bench:store [-- --format=json] [DIRECTORY]
//
// Changes per second of the coordinator's store, one after another. Each change writes the row of a
// new variable and the row of the job. The ceiling is appending a page to a file and syncing it,
// the cheapest durable write. The table also has the 99th percentile of the times. Works in
// DIRECTORY (default: the working directory), and removes its files.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/mutex.h"
#include "bench/rounds.h"
#include "coordinator/store/sqlite_store.h"

ABSL_FLAG(std::string, format, "table", "table or json");

namespace divvy::bench {
namespace {

constexpr int kChanges = 200;
constexpr int kRounds = 5;

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

// Collects the times of many calls.
class Stopwatch {
 public:
  template <typename Body>
  void Time(const Body& body) {
    const absl::Duration before = Clock::Real().Elapsed();
    body();
    took_.push_back(Clock::Real().Elapsed() - before);
  }
  absl::Duration OneInAHundred() {
    std::sort(took_.begin(), took_.end());
    return took_[took_.size() * 99 / 100];
  }

 private:
  std::vector<absl::Duration> took_;
};

void Run(const std::string& directory) {
  const std::string state = directory + "/bench_store", pages = directory + "/bench_store.pages";
  ThreadPoolExecutor executor(1);
  std::unique_ptr<Store> store = SqliteStore::Open(state, executor).value();
  const std::unique_ptr<WritableFile> file =
      FileSystem::Real().OpenForWrite(pages, WriteMode::kReplace).value();
  uint32_t id = 1;
  Stopwatch changes, syncs;
  const Contender figure{"changes", [&] {
                           for (int i = 0; i < kChanges; ++i)
                             changes.Time([&] { PutAndWait(*store, NewVariable(id++)); });
                         }};
  const Contender ceiling{
      "appending and syncing a page", [&] {
        for (int i = 0; i < kChanges; ++i) {
          syncs.Time(
              [&] { DIVVY_CHECK(file->Append(std::string(4096, 'x')).ok() && file->Sync().ok()); });
        }
      }};
  const Comparison comparison = Compare(figure, ceiling, kChanges, kRounds);
  const Unit unit{"/s"};
  if (absl::GetFlag(FLAGS_format) == "json") {
    PrintJson("store", comparison, unit);
  } else {
    Print(comparison, unit);
    std::cout << "one in a hundred: " << changes.OneInAHundred() << " a change, "
              << syncs.OneInAHundred() << " a page\n";
  }
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
