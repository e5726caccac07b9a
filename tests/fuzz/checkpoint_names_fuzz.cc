// A directory of checkpoints with any file names, one per line of the input. The first line is the
// content of the file "checkpoint". A name means one checkpoint, the newest come first, and the
// removal of old checkpoints removes only files that Divvy writes.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/testing/fuzz.h"
#include "base/testing/in_memory_file_system.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/checkpoint/open_checkpoint.h"

namespace divvy {
namespace {

constexpr char kDirectory[] = "/c";

// Whether Divvy may have written the file: its name begins with "ckpt-EPOCH-SERIAL.".
bool IsOwn(absl::string_view file) {
  return CheckpointOf(file.substr(0, file.find('.'))).has_value();
}

std::set<std::string> FilesIn(FileSystem& files) {
  const auto names = files.ListDirectory(kDirectory);
  fuzz::Require(names.ok(), "the directory cannot be listed");
  return {names->begin(), names->end()};
}

void CheckNames(FileSystem& files, const std::set<std::string>& names) {
  size_t indices = 0;
  for (const std::string& name : names) {
    indices += absl::EndsWith(name, ".index") ? 1 : 0;
    if (const auto id = CheckpointOf(name))
      fuzz::Require(id->name() == name, "two names mean the same checkpoint");
  }
  const auto prefixes = CheckpointPrefixes(files, kDirectory);
  fuzz::Require(prefixes.ok() ? prefixes->size() == indices : indices == 0,
                "an index of a checkpoint is not listed");
  const auto own = ListCheckpoints(files, kDirectory);
  fuzz::Require(own.ok() && own->size() <= indices, "more checkpoints than indices");
  for (size_t i = 0; i < own->size(); ++i) {
    const std::string name = (*own)[i].name();
    fuzz::Require(names.count(name + ".index") == 1, "a checkpoint without an index is listed");
    fuzz::Require(prefixes->at(i) == absl::StrCat(kDirectory, "/", name),
                  "the newest do not come first");
  }
}

void CheckCollecting(FileSystem& files, const std::set<std::string>& names) {
  const auto catalog = OpenBundleCatalog(files, kDirectory);
  fuzz::Require(catalog.ok(), "the catalog does not open");
  (void)(*catalog)->Newest(std::nullopt);
  std::vector<CheckpointId> removed;
  const auto own = ListCheckpoints(files, kDirectory);
  const CheckpointId below = own.ok() && !own->empty() ? own->front() : CheckpointId{Epoch(1), 1};
  (void)(*catalog)->Collect(2, CheckpointId{Epoch(1), 1}, below, removed);
  const std::set<std::string> left = FilesIn(files);
  for (const std::string& name : names) {
    if (left.count(name) == 0) fuzz::Require(IsOwn(name), "a file that is not Divvy's was removed");
  }
}

void Try(absl::string_view bytes) {
  static const LogSink silent = SetLogSink([](const LogEntry&) {});
  InMemoryFileSystem files;
  fuzz::Require(files.CreateDirectory(kDirectory).ok(), "no directory");
  const std::vector<absl::string_view> lines = absl::StrSplit(bytes, '\n');
  for (const absl::string_view line : lines) {
    if (line.empty() || line == "." || line == ".." || absl::StrContains(line, '/') ||
        absl::StrContains(line, '\0'))
      continue;
    fuzz::Require(files.ReplaceFile(absl::StrCat(kDirectory, "/", line), line).ok(),
                  "a file cannot be written");
  }
  (void)files.ReplaceFile(absl::StrCat(kDirectory, "/checkpoint"),
                          bytes.substr(0, bytes.find('\n')));
  const std::set<std::string> names = FilesIn(files);
  CheckNames(files, names);
  (void)OpenCheckpoint(files, kDirectory);
  CheckCollecting(files, names);
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
