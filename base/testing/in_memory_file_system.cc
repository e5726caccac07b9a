#include "base/testing/in_memory_file_system.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

// A file or a directory. The names are in the directories, so a node may have several or none.
struct Node {
  explicit Node(bool is_directory) : is_directory(is_directory) {}

  // Resets this node and everything below it to the synced state. (The recursion ends, because
  // Rename never puts a directory below itself.)
  void Crash() {
    content = synced_content;
    entries = synced_entries;
    for (const auto& [name, node] : entries) node->Crash();
  }

  const bool is_directory;
  std::string content;
  std::string synced_content;
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::map<std::string, std::shared_ptr<Node>> synced_entries;
};

struct Fault {
  FileOperation operation;
  std::string part;
  absl::Status error;
  int times;
};

// Splits a path into its folders and its last name: "a//b/./c" -> a, b, c.
std::vector<std::string> PartsOf(absl::string_view name) {
  return absl::StrSplit(name, '/',
                        [](absl::string_view part) { return !part.empty() && part != "."; });
}

absl::Status NoSuch(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat(name, ": no such file or directory"));
}
absl::Status NoDirectory(absl::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat(name, ": not a directory"));
}

}  // namespace

struct InMemoryFileSystem::State {
  // The place of a name: entry `last` of `folder`. `node` is null if there is no such entry.
  // `folder` is null for a root.
  struct Place {
    std::shared_ptr<Node> folder;
    std::string last;
    std::shared_ptr<Node> node;
  };

  Mutex mu;
  const std::shared_ptr<Node> root DIVVY_GUARDED_BY(mu) = std::make_shared<Node>(true);
  const std::shared_ptr<Node> working_directory DIVVY_GUARDED_BY(mu) = std::make_shared<Node>(true);
  std::list<Fault> faults DIVVY_GUARDED_BY(mu);
  uint64_t free_bytes DIVVY_GUARDED_BY(mu) = ~uint64_t{0};
  int64_t crashes DIVVY_GUARDED_BY(mu) = 0;

  absl::Status TakeFault(FileOperation operation, absl::string_view name) DIVVY_REQUIRES(mu) {
    const auto fault = std::find_if(faults.begin(), faults.end(), [&](const Fault& f) {
      return f.operation == operation && name.find(f.part) != absl::string_view::npos;
    });
    if (fault == faults.end()) return absl::OkStatus();
    const absl::Status error = fault->error;
    if (--fault->times == 0) faults.erase(fault);
    return error;
  }

  // NotFound: a folder in `name` is missing, or `name` is empty. FailedPrecondition: a file is
  // where a folder is needed.
  absl::StatusOr<Place> Resolve(const std::string& name) const DIVVY_REQUIRES(mu) {
    if (name.empty()) return NoSuch("\"\"");
    Place place{nullptr, "", name[0] == '/' ? root : working_directory};
    for (const std::string& part : PartsOf(name)) {
      if (place.node == nullptr) return NoSuch(name);
      if (!place.node->is_directory) return NoDirectory(name);
      const auto entry = place.node->entries.find(part);
      std::shared_ptr<Node> next = entry == place.node->entries.end() ? nullptr : entry->second;
      place = {std::move(place.node), part, std::move(next)};
    }
    return place;
  }

  // As Resolve. NotFound also if the last name does not exist.
  absl::StatusOr<Place> Find(const std::string& name) const DIVVY_REQUIRES(mu) {
    ASSIGN_OR_RETURN(Place place, Resolve(name));
    if (place.node == nullptr) return NoSuch(name);
    return place;
  }

  absl::StatusOr<std::shared_ptr<Node>> FindDirectory(const std::string& name) const
      DIVVY_REQUIRES(mu) {
    ASSIGN_OR_RETURN(const Place place, Find(name));
    if (!place.node->is_directory) return NoDirectory(name);
    return place.node;
  }
};

class InMemoryFileSystem::Reader : public RandomAccessFile {
 public:
  Reader(std::shared_ptr<State> state, std::string name, std::shared_ptr<Node> node)
      : state_(std::move(state)), name_(std::move(name)), node_(std::move(node)) {}

