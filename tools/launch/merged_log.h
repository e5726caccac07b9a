// What several tasks print, as one log.
#ifndef DIVVY_TOOLS_LAUNCH_MERGED_LOG_H_
#define DIVVY_TOOLS_LAUNCH_MERGED_LOG_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/file_system.h"

namespace divvy {

// Cuts a stream of bytes into lines. Not thread-safe.
class LineSplitter {
 public:
  // A line that grows longer is cut, so that a task that never ends its line takes no more memory
  // than this.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // The lines that `bytes` completes, without their ends.
  std::vector<std::string> Add(absl::string_view bytes);
  // What stands behind the last end of a line.
  const std::string& rest() const { return rest_; }
  std::string TakeRest() { return std::exchange(rest_, {}); }
  // Forgets of the rest what a '\r' has overwritten: a line that is drawn again and again stays
  // short.
  void ForgetOverwritten();

 private:
  std::string rest_;
};

// What a line shows in the end on a terminal: what '\r' has overwritten and control codes are gone.
std::string WithoutControlCodes(absl::string_view line);

struct MergedLogOptions {
  std::vector<std::string> names;                // of the tasks; they are given by index below
  std::string own_name;                          // of who speaks with Say
  bool color = false;                            // one for each task
  std::function<void(absl::string_view)> write;  // whole lines, several at once; not empty
};

// Writes "worker 1 | text", whole lines only, and each task's own lines to its file. One task may
// draw a live line on the same terminal: others' lines go above it. Not thread-safe; blocks as long
// as writing takes.
class MergedLog {
 public:
  explicit MergedLog(MergedLogOptions options);

  // From now on also writes each task's lines to `directory`/<name, with "_" for " ">.log, which it
  // makes anew. Errors are those of `files`. A file that cannot be written later is given up, and
  // this is said once.
  absl::Status OpenFiles(FileSystem& files, const std::string& directory);

  void Add(int task, absl::string_view bytes);
  // As Add, of the task that draws for itself: passed on as it is, without a name.
  void AddLive(int task, absl::string_view bytes);
  // The task has ended: its unfinished line is a line.
  void End(int task);
  void Say(absl::string_view line);

 private:
  struct Source {
    std::string name, prefix;
    LineSplitter splitter;
    std::unique_ptr<WritableFile> file;
    bool draws = false;  // for itself
  };

  std::string PrefixOf(absl::string_view name, int color) const;
  void WriteLines(Source& source, const std::vector<std::string>& lines);
  void WriteAboveLive(const std::string& text);
  void Keep(Source& source, const std::vector<std::string>& lines);

  const MergedLogOptions options_;
  size_t width_ = 0;  // of the longest name
  std::string own_prefix_;
  std::vector<Source> sources_;
  std::string live_;  // the live line as it stands on the terminal
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_MERGED_LOG_H_
