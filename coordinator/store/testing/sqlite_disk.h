// A disk for SQLite, in memory. It can be full, break, lose power at any write, and flip bits.
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

// While an object of this class lives, every database that this process opens is on it (it is
// SQLite's default VFS). Not thread-safe; only one at a time.
//
// It behaves as a real disk does. Synced data is kept. Data written since the last sync may be
// lost, in whole or in part, and in any order. The name of a new file is kept from its first sync
// on. A file that was removed without a sync of its directory may come back.
class SqliteDisk {
 public:
  // Which unsynced data is on the disk after a power cut: none; all, as after SIGKILL, which the
  // operating system survives; or for each write none, a part or all.
  enum class Unsynced { kLost, kKept, kSome };
  enum class Fault { kNone, kPowerCut, kWriteFails, kSyncFails, kFull };

  SqliteDisk();
  // REQUIRES: no database is open on it.
  ~SqliteDisk();
  SqliteDisk(const SqliteDisk&) = delete;

  // The number of writes, truncations, syncs and removals so far. The next one has the number
  // writes() + 1.
  int64_t writes() const { return writes_; }

  // From the `nth` write on nothing reaches the disk, and every operation fails, reads included.
  void CutPowerAt(int64_t nth) { SetFault(Fault::kPowerCut, nth, 1); }
  // The operations with the numbers nth to nth + count - 1 fail if they are of the kind that
  // `fault` hits. kSyncFails hits syncs, which also lose the data that they should make durable.
  // kFull hits writes that make a file longer. kWriteFails hits all writes.
  void SetFault(Fault fault, int64_t nth, int64_t count);
  // Whether a fault has hit an operation.
  bool failed() const { return failed_; }
  // Ends every fault, and decides what is left of unsynced data. REQUIRES: no database is open.
  void RestorePower(Unsynced unsynced, Random& random);
  // Whether another process has locked every file.
  void set_held_elsewhere(bool held) { held_elsewhere_ = held; }

  // The content of the existing files, by path, as a reader sees it.
  std::map<std::string, std::string> Files() const;
  // Replaces all files. The new ones are synced.
  void SetFiles(const std::map<std::string, std::string>& files);
  // Inverts a bit on the disk, even while the file is open. REQUIRES: the file has such a byte.
  void Flip(const std::string& name, size_t byte, int bit);

 private:
  struct File;
  struct Handle;
  struct Methods;
  struct Vfs;
  bool Meets(Fault fault);

  // The existing files.
  std::map<std::string, std::shared_ptr<File>> files_;
  // Removed files that may come back.
  std::map<std::string, std::shared_ptr<File>> removed_;
  std::unique_ptr<Vfs> vfs_;
  // The random numbers that SQLite gets.
  Random random_{1};
  int64_t writes_ = 0, fault_from_ = 0, fault_to_ = 0;
  Fault fault_ = Fault::kNone;
  bool failed_ = false, off_ = false, held_elsewhere_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_TESTING_SQLITE_DISK_H_