  absl::StatusOr<size_t> ReadAt(uint64_t offset, absl::Span<char> out) const override {
    MutexLock lock(state_->mu);
    RETURN_IF_ERROR(state_->TakeFault(FileOperation::kRead, name_));
    if (node_->is_directory)
      return absl::FailedPreconditionError(
          absl::StrCat("cannot read ", name_, ": it is a directory"));
    if (offset >= node_->content.size()) return 0;
    const size_t length = std::min<uint64_t>(out.size(), node_->content.size() - offset);
    std::copy_n(node_->content.data() + offset, length, out.data());
    return length;
  }

 private:
  const std::shared_ptr<State> state_;
  const std::string name_;
  const std::shared_ptr<Node> node_;
};

class InMemoryFileSystem::Stream : public SequentialFile {
 public:
  explicit Stream(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
  absl::StatusOr<size_t> Read(absl::Span<char> out) override {
    ASSIGN_OR_RETURN(const size_t got, reader_->ReadAt(offset_, out));
    offset_ += got;
    return got;
  }

 private:
  const std::unique_ptr<Reader> reader_;
  uint64_t offset_ = 0;
};

class InMemoryFileSystem::Writer : public WritableFile {
 public:
  Writer(std::shared_ptr<State> state, std::string name, std::shared_ptr<Node> node,
         int64_t crashes)
      : state_(std::move(state)),
        name_(std::move(name)),
        node_(std::move(node)),
        crashes_(crashes) {}

  absl::Status Append(absl::string_view bytes) override {
    MutexLock lock(state_->mu);
    RETURN_IF_ERROR(Prepare(FileOperation::kAppend));
    const size_t fits = std::min<uint64_t>(bytes.size(), state_->free_bytes);
    node_->content.append(bytes.data(), fits);
    state_->free_bytes -= fits;
    if (fits < bytes.size())
      error_ =
          absl::ResourceExhaustedError(absl::StrCat("cannot write ", name_, ": no space left"));
    return error_;
  }

  absl::Status Sync() override {
    MutexLock lock(state_->mu);
    RETURN_IF_ERROR(Prepare(FileOperation::kSync));
    node_->synced_content = node_->content;
    return absl::OkStatus();
  }

  absl::Status Close() override {
    closed_ = true;
    return error_;
  }

 private:
  absl::Status Prepare(FileOperation operation) DIVVY_REQUIRES(state_->mu) {
    if (error_.ok() && closed_)
      return absl::FailedPreconditionError(
          absl::StrCat(name_, " is closed: open it again to write"));
    if (error_.ok() && crashes_ != state_->crashes)
      error_ =
          absl::DataLossError(absl::StrCat(name_, ": the machine has crashed since it was opened"));
    if (error_.ok()) error_ = state_->TakeFault(operation, name_);
    return error_;
  }

  const std::shared_ptr<State> state_;
  const std::string name_;
  const std::shared_ptr<Node> node_;
  const int64_t crashes_;
  absl::Status error_;
  bool closed_ = false;
};

InMemoryFileSystem::InMemoryFileSystem() : state_(std::make_shared<State>()) {}

void InMemoryFileSystem::FailNext(FileOperation operation, std::string part, absl::Status error,
                                  int times) {
  MutexLock lock(state_->mu);
  state_->faults.push_back({operation, std::move(part), std::move(error), times});
}

void InMemoryFileSystem::FailNothingMore() {
  MutexLock lock(state_->mu);
  state_->faults.clear();
}

void InMemoryFileSystem::SetFreeBytes(uint64_t bytes) {
  MutexLock lock(state_->mu);
  state_->free_bytes = bytes;
}

absl::Status InMemoryFileSystem::FlipBit(const std::string& name, uint64_t byte, int bit) {
  MutexLock lock(state_->mu);
  ASSIGN_OR_RETURN(const State::Place place, state_->Find(name));
  std::string& content = place.node->content;
  if (byte >= content.size())
    return absl::OutOfRangeError(
        absl::StrCat(name, " has ", content.size(), " bytes, none at ", byte));
  content[byte] = static_cast<char>(content[byte] ^ (1 << bit));
  return absl::OkStatus();
}

void InMemoryFileSystem::Crash() {
  MutexLock lock(state_->mu);
  ++state_->crashes;
  state_->root->Crash();
  state_->working_directory->Crash();
}

absl::StatusOr<std::unique_ptr<InMemoryFileSystem::Reader>> InMemoryFileSystem::OpenReader(
    const std::string& name) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kOpenForRead, name));
  ASSIGN_OR_RETURN(const State::Place place, state_->Find(name));
  return std::make_unique<Reader>(state_, name, place.node);
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> InMemoryFileSystem::OpenRandomAccess(
    const std::string& name) {
  return OpenReader(name);
}

