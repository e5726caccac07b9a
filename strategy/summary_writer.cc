#include "strategy/summary_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "formats/event_file.h"
#include "formats/tfrecord.h"

namespace divvy {

absl::Status CheckSummaryRun(absl::string_view run) {
  const auto is_good = [](absl::string_view part) {
    const auto fits = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
    };
    return !part.empty() && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), fits);
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(run, '/', absl::AllowEmpty());
  if (run.empty() || std::all_of(parts.begin(), parts.end(), is_good)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a TensorBoard run cannot be named \"", run,
                   "\": use letters, digits, '_', '.' and '-', joined by '/'"));
}

namespace {

// A "|" or a line end would break the table.
std::string Cell(absl::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell.push_back('\\');
    cell.push_back(c == '\n' ? ' ' : c);
  }
  return cell;
}

double SecondsOf(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

struct SummaryWriter::Run {
  std::string directory;
  std::unique_ptr<WritableFile> file;  // null: not open yet, or failed
};

SummaryWriter::SummaryWriter(std::string directory)
    : SummaryWriter(std::move(directory), FileSystem::Real(), Clock::Real()) {}

SummaryWriter::SummaryWriter(std::string directory, FileSystem& files, const Clock& clock)
    : directory_(std::move(directory)), files_(files), clock_(clock) {}

SummaryWriter::~SummaryWriter() = default;

absl::Status SummaryWriter::Scalars(absl::string_view run, int64_t step,
                                    const std::map<std::string, double>& scalars) {
  Event event;
  event.step = step;
  for (const auto& [name, value] : scalars)
    event.values.push_back({name, static_cast<float>(value)});
  return event.values.empty() ? absl::OkStatus() : Write(run, std::move(event));
}

absl::Status SummaryWriter::Text(absl::string_view run, int64_t step, absl::string_view tag,
                                 absl::string_view markdown) {
  Event event;
  event.step = step;
  event.values.push_back({std::string(tag), std::string(markdown)});
  return Write(run, std::move(event));
}

absl::Status SummaryWriter::Write(absl::string_view name, Event event) {
  RETURN_IF_ERROR(CheckSummaryRun(name));
  std::unique_ptr<Run>& run = runs_[std::string(name)];
  if (run == nullptr)
    run = std::make_unique<Run>(
        Run{name.empty() ? directory_ : absl::StrCat(directory_, "/", name), nullptr});
  if (run->file == nullptr) RETURN_IF_ERROR(Open(*run, event.step));
  event.wall_time = SecondsOf(clock_.WallTime());
  std::string record;
  AppendTfRecord(WriteEvent(event), record);
  const absl::Status written = run->file->Append(record);
  if (!written.ok()) run->file = nullptr;
  return written;
}

// The name has TensorFlow's form: events.out.tfevents.<seconds>.<host>.<process>.<number>.v2.
// TensorBoard reads a run's files in name order, so the number has enough digits for all files of
// one second and process.
absl::Status SummaryWriter::Open(Run& run, int64_t step) {
  RETURN_IF_ERROR(files_.CreateDirectory(run.directory));
  const double now = SecondsOf(clock_.WallTime());
  const std::string stem = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", run.directory,
                                           static_cast<int64_t>(now), HostName(), ProcessId());
  absl::StatusOr<std::unique_ptr<WritableFile>> file = absl::AlreadyExistsError("");
  for (int number = 0; absl::IsAlreadyExists(file.status()); ++number) {
    file = files_.OpenForWrite(absl::StrFormat("%s.%03d.v2", stem, number), WriteMode::kCreateNew);
  }
  RETURN_IF_ERROR(file.status());
  // TensorBoard treats the first of these events in a run as the run's beginning and each later
  // event as a restart, so every file has one.
  Event start;
  start.wall_time = now;
  start.step = step;
  start.session_starts = true;
  std::string head = EventFileHead(now);
  AppendTfRecord(WriteEvent(start), head);
  RETURN_IF_ERROR((*file)->Append(head));
  run.file = *std::move(file);
  return files_.SyncDirectory(run.directory);
}

std::string SummaryWriter::Table(const std::map<std::string, std::string>& texts) {
  std::string table = "| | |\n|---|---|\n";
  for (const auto& [name, text] : texts)
    absl::StrAppend(&table, "| ", Cell(name), " | ", Cell(text), " |\n");
  return table;
}

absl::Status SummaryWriter::Sync() {
  absl::Status status;
  for (auto& [name, run] : runs_) {
    if (run->file == nullptr) continue;
    const absl::Status synced = run->file->Sync();
    if (!synced.ok()) run->file = nullptr;
    status.Update(synced);
  }
  return status;
}

}  // namespace divvy
