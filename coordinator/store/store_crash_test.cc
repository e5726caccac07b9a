// The store on a disk that loses power at every write, fails at every write, is full, or flips a
// bit of every byte.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/testing/sqlite_disk.h"
#include "coordinator/store/testing/store_script.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Unsynced = SqliteDisk::Unsynced;
using Fault = SqliteDisk::Fault;

class StoreCrashTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Store>> Open() {
    return SqliteStore::Open(::testing::TempDir(), executor_);
  }
  std::string file() const { return ::testing::TempDir() + "/divvy.db"; }

  // Puts the script's changes from number `from` on. Returns the number of the first change that
  // did not succeed. After a failed change no other change may succeed.
  size_t PutAll(Store& store, size_t from) {
    size_t done = from;
    bool failed = false;
    for (size_t i = from; i < script_.size(); ++i) {
      const absl::Status status = PutInline(store, script_[i]);
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      EXPECT_FALSE(failed && status.ok())
          << "change " << i << " succeeded after another one failed";
      failed |= !status.ok();
      done += status.ok();
    }
    return done;
  }

  // The number of the script's state, in [first, last], that the disk holds.
  size_t StateOf(Store& store, size_t first, size_t last) {
    const absl::StatusOr<StoredJob> stored = store.Load();
    EXPECT_TRUE(stored.ok()) << stored.status();
    if (!stored.ok()) return first;
    const auto begin = states_.begin() + first,
               end = states_.begin() + std::min(last + 1, states_.size());
    const auto found = std::find(begin, end, ContentOf(*stored));
    EXPECT_TRUE(found != end) << "the disk holds none of the states that are allowed, which are "
                              << first << " to " << last;
    return found != end ? found - states_.begin() : first;
  }

  // Opens the store after a crash. Checks that it has every acknowledged change, or one more, and
  // that it takes the rest of the script.
  void CheckRecovery(size_t done) {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const size_t state = StateOf(**store, done, done + 1);
    EXPECT_EQ(PutAll(**store, state), script_.size());
    StateOf(**store, script_.size(), script_.size());
    EXPECT_TRUE((*store)->Scrub().ok());
  }

  // Runs the script until the power is cut. Returns how many changes were acknowledged.
  size_t Live() {
    const auto store = Open();
    return store.ok() ? PutAll(**store, 0) : 0;
  }

  const std::vector<StoreChange> script_ = StoreScript();
  std::vector<StoreContent> states_ = StatesOf(script_);
  InlineExecutor executor_;
};

