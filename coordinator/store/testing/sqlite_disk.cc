#include "coordinator/store/testing/sqlite_disk.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace divvy {

struct SqliteDisk::File {
  // A change of the content: bytes at an offset, or a new length.
  struct Change {
    int64_t at = 0;
    std::string bytes;
    bool truncates = false;
  };
  static void Apply(const Change& change, std::string& content) {
    const size_t end = static_cast<size_t>(change.at) + change.bytes.size();
    if (change.truncates || content.size() < end) content.resize(end);
    std::copy(change.bytes.begin(), change.bytes.end(), content.begin() + change.at);
  }
  void Add(Change change) {
    Apply(change, content);
    pending.push_back(std::move(change));
  }

  // The content that readers see.
  std::string content;
  std::string synced;
  // The changes since the last sync. A failed sync drops them, so no later sync makes them durable.
  std::vector<Change> pending;
  // Whether the name of the file has been synced.
  bool named = false;
};

struct SqliteDisk::Vfs : sqlite3_vfs {};

struct SqliteDisk::Handle : sqlite3_file {
  SqliteDisk* disk;
  std::shared_ptr<File> file;
};

// The functions that SQLite calls.
struct SqliteDisk::Methods {
  static Handle& Of(sqlite3_file* file) { return *static_cast<Handle*>(file); }
  static SqliteDisk& Of(sqlite3_vfs* vfs) { return *static_cast<SqliteDisk*>(vfs->pAppData); }

  static int Close(sqlite3_file* file) {
    Of(file).file.reset();
    return SQLITE_OK;
  }

  static int Read(sqlite3_file* file, void* out, int count, sqlite3_int64 at) {
    Handle& handle = Of(file);
    if (handle.disk->off_) return SQLITE_IOERR_READ;
    const std::string& content = handle.file->content;
    const int64_t there = std::clamp<int64_t>(static_cast<int64_t>(content.size()) - at, 0, count);
    if (there > 0) std::memcpy(out, content.data() + at, there);
    std::memset(static_cast<char*>(out) + there, 0, count - there);
    return there == count ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }

  static int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 at) {
    Handle& handle = Of(file);
    const bool grows = at + count > static_cast<int64_t>(handle.file->content.size());
    ++handle.disk->writes_;
    if (handle.disk->Meets(Fault::kWriteFails)) return SQLITE_IOERR_WRITE;
    if (grows && handle.disk->Meets(Fault::kFull)) return SQLITE_FULL;
    handle.file->Add({at, std::string(static_cast<const char*>(bytes), count)});
    return SQLITE_OK;
  }

  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    Handle& handle = Of(file);
    ++handle.disk->writes_;
    if (handle.disk->Meets(Fault::kWriteFails)) return SQLITE_IOERR_TRUNCATE;
    handle.file->Add({size, "", true});
    return SQLITE_OK;
  }

  static int Sync(sqlite3_file* file, int) {
    Handle& handle = Of(file);
    ++handle.disk->writes_;
    const bool fails = handle.disk->Meets(Fault::kSyncFails);
    for (const File::Change& change : handle.file->pending) {
      if (!fails) File::Apply(change, handle.file->synced);
    }
    if (handle.disk->off_) return SQLITE_IOERR_FSYNC;
    handle.file->pending.clear();
    handle.file->named |= !fails;
    return fails ? SQLITE_IOERR_FSYNC : SQLITE_OK;
  }

  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    *size = static_cast<sqlite3_int64>(Of(file).file->content.size());
    return SQLITE_OK;
  }

  static int Lock(sqlite3_file* file, int) {
    return Of(file).disk->held_elsewhere_ ? SQLITE_BUSY : SQLITE_OK;
  }
  static int Unlock(sqlite3_file*, int) { return SQLITE_OK; }
  static int CheckReservedLock(sqlite3_file*, int* reserved) {
    *reserved = 0;
    return SQLITE_OK;
  }
  static int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int SectorSize(sqlite3_file*) { return 512; }
  // SQLite assumes this of every disk.
  static int Characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                  int* out_flags) {
    static const sqlite3_io_methods methods = {1,
                                               Close,
                                               Read,
                                               Write,
                                               Truncate,
                                               Sync,
                                               FileSize,
                                               Lock,
                                               Unlock,
                                               CheckReservedLock,
                                               FileControl,
                                               SectorSize,
                                               Characteristics,
                                               nullptr,
                                               nullptr,
                                               nullptr,
                                               nullptr,
                                               nullptr,
                                               nullptr};
    SqliteDisk& disk = Of(vfs);
    file->pMethods = nullptr;
    if (disk.off_) return SQLITE_CANTOPEN;
    const std::string path = name == nullptr ? "a temporary file" : name;
    auto found = disk.files_.find(path);
    if (found == disk.files_.end()) {
      if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
      found = disk.files_.emplace(path, std::make_shared<File>()).first;
    }
    new (file) Handle{{&methods}, &disk, found->second};
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  }

  static int Delete(sqlite3_vfs* vfs, const char* name, int sync_directory) {
    SqliteDisk& disk = Of(vfs);
    ++disk.writes_;
    if (disk.Meets(Fault::kWriteFails)) return SQLITE_IOERR_DELETE;
    const auto found = disk.files_.find(name);
    if (found == disk.files_.end()) return SQLITE_IOERR_DELETE_NOENT;
    disk.removed_[name] = std::move(found->second);
    disk.files_.erase(found);
    if (sync_directory != 0) disk.removed_.erase(name);
    return SQLITE_OK;
  }

  static int Access(sqlite3_vfs* vfs, const char* name, int, int* exists) {
    *exists = Of(vfs).files_.count(name) > 0 ? 1 : 0;
    return SQLITE_OK;
  }
  static int FullPathname(sqlite3_vfs*, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  }
  static int Randomness(sqlite3_vfs* vfs, int count, char* out) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<char>(Of(vfs).random_.Next());
    return count;
  }
  static int Sleep(sqlite3_vfs*, int microseconds) { return microseconds; }
  static int CurrentTime(sqlite3_vfs*, double* days) {
    *days = 2460000;
    return SQLITE_OK;
  }
  static int GetLastError(sqlite3_vfs*, int, char*) { return 0; }
};

