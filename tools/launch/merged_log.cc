#include "tools/launch/merged_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr absl::string_view kEraseLine = "\r\x1b[2K";
// Cyan, yellow, ...: the terminal's own colours, then the bright ones.
constexpr int kColors[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
constexpr int kNoColor = 0;

// The length of the control sequence (ECMA-48: ESC [ parameters final) at the start of `text`; 0 if
// there is none.
size_t ControlSequenceLength(absl::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  size_t end = 2;
  while (end < text.size() && (text[end] < 0x40 || text[end] > 0x7e)) ++end;
  return std::min(end + 1, text.size());
}

}  // namespace

std::vector<std::string> LineSplitter::Add(absl::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t room = kMaxLineBytes - rest_.size();
    const size_t taken = std::min({end, room, bytes.size()});
    rest_.append(bytes.data(), taken);
    const bool ended = taken == end;
    bytes.remove_prefix(taken + (ended ? 1 : 0));
    if (ended || rest_.size() == kMaxLineBytes) lines.push_back(TakeRest());
  }
  return lines;
}

void LineSplitter::ForgetOverwritten() {
  if (rest_.size() < 2) return;
  // A '\r' at the very end has overwritten nothing yet.
  const size_t overwritten = rest_.rfind('\r', rest_.size() - 2);
  if (overwritten != std::string::npos) rest_.erase(0, overwritten);
}

std::string WithoutControlCodes(absl::string_view line) {
  while (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  if (const size_t overwritten = line.rfind('\r'); overwritten != line.npos)
    line.remove_prefix(overwritten + 1);
  std::string plain;
  while (!line.empty()) {
    const size_t length = ControlSequenceLength(line);
    if (length == 0) plain.push_back(line[0]);
    line.remove_prefix(std::max<size_t>(length, 1));
  }
  return plain;
}

MergedLog::MergedLog(MergedLogOptions options)
    : options_(std::move(options)), width_(options_.own_name.size()) {
  for (const std::string& name : options_.names) width_ = std::max(width_, name.size());
  own_prefix_ = PrefixOf(options_.own_name, kNoColor);
  for (size_t i = 0; i < options_.names.size(); ++i) {
    sources_.push_back({options_.names[i],
                        PrefixOf(options_.names[i], kColors[i % std::size(kColors)]),
                        {},
                        nullptr,
                        false});
  }
}

std::string MergedLog::PrefixOf(absl::string_view name, int color) const {
  const std::string text = absl::StrCat(name, std::string(width_ - name.size(), ' '), " | ");
  return options_.color && color != kNoColor ? absl::StrCat("\x1b[", color, "m", text, "\x1b[0m")
                                             : text;
}

absl::Status MergedLog::OpenFiles(FileSystem& files, const std::string& directory) {
  RETURN_IF_ERROR(files.CreateDirectory(directory));
  for (Source& source : sources_) {
    const std::string path =
        absl::StrCat(directory, "/", absl::StrReplaceAll(source.name, {{" ", "_"}}), ".log");
    ASSIGN_OR_RETURN(source.file, files.OpenForWrite(path, WriteMode::kReplace));
  }
  return absl::OkStatus();
}

void MergedLog::Add(int task, absl::string_view bytes) {
  Source& source = sources_[task];
  WriteLines(source, source.splitter.Add(bytes));
}

void MergedLog::AddLive(int task, absl::string_view bytes) {
  Source& source = sources_[task];
  source.draws = true;
  std::vector<std::string> lines = source.splitter.Add(bytes);
  for (std::string& line : lines) line = WithoutControlCodes(line);
  source.splitter.ForgetOverwritten();
  options_.write(bytes);
  live_ = source.splitter.rest();
  Keep(source, lines);
}

void MergedLog::End(int task) {
  Source& source = sources_[task];
  const std::string rest = source.splitter.TakeRest();
  if (rest.empty()) return;
  if (!source.draws) return WriteLines(source, {rest});
  live_.clear();
  options_.write("\n");
  Keep(source, {WithoutControlCodes(rest)});
}

void MergedLog::Say(absl::string_view line) {
  WriteAboveLive(absl::StrCat(own_prefix_, line, "\n"));
}

void MergedLog::WriteLines(Source& source, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, source.prefix, line, "\n");
  WriteAboveLive(text);
  Keep(source, lines);
}

void MergedLog::WriteAboveLive(const std::string& text) {
  options_.write(live_.empty() ? text : absl::StrCat(kEraseLine, text, live_));
}

void MergedLog::Keep(Source& source, const std::vector<std::string>& lines) {
  if (source.file == nullptr || lines.empty()) return;
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  const absl::Status written = source.file->Append(text);
  if (written.ok()) return;
  source.file = nullptr;
  Say(absl::StrCat("the log of ", source.name, " ends here: ", written.message()));
}

}  // namespace divvy