TEST_F(StoreCrashTest, APowerCutAtAnyWriteLeavesWhatWasDoneOrOneChangeMore) {
  int64_t points = 0;
  for (const auto& [unsynced, seeds] :
       {std::pair{Unsynced::kLost, 1}, std::pair{Unsynced::kKept, 1},
        std::pair{Unsynced::kSome, 3}}) {
    for (int seed = 0; seed < seeds; ++seed) {
      for (int64_t nth = 1;; ++nth, ++points) {
        SCOPED_TRACE(absl::StrCat("write ", nth, ", unsynced ", static_cast<int>(unsynced),
                                  ", seed ", seed));
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
  EXPECT_GT(points, 5 * 60);
}

TEST_F(StoreCrashTest, APowerCutDuringTheRecoveryFromAPowerCutLosesNothingEither) {
  for (int64_t first = 1;; first += 3) {
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

TEST_F(StoreCrashTest, TakingOverTheFirstVersionsFileIsAllOrNothing) {
  SqliteDisk disk;
  {
    SqliteDatabase old(file());
    ASSERT_TRUE(old.Open().ok());
    for (const char* sql : {"PRAGMA journal_mode = WAL",
                            "CREATE TABLE job (id INTEGER PRIMARY KEY CHECK (id = 1), job_id "
                            "INTEGER NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, "
                            "lineage INTEGER NOT NULL, id_block_end INTEGER NOT NULL, "
                            "next_variable_id INTEGER NOT NULL, exit_code INTEGER NOT NULL)",
                            "INSERT INTO job VALUES (1, 77, 1, 1, 0, 1, 1, 0)",
                            "PRAGMA application_id = 1146508889", "PRAGMA user_version = 1"}) {
      ASSERT_TRUE(old.Run(sql).ok()) << sql;
    }
  }
  const std::map<std::string, std::string> image = disk.Files();
  for (int64_t nth = 1;; ++nth) {
    SCOPED_TRACE(absl::StrCat("write ", nth));
    Random random(nth);
    disk.SetFiles(image);
    disk.CutPowerAt(disk.writes() + nth);
    const absl::Status opened = Open().status();
    EXPECT_TRUE(opened.ok() || disk.failed()) << opened;
    if (!disk.failed()) break;
    disk.RestorePower(Unsynced::kSome, random);
    // The converted store has the job's row of the script's first change.
    CheckRecovery(1);
    if (HasFailure()) return;
  }
}

// ---- a disk that fails, or is full ----

TEST_F(StoreCrashTest, OnADeviceThatFailsOnceNothingMoreIsWritten) {
  for (const Fault fault : {Fault::kWriteFails, Fault::kSyncFails}) {
    for (int64_t nth = 1, last = 0; last == 0; ++nth) {
      SqliteDisk disk;
      // The device works again after the fault.
      disk.SetFault(fault, nth, 1);
      const size_t done = Live();
      last = disk.writes() < nth;
      if (!disk.failed()) continue;
      SCOPED_TRACE(absl::StrCat("write ", nth, ", fault ", static_cast<int>(fault)));
      Random random(nth);
      disk.RestorePower(Unsynced::kLost, random);
      CheckRecovery(done);
      if (HasFailure()) return;
    }
  }
}

TEST_F(StoreCrashTest, AFailedDeviceIsNamedAndSaidAgainToEveryLaterChange) {
  SqliteDisk disk;
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  disk.SetFault(Fault::kSyncFails, disk.writes() + 1, 100);
  const absl::Status failed = PutInline(**store, script_[0]);
  disk.SetFault(Fault::kNone, 0, 0);
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr(file()), HasSubstr("disk of --state_dir has failed")));
  EXPECT_EQ(PutInline(**store, script_[1]), failed);
}

TEST_F(StoreCrashTest, AFullDiskRefusesChangesWithoutEffectAndTakesOthersWhenThereIsRoom) {
  for (int64_t nth = 1, last = 0; last == 0; ++nth) {
    for (const int64_t count : {1, 20}) {
      SCOPED_TRACE(absl::StrCat("write ", nth, " and ", count, " in all"));
      SqliteDisk disk;
      auto store = Open();
      ASSERT_TRUE(store.ok()) << store.status();
      disk.SetFault(Fault::kFull, disk.writes() + nth, count);
      last = nth + disk.writes();
      StoredJob expected;
      for (const StoreChange& change : script_) {
        const absl::Status status = PutInline(**store, change);
        if (status.ok()) Apply(change, expected);
        EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      }
      last = disk.writes() < last;
      disk.SetFault(Fault::kNone, 0, 0);
      EXPECT_TRUE(ContentOf(*(*store)->Load()) == ContentOf(expected));
      const StoreChange more = {{}, {VariableOf(50, 500)}};
      EXPECT_TRUE(PutInline(**store, more).ok());
      Apply(more, expected);
      store->reset();
      Random random(nth);
      disk.RestorePower(Unsynced::kLost, random);
      store = Open();
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_TRUE(ContentOf(*(*store)->Load()) == ContentOf(expected));
      if (HasFailure()) return;
    }
  }
}

TEST_F(StoreCrashTest, AFullDiskSaysWhichAndWhatToDo) {
  SqliteDisk disk;
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  disk.SetFault(Fault::kFull, disk.writes() + 1, 1000);
  // The change is larger than the log, which cannot grow.
  const absl::Status full = PutInline(**store, {{}, {VariableOf(1, 30'000)}});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr(file()), HasSubstr("Make room on the disk of --state_dir")));
}

TEST_F(StoreCrashTest, AFileThatAnotherProcessHoldsIsRefused) {
  SqliteDisk disk;
  disk.set_held_elsewhere(true);
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("another coordinator holds this state directory"));
}

// ---- flipped bits ----

std::string WithFlip(std::string bytes, size_t at, int bit) {
  bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
  return bytes;
}

// The result of opening a damaged store.
enum class Found { kError, kHarmless };

class FlipTest : public StoreCrashTest {
 protected:
  // Opens the store on `disk`. The result is an error that reports the damage, or undamaged rows
  // and a store that accepts changes.
  Found Look(size_t first, size_t last) {
    const auto store = Open();
    if (!store.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(store.status()) || absl::IsFailedPrecondition(store.status()))
          << store.status();
      EXPECT_THAT(std::string(store.status().message()), HasSubstr(file()));
      return Found::kError;
    }
    StateOf(**store, first, last);
    if (random_.Chance(0.1)) {
      EXPECT_TRUE(PutInline(**store, script_[1]).ok());
      EXPECT_TRUE((*store)->Scrub().ok());
    }
    return Found::kHarmless;
  }

  Random random_{1};
};

TEST_F(FlipTest, ABitFlippedAtAnyByteOfASmallStoresFileIsFoundOrHarmless) {
  SqliteDisk disk;
  states_ = {};
  StoredJob job;
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const StoreChange all = {JobOfEpoch(9),
                             {VariableOf(1, 30), VariableOf(2), VariableOf(3)},
                             {},
                             {CheckpointOf(1, CheckpointRow::State::kCommitted),
                              CheckpointOf(2, CheckpointRow::State::kWriting)},
                             {},
                             StateRowOf(StateRow::Held::kLeasedData, 300, "round 3")};
    ASSERT_TRUE(PutInline(**store, all).ok());
    Apply(all, job);
    states_.push_back(ContentOf(job));
  }
  const std::map<std::string, std::string> image = disk.Files();
  ASSERT_EQ(image.size(), 1u) << "a closed store is one file";
  const std::string& bytes = image.at(file());
  int found = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    const int bit = static_cast<int>(at * 5 % 8);
    SCOPED_TRACE(absl::StrCat("bit ", bit, " of byte ", at, " of ", bytes.size()));
    disk.SetFiles({{file(), WithFlip(bytes, at, bit)}});
    found += Look(0, 0) == Found::kError;
    if (HasFailure()) return;
  }
  EXPECT_EQ(bytes.size(), 6u * 4096) << "a page for the schema and one for each table";
  EXPECT_GT(found, 1300) << "flipped bits are found everywhere except in unused space";
  RecordProperty("found", found);
}

TEST_F(FlipTest, AScrubReadsTheDiskAndAfterDamageNothingMoreIsWritten) {
  SqliteDisk disk;
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(PutInline(**store, script_[0]).ok());
  EXPECT_TRUE((*store)->Scrub().ok());
  const std::string image = disk.Files().at(file());
  // The bit is in the header of the last page.
  disk.Flip(file(), image.size() - 4096 + 5, 0);
  const absl::Status damaged = (*store)->Scrub();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), AllOf(HasSubstr(file()), HasSubstr("move it away")));
  EXPECT_EQ(PutInline(**store, script_[1]), damaged);
}

TEST_F(StoreCrashTest, ALogThatIsLeftWithoutItsFileIsNoPartOfANewStore) {
  SqliteDisk disk;
  Random random(1);
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  PutAll(**store, 0);
  // The files as a killed process leaves them.
  std::map<std::string, std::string> files = disk.Files();
  ASSERT_EQ(files.count(file() + "-wal"), 1u);
  (*store)->Close();
  files.erase(file());
  disk.SetFiles(files);
  const auto fresh = Open();
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(StateOf(**fresh, 0, 0), 0u);
}

TEST_F(FlipTest, ABitFlippedInWhatACrashLeftIsFoundOrTakesBackNothingThatWasDone) {
  int tried = 0, found = 0;
  for (int64_t nth = 1;; ++nth) {
    SqliteDisk disk;
    disk.CutPowerAt(nth);
    const size_t done = Live();
    if (!disk.failed()) break;
    disk.RestorePower(Unsynced::kSome, random_);
    const std::map<std::string, std::string> image = disk.Files();
    for (const auto& [name, bytes] : image) {
      for (size_t at = random_.Below(500); at < bytes.size();
           at += 1 + random_.Below(4000), ++tried) {
        const int bit = static_cast<int>(random_.Below(8));
        SCOPED_TRACE(absl::StrCat("write ", nth, ", bit ", bit, " of byte ", at, " of ",
                                  bytes.size(), " of ", name));
        std::map<std::string, std::string> files = image;
        files[name] = WithFlip(bytes, at, bit);
        disk.SetFiles(files);
        found += Look(done, done + 1) == Found::kError;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(tried, 1000);
  RecordProperty("tried", tried);
  RecordProperty("found", found);
}

}  // namespace
}  // namespace divvy