absl::StatusOr<std::unique_ptr<SequentialFile>> InMemoryFileSystem::OpenSequential(
    const std::string& name) {
  ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, OpenReader(name));
  return std::make_unique<Stream>(std::move(reader));
}

absl::StatusOr<std::unique_ptr<WritableFile>> InMemoryFileSystem::OpenForWrite(
    const std::string& name, WriteMode mode) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kOpenForWrite, name));
  ASSIGN_OR_RETURN(const State::Place place, state_->Resolve(name));
  std::shared_ptr<Node> node = place.node;
  if (node == nullptr) {
    node = place.folder->entries[place.last] = std::make_shared<Node>(false);
  } else if (mode == WriteMode::kCreateNew) {
    return absl::AlreadyExistsError(absl::StrCat("cannot make ", name, ": it exists"));
  } else if (node->is_directory) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", name, ": it is a directory"));
  }
  if (mode == WriteMode::kReplace) node->content.clear();
  return std::make_unique<Writer>(state_, name, std::move(node), state_->crashes);
}

absl::StatusOr<FileInfo> InMemoryFileSystem::Stat(const std::string& name) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kStat, name));
  ASSIGN_OR_RETURN(const State::Place place, state_->Find(name));
  return FileInfo{place.node->content.size(), place.node->is_directory};
}

absl::StatusOr<std::vector<std::string>> InMemoryFileSystem::ListDirectory(
    const std::string& directory) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kList, directory));
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, state_->FindDirectory(directory));
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

absl::Status InMemoryFileSystem::CreateDirectory(const std::string& directory) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kCreateDirectory, directory));
  if (directory.empty()) return NoSuch("\"\"");
  std::shared_ptr<Node> node = directory[0] == '/' ? state_->root : state_->working_directory;
  for (const std::string& part : PartsOf(directory)) {
    std::shared_ptr<Node>& entry = node->entries[part];
    if (entry == nullptr) entry = std::make_shared<Node>(true);
    if (!entry->is_directory) return NoDirectory(directory);
    node = entry;
  }
  return absl::OkStatus();
}

absl::Status InMemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kRename, from));
  ASSIGN_OR_RETURN(const State::Place source, state_->Find(from));
  ASSIGN_OR_RETURN(const State::Place target, state_->Resolve(to));
  if (source.node == target.node) return absl::OkStatus();
  const std::vector<std::string> source_parts = PartsOf(from), target_parts = PartsOf(to);
  const bool same_root = (from[0] == '/') == (to[0] == '/');
  if (same_root && target_parts.size() > source_parts.size() &&
      std::equal(source_parts.begin(), source_parts.end(), target_parts.begin())) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot rename ", from, " to ", to, ": it would stand below itself"));
  }
  const bool in_the_way =
      target.node != nullptr &&
      (target.node->is_directory != source.node->is_directory || !target.node->entries.empty());
  if (in_the_way || source.folder == nullptr || target.folder == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot rename ", from, " to ", to, ": a directory is in the way"));
  }
  source.folder->entries.erase(source.last);
  target.folder->entries[target.last] = source.node;
  return absl::OkStatus();
}

absl::Status InMemoryFileSystem::Remove(const std::string& name) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kRemove, name));
  ASSIGN_OR_RETURN(const State::Place place, state_->Find(name));
  if (place.folder == nullptr || !place.node->entries.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove ", name, ": the directory is not empty"));
  }
  place.folder->entries.erase(place.last);
  return absl::OkStatus();
}

absl::Status InMemoryFileSystem::SyncDirectory(const std::string& directory) {
  MutexLock lock(state_->mu);
  RETURN_IF_ERROR(state_->TakeFault(FileOperation::kSyncDirectory, directory));
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, state_->FindDirectory(directory));
  node->synced_entries = node->entries;
  return absl::OkStatus();
}

}  // namespace divvy
