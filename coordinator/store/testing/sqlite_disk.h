// The disk under SQLite, in memory: it can be full, break, lose power at any write, and flip bits.
//
//   SqliteDisk disk;
//   disk.CutPowerAt(7);
//   ... open a store, put, close: from the 7th write on everything fails ...
//   Random random(1);
//   disk.RestorePower(SqliteDisk::Unsynced::kSome, random);
//   ... open it again ...
#ifndef DIVVY_COORDINATOR_STORE_TESTING_SQLITE_DISK_H_
#define DIVVY_COORDINATOR_STORE_TESTING_SQLITE_DISK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/random.h"

namespace divvy {

// While one lives, every database that this process opens is on it (a VFS of SQLite's, the default
// one). Not thread-safe; one at a time.
//
// As a real disk does, it keeps what was synced; what was written since may be lost, whole or in
// part, and in any order. A new file's name is kept from its first sync on; a file that was removed
// without a sync of its directory may come back.
class SqliteDisk {
 public:
  // What is there after a power cut of what was not synced: nothing, all (as after SIGKILL, where
  // the operating system lives on), or of each write none, a part or all.
  enum class Unsynced { kLost, kKept, kSome };
  enum class Fault { kNone, kPowerCut, kWriteFails, kSyncFails, kFull };

  SqliteDisk();
  ~SqliteDisk();  // REQUIRES: no database is open on it
  SqliteDisk(const SqliteDisk&) = delete;

  // Writes, truncations, syncs and removals so far. The next one is number writes() + 1.
  int64_t writes() const { return writes_; }

  // From the `nth` write on nothing reaches the disk, and everything, reading too, fails.
  void CutPowerAt(int64_t nth) { SetFault(Fault::kPowerCut, nth, 1); }
  // `fault` is met by those of the `count` writes from the `nth` on that it concerns: kSyncFails by
  // syncs, which lose what they should have kept; kFull by writes that make a file longer;
  // kWriteFails by writes.
  void SetFault(Fault fault, int64_t nth, int64_t count);
  // Whether the fault has been met.
  bool failed() const { return failed_; }
  // Ends every fault. REQUIRES: no database is open.
  void RestorePower(Unsynced unsynced, Random& random);
  // Another process has every file locked.
  void set_held_elsewhere(bool held) { held_elsewhere_ = held; }

  // The files that are there, by path, as a reader sees them.
  std::map<std::string, std::string> Files() const;
  // Makes these the files there are, all of them synced.
  void SetFiles(const std::map<std::string, std::string>& files);
  // Inverts a bit on the disk, under the hands of whoever has the file open. REQUIRES: the file has
  // such a byte.
  void Flip(const std::string& name, size_t byte, int bit);

 private:
  struct File;
  struct Handle;
  struct Methods;
  struct Vfs;
  bool Meets(Fault fault);

  std::map<std::string, std::shared_ptr<File>> files_;    // those that are there
  std::map<std::string, std::shared_ptr<File>> removed_;  // and may come back
  std::unique_ptr<Vfs> vfs_;
  Random random_{1};  // SQLite's
  int64_t writes_ = 0, fault_from_ = 0, fault_to_ = 0;
  Fault fault_ = Fault::kNone;
  bool failed_ = false, off_ = false, held_elsewhere_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_TESTING_SQLITE_DISK_H_