SqliteDisk::SqliteDisk() : vfs_(std::make_unique<Vfs>()) {
  std::memset(vfs_.get(), 0, sizeof(sqlite3_vfs));
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(Handle);
  vfs_->mxPathname = 1024;
  vfs_->zName = "divvy_memory";
  vfs_->pAppData = this;
  vfs_->xOpen = Methods::Open;
  vfs_->xDelete = Methods::Delete;
  vfs_->xAccess = Methods::Access;
  vfs_->xFullPathname = Methods::FullPathname;
  vfs_->xRandomness = Methods::Randomness;
  vfs_->xSleep = Methods::Sleep;
  vfs_->xCurrentTime = Methods::CurrentTime;
  vfs_->xGetLastError = Methods::GetLastError;
  sqlite3_vfs_register(vfs_.get(), 1);
}

SqliteDisk::~SqliteDisk() { sqlite3_vfs_unregister(vfs_.get()); }

bool SqliteDisk::Meets(Fault fault) {
  const bool now = writes_ >= fault_from_ && writes_ < fault_to_;
  if (now && fault_ == Fault::kPowerCut) failed_ = off_ = true;
  if (now && fault_ == fault) failed_ = true;
  return off_ || (now && fault_ == fault);
}

void SqliteDisk::SetFault(Fault fault, int64_t nth, int64_t count) {
  fault_ = fault;
  fault_from_ = nth;
  fault_to_ = nth + count;
  failed_ = false;
}

void SqliteDisk::RestorePower(Unsynced unsynced, Random& random) {
  const auto is_kept = [&] {
    return unsynced == Unsynced::kKept || (unsynced == Unsynced::kSome && random.Chance(0.5));
  };
  for (auto& [name, file] : removed_) {
    if (!is_kept()) files_[name] = std::move(file);
  }
  removed_.clear();
  for (auto at = files_.begin(); at != files_.end();) {
    const bool gone = !at->second->named && !is_kept();
    at = gone ? files_.erase(at) : std::next(at);
  }
  for (auto& [name, file] : files_) {
    std::string after = unsynced == Unsynced::kKept ? file->content : file->synced;
    if (unsynced == Unsynced::kSome) {
      for (File::Change& change : file->pending) {
        // A torn write: only its first bytes are on the disk.
        if (!change.truncates && random.Chance(0.3))
          change.bytes.resize(random.Below(change.bytes.size() + 1));
        if (is_kept()) File::Apply(change, after);
      }
    }
    *file = File{after, after, {}, true};
  }
  SetFault(Fault::kNone, 0, 0);
  off_ = false;
}

std::map<std::string, std::string> SqliteDisk::Files() const {
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : files_) files[name] = file->content;
  return files;
}

void SqliteDisk::SetFiles(const std::map<std::string, std::string>& files) {
  files_.clear();
  removed_.clear();
  for (const auto& [name, content] : files)
    files_[name] = std::make_shared<File>(File{content, content, {}, true});
}

void SqliteDisk::Flip(const std::string& name, size_t byte, int bit) {
  File& file = *files_.at(name);
  for (std::string* content : {&file.content, &file.synced}) {
    if (byte < content->size()) (*content)[byte] = static_cast<char>((*content)[byte] ^ (1 << bit));
  }
}

}  // namespace divvy
