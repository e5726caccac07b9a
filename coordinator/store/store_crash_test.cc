// The store on a disk that loses power at every write, fails at every write, is full, or flips a bit of every byte.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/random.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/store_rows.h"
#include "coordinator/store/testing/sqlite_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using Unsynced = SqliteDisk::Unsynced;
using Fault = SqliteDisk::Fault;

// Runs every task at once, on the caller's thread: so a test knows which write follows which.
class InlineExecutor : public Executor {
 public:
  void Post(Task task) override { task(); }
  void PostAfter(absl::Duration, Task task) override { task(); }
  void PostBlocking(std::string, Task task) override { task(); }
};

// All that a store says it holds, to be compared.
struct Content {
  SqlRow job;
  std::vector<SqlRow> variables, checkpoints;
  friend bool operator==(const Content& a, const Content& b) { return a.job == b.job && a.variables == b.variables && a.checkpoints == b.checkpoints; }
};
Content ContentOf(const StoredJob& stored) {
  Content content{Encode(stored.job), {}, {}};
  for (const VariableRow& row : stored.variables) content.variables.push_back(Encode(row));
  for (const CheckpointRow& row : stored.checkpoints) content.checkpoints.push_back(Encode(row));
  return content;
}

JobRow Job(uint64_t epoch) {
  JobRow row;
  row.job = JobId(77);
  row.state = JobRow::State::kRunning;
  row.epoch = Epoch(epoch);
  return row;
}

// With many shards its row does not fit a page.
VariableRow Variable(uint32_t id, VariableRow::State state, int shards = 1) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.name = absl::StrCat("variable", id);
  row.layout.spec.shape = Shape{shards, 4};
  row.layout.ps.assign(shards, 0);
  for (int i = 0; i <= shards; ++i) row.layout.offsets.push_back(i);
  row.state = state;
  return row;
}

CheckpointRow Checkpoint(uint64_t serial, CheckpointRow::State state) { return {{Epoch(2), serial}, state, 100, 1 << 20}; }

// What a coordinator puts in its life, and then some.
std::vector<StoreChange> Script() {
  constexpr auto kCreating = VariableRow::State::kCreating;
  constexpr auto kLive = VariableRow::State::kLive;
  std::vector<StoreChange> script(8);
  script[0].job = Job(1);
  script[1] = {Job(2), {Variable(1, kCreating), Variable(2, kCreating, 3000)}};
  script[2].put_variables = {Variable(1, kLive), Variable(2, kLive, 3000)};
  script[3] = {Job(3), {}, {}, {Checkpoint(1, CheckpointRow::State::kWriting)}};
  script[4] = {{}, {Variable(3, kCreating, 2000)}, {VariableId(2)}, {Checkpoint(1, CheckpointRow::State::kCommitted)}};
  script[5] = {{}, {Variable(1, VariableRow::State::kDeleting)}, {}, {Checkpoint(2, CheckpointRow::State::kCommitted)}, {{Epoch(2), 1}}};
  script[6].deleted_variables = {VariableId(1), VariableId(3)};
  script[7] = {Job(4), {Variable(4, kLive)}};
  return script;
}

class StoreCrashTest : public ::testing::Test {
 protected:
  StoreCrashTest() {
    StoredJob job;
    states_.push_back(ContentOf(job));
    for (const StoreChange& change : script_) {
      Apply(change, job);
      states_.push_back(ContentOf(job));
    }
  }

  absl::StatusOr<std::unique_ptr<Store>> Open() { return SqliteStore::Open(::testing::TempDir(), executor_); }
  std::string file() const { return ::testing::TempDir() + "/divvy.db"; }

  absl::Status Put(Store& store, const StoreChange& change) {
    absl::Status result = absl::UnknownError("not called");
    store.Put(change, [&result](absl::Status status) { result = std::move(status); });
    return result;
  }

  // Puts the script's changes from number `from` on; returns how many in a row were done. None is done after one that was not, unless `full_` says that they
  // may.
  size_t PutAll(Store& store, size_t from) {
    size_t done = from;
    bool failed = false;
    for (size_t i = from; i < script_.size(); ++i) {
      const absl::Status status = Put(store, script_[i]);
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      EXPECT_FALSE(failed && status.ok()) << "change " << i << " was done after one that failed";
      failed |= !status.ok();
      done += status.ok();
    }
    return done;
  }

  // Which of the states in [first, last] the disk holds.
  size_t StateOf(Store& store, size_t first, size_t last) {
    const absl::StatusOr<StoredJob> stored = store.Load();
    EXPECT_TRUE(stored.ok()) << stored.status();
    if (!stored.ok()) return first;
    const auto begin = states_.begin() + first, end = states_.begin() + std::min(last + 1, states_.size());
    const auto found = std::find(begin, end, ContentOf(*stored));
    EXPECT_TRUE(found != end) << "neither what was done nor what was begun: it is none of states " << first << " to " << last;
    return found != end ? found - states_.begin() : first;
  }

  // What a crash left is opened: it holds what was done, or one change more, and takes the rest.
  void CheckRecovery(size_t done) {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const size_t state = StateOf(**store, done, done + 1);
    EXPECT_EQ(PutAll(**store, state), script_.size());
    StateOf(**store, script_.size(), script_.size());
    EXPECT_TRUE((*store)->Scrub().ok());
  }

  // A life that ends when the power does. Returns how many changes were done.
  size_t Live() {
    const auto store = Open();
    return store.ok() ? PutAll(**store, 0) : 0;
  }

  const std::vector<StoreChange> script_ = Script();
  std::vector<Content> states_;  // states_[i]: after the first i changes
  InlineExecutor executor_;
};

TEST_F(StoreCrashTest, APowerCutAtAnyWriteLeavesWhatWasDoneOrOneChangeMore) {
  int64_t points = 0;
  for (const auto& [unsynced, seeds] : {std::pair{Unsynced::kLost, 1}, std::pair{Unsynced::kKept, 1}, std::pair{Unsynced::kSome, 6}}) {
    for (int seed = 0; seed < seeds; ++seed) {
      for (int64_t nth = 1;; ++nth, ++points) {
        SCOPED_TRACE(absl::StrCat("write ", nth, ", unsynced ", static_cast<int>(unsynced), ", seed ", seed));
        SqliteDisk disk;
        Random random(MixSeeds(nth, seed));
        disk.CutPowerAt(nth);
        const size_t done = Live();
        if (!disk.failed()) {
          EXPECT_EQ(done, script_.size());
          break;
        }
        disk.RestorePower(unsynced, random);
        CheckRecovery(done);
        if (HasFailure()) return;
      }
    }
  }
  RecordProperty("points", static_cast<int>(points));
  EXPECT_GT(points, 8 * 60);
}

TEST_F(StoreCrashTest, APowerCutDuringTheRecoveryFromAPowerCutLosesNothingEither) {
  for (int64_t first = 1;; ++first) {
    for (int64_t second = 1;; ++second) {
      SCOPED_TRACE(absl::StrCat("writes ", first, " and then ", second));
      SqliteDisk disk;
      Random random(MixSeeds(first, second));
      disk.CutPowerAt(first);
      const size_t done = Live();
      if (!disk.failed()) return;
      disk.RestorePower(Unsynced::kSome, random);
      disk.CutPowerAt(disk.writes() + second);
      const bool opened = Open().ok();
      const bool again = disk.failed();
      disk.RestorePower(Unsynced::kSome, random);
      EXPECT_TRUE(opened || again);
      CheckRecovery(done);
      if (HasFailure()) return;
      if (!again) break;
    }
  }
}

}  // namespace
}  // namespace divvy
