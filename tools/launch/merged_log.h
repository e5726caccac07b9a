// Merges the output of several tasks into one log.
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
  // A longer line is cut, so a task that never ends its line takes no more memory than this.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // The lines that `bytes` completes, without their line ends.
  std::vector<std::string> Add(absl::string_view bytes);
  // The bytes after the last line end.
  const std::string& rest() const { return rest_; }
  std::string TakeRest() { return std::exchange(rest_, {}); }
  // Drops the part of the rest that a '\r' has overwritten. So a line that is redrawn again and
  // again stays short.
  void ForgetOverwritten();

 private:
  std::string rest_;
};

// The text that a terminal finally shows: without control codes, and without what '\r' has
// overwritten.
std::string WithoutControlCodes(absl::string_view line);

struct MergedLogOptions {
  std::vector<std::string> names;                // of the tasks; methods take their index
  std::string own_name;                          // the name before lines of Say
  bool color = false;                            // a colour for each task
  std::function<void(absl::string_view)> write;  // gets one or more whole lines; must be set
};

// Writes whole lines, "worker 1 | text", and each task's own lines to its file. One task may draw a
// live line on the same terminal: lines of other tasks go above it. Not thread-safe. Blocks as long
// as writing takes.
class MergedLog {
 public:
  explicit MergedLog(MergedLogOptions options);

  // From now on also writes each task's lines to `directory`/<name, with "_" for " ">.log. Existing
  // files are replaced. Errors are those of `files`. If a file cannot be written later, it is given
  // up, and the log says so once.
  absl::Status OpenFiles(FileSystem& files, const std::string& directory);

  void Add(int task, absl::string_view bytes);
  // For the task that draws for itself: its bytes are written as they are, without a name.
  void AddLive(int task, absl::string_view bytes);
  // The task has ended: its unfinished line is written as a line.
  void End(int task);
  void Say(absl::string_view line);

 private:
  struct Source {
    std::string name, prefix;
    LineSplitter splitter;
    std::unique_ptr<WritableFile> file;
    bool draws = false;  // a live line
  };

  std::string PrefixOf(absl::string_view name, int color) const;
  void WriteLines(Source& source, const std::vector<std::string>& lines);
  void WriteAboveLive(const std::string& text);
  void Keep(Source& source, const std::vector<std::string>& lines);

  const MergedLogOptions options_;
  size_t width_ = 0;  // of the longest name
  std::string own_prefix_;
  std::vector<Source> sources_;
  std::string live_;  // the live line as the terminal shows it
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_MERGED_LOG_H_
