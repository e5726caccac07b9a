#include "tools/ctl/top/model.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/number_text.h"
#include "tools/ctl/task_text.h"
#include "wire/text.h"

namespace divvy::top {
namespace {

constexpr absl::string_view kKeys =
    "q quit  p servers first  w workers first  c cluster's order  up, down, 1-9: one task";
constexpr absl::string_view kKeysOfOne = "q quit  Esc all tasks  up, down: another task";

// ---- text of a given width ----------------------------------------------------------------------

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

int WidthOf(absl::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

// The first `width` characters.
std::string Cut(absl::string_view text, int width) {
  size_t end = 0;
  for (int shown = 0; end < text.size(); ++end) {
    if (BeginsCharacter(text[end]) && ++shown > width) break;
  }
  return std::string(text.substr(0, end));
}

std::string Padded(absl::string_view text, int width) {
  return absl::StrCat(Cut(text, width), std::string(std::max(0, width - WidthOf(text)), ' '));
}

// The text in lines of at most `width` columns.
std::vector<Line> Wrapped(absl::string_view text, int width) {
  std::vector<Line> lines;
  do {
    lines.push_back({Cut(text, width)});
    text.remove_prefix(lines.back().text.size());
  } while (!text.empty());
  return lines;
}

// ---- rows ---------------------------------------------------------------------------------------

struct Row {
  const TaskReading* reading;
  // How much it does in a second, if that is known.
  std::optional<double> load;
  // What has been found about it.
  std::vector<std::string> findings;
  // #, task, state, load, memory, and what it waits for.
  std::array<std::string, 6> cells;
};

const TaskReading* ChiefIn(const Reading& reading) {
  for (const TaskReading& task : reading.tasks) {
    if (task.status.ok() && task.task.has_coordinator()) return &task;
  }
  return nullptr;
}

// The coordinator tells the findings of all tasks.
std::vector<std::string> FindingsOf(const TaskReading& of, const Reading& now) {
  std::vector<std::string> texts;
  if (!of.status.ok()) return texts;
  const TaskReading* const chief = ChiefIn(now);
  for (const v1::TaskStatus::Finding& found : (chief ? chief : &of)->task.findings()) {
    if (found.job() == of.task.job() && found.index() == of.task.index())
      texts.push_back(found.text());
  }
  return texts;
}

const TaskReading* SameLifeIn(const Reading* reading, const TaskReading& of) {
  if (reading == nullptr || !of.status.ok()) return nullptr;
  for (const TaskReading& task : reading->tasks) {
    if (task.address == of.address && task.status.ok() &&
        task.task.incarnation() == of.task.incarnation())
      return &task;
  }
  return nullptr;
}

// The number whose growth is the load.
int64_t WorkOf(const v1::TaskStatus& task) {
  switch (task.role_case()) {
    case v1::TaskStatus::kCoordinator:
      return task.coordinator().finished_steps() + task.coordinator().finished_reads();
    case v1::TaskStatus::kPs: return static_cast<int64_t>(task.ps().applied_seq());
    case v1::TaskStatus::kWorker: return task.worker().reported();
    case v1::TaskStatus::ROLE_NOT_SET: break;
  }
  return 0;
}

std::optional<double> LoadOf(const TaskReading& task, const Reading& now, const Reading* before) {
  const TaskReading* const earlier = SameLifeIn(before, task);
  if (earlier == nullptr) return std::nullopt;
  const double seconds = absl::ToDoubleSeconds(now.at - before->at);
  const int64_t work = WorkOf(task.task) - WorkOf(earlier->task);
  // A count falls when a checkpoint is loaded.
  if (seconds <= 0 || work < 0) return std::nullopt;
  return static_cast<double>(work) / seconds;
}

std::string RateText(double rate) {
  return rate < 100 ? absl::StrFormat("%.1f", rate) : CountText(rate);
}

std::string LoadText(const Row& row) {
  if (!row.load) return "-";
  return absl::StrCat(RateText(*row.load), row.reading->task.role_case() == v1::TaskStatus::kPs
                                               ? " commits/s"
                                               : " steps/s");
}

std::string MemoryText(const v1::TaskStatus& task) {
  if (task.has_ps()) return BytesText(task.ps().memory_bytes());
  int64_t bytes = 0;
  for (const v1::WorkerStatus::Device& device : task.worker().devices())
    bytes += device.memory_bytes();
  return bytes == 0 ? "-" : BytesText(bytes);
}

std::string WaitText(const v1::TaskStatus::Wait& wait) {
  return absl::StrCat(
      absl::FormatDuration(absl::Trunc(absl::Nanoseconds(wait.since_ns()), absl::Seconds(1))), ": ",
      wait.text());
}

// What has been found about it; else what it waits for longest; else what it does.
std::string DoesText(const Row& row) {
  const v1::TaskStatus& task = row.reading->task;
  if (!row.findings.empty()) return absl::StrCat("! ", absl::StrJoin(row.findings, "; "));
  if (task.waits_size() > 0) return WaitText(task.waits(0));
  if (!task.has_worker() || task.worker().live_step() == 0) return "";
  return absl::StrCat(task.worker().committing() ? "commits " : "runs ", LiveStep(task.worker()));
}

std::string NameOf(const TaskReading& reading) {
  return reading.status.ok() ? TaskName(reading.task) : reading.name;
}

Row RowOf(const TaskReading& reading, const Reading& now, const Reading* before) {
  Row row{&reading, LoadOf(reading, now, before), FindingsOf(reading, now), {}};
  if (reading.status.ok())
    row.cells = {"",
                 NameOf(reading),
                 reading.task.state(),
                 LoadText(row),
                 MemoryText(reading.task),
                 DoesText(row)};
  else
    row.cells = {"", NameOf(reading), "no answer", "-", "-", std::string(reading.status.message())};
  for (std::string& cell : row.cells) cell = wire::Escaped(cell);
  return row;
}

bool IsOf(const Row& row, absl::string_view role) {
  return absl::StartsWith(NameOf(*row.reading), role);
}

std::vector<Row> SortedRows(const Reading& now, const Reading* before, Order order) {
  std::vector<Row> rows;
  for (const TaskReading& task : now.tasks) rows.push_back(RowOf(task, now, before));
  const absl::string_view first = order == Order::kServersFirst ? "ps" : "worker";
  if (order != Order::kCluster) {
    const auto rank = [first](const Row& row) {
      const bool is_first = IsOf(row, first);
      return std::make_pair(!is_first, is_first ? -row.load.value_or(-1) : 0.0);
    };
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const Row& a, const Row& b) { return rank(a) < rank(b); });
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].cells[0] = absl::StrCat(i + 1);
  return rows;
}

int IndexOf(const std::vector<std::string>& rows, const std::string& address) {
  const auto found = std::find(rows.begin(), rows.end(), address);
  return found == rows.end() ? 0 : static_cast<int>(found - rows.begin());
}

std::vector<std::string> AddressesOf(const std::vector<Row>& rows) {
  std::vector<std::string> addresses;
  for (const Row& row : rows) addresses.push_back(row.reading->address);
  return addresses;
}

// ---- the table ----------------------------------------------------------------------------------

constexpr std::array<absl::string_view, 6> kHeadings = {"#",    "TASK",   "STATE",
                                                        "LOAD", "MEMORY", "WAITS FOR, OR DOES"};
constexpr size_t kLoad = 3, kMemory = 4, kDoes = 5;
constexpr int kGap = 2, kLeastDoes = 12;

// The widths of the columns; 0: the column is left out. The memory goes first, then the load.
std::array<int, 6> WidthsFor(const std::vector<Row>& rows, int width) {
  std::array<int, 6> widths;
  for (size_t column = 0; column < kDoes; ++column) {
    widths[column] = WidthOf(kHeadings[column]);
    for (const Row& row : rows)
      widths[column] = std::max(widths[column], WidthOf(row.cells[column]));
  }
  const auto rest = [&] {
    int left = width;
    for (size_t column = 0; column < kDoes; ++column)
      left -= widths[column] == 0 ? 0 : widths[column] + kGap;
    return left;
  };
  for (const size_t dropped : {kMemory, kLoad}) {
    if (rest() < kLeastDoes) widths[dropped] = 0;
  }
  widths[kDoes] = std::max(0, rest());
  return widths;
}

template <typename Cells>
std::string Joined(const Cells& cells, const std::array<int, 6>& widths, int width) {
  std::string line;
  for (size_t column = 0; column < widths.size(); ++column) {
    if (widths[column] == 0) continue;
    const std::string cell = Padded(cells[column], widths[column]);
    absl::StrAppend(&line, line.empty() ? "" : std::string(kGap, ' '), cell);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return Cut(line, width);
}

// ---- the job ------------------------------------------------------------------------------------

std::string CheckpointText(const v1::CoordinatorStatus& job) {
  if (job.last_checkpoint().empty()) return "no checkpoint yet";
  return absl::StrCat(job.last_checkpoint(), " holds ",
                      CountText(static_cast<double>(job.durable_steps())), " steps, ",
                      CountText(static_cast<double>(job.finished_steps() - job.durable_steps())),
                      " are in none");
}

std::vector<Line> HeadOf(const Reading& now, const Reading* before) {
  const TaskReading* const chief = ChiefIn(now);
  if (chief == nullptr) {
    const auto answer = std::count_if(now.tasks.begin(), now.tasks.end(),
                                      [](const TaskReading& task) { return task.status.ok(); });
    return {
        {absl::StrCat("no coordinator answers; ", answer, " of ", now.tasks.size(), " tasks do"),
         Line::Kind::kAlarm},
        {""}};
  }
  const v1::CoordinatorStatus& job = chief->task.coordinator();
  const std::optional<double> rate = LoadOf(*chief, now, before);
  return {
      {absl::StrCat("job ", absl::StrFormat("%016x", chief->task.job_id()), "  epoch ",
                    chief->task.epoch(), "  ", CountText(static_cast<double>(job.finished_steps())),
                    " steps", rate ? absl::StrCat(" (", RateText(*rate), "/s)") : "", "  ",
                    job.queued(), " queued  ", job.in_flight(), " in flight")},
      {wire::Escaped(absl::StrCat("ps ", job.ps_up(), "/", job.num_ps(), "  workers ",
                                  job.workers_up(), "/", job.num_workers(), "  ",
                                  CheckpointText(job),
                                  job.has_work() ? absl::StrCat("  ", job.work().text()) : ""))}};
}

std::vector<Line> TableOf(const std::vector<Row>& rows, const View& view, int selected, int room) {
  const std::array<int, 6> widths = WidthsFor(rows, view.width);
  std::vector<Line> lines = {{Joined(kHeadings, widths, view.width), Line::Kind::kHeading}};
  const int num_rows = static_cast<int>(rows.size());
  const int shown = std::clamp(room - 1, 0, num_rows);
  const int first = std::clamp(selected - shown + 1, 0, num_rows - shown);
  for (int i = first; i < first + shown; ++i) {
    const bool is_selected = view.height > 0 && i == selected;
    const bool is_alarm = !rows[i].reading->status.ok() || !rows[i].findings.empty();
    lines.push_back({Joined(rows[i].cells, widths, view.width), is_selected ? Line::Kind::kSelected
                                                                : is_alarm  ? Line::Kind::kAlarm
                                                                            : Line::Kind::kPlain});
  }
  return lines;
}

std::vector<Line> DetailsOf(const Row& row, int width) {
  const TaskReading& reading = *row.reading;
  const v1::TaskStatus& task = reading.task;
  std::vector<std::string> texts = {absl::StrCat("address  ", reading.address),
                                    absl::StrCat("state    ", row.cells[2])};
  if (reading.status.ok()) {
    texts.push_back(absl::StrCat("load     ", row.cells[kLoad]));
    texts.push_back(absl::StrCat("does     ", Figures(task)));
    texts.push_back(absl::StrCat("build    ", task.build(), ", epoch ", task.epoch()));
    for (const std::string& table : TableLines(task.coordinator())) texts.push_back(table);
    for (const v1::PsStatus::TablePart& table : task.ps().tables())
      texts.push_back(absl::StrCat("table ", table.name(), ": ", table.stats().rows(), " rows, ",
                                   BytesText(table.stats().bytes())));
    for (const std::string& finding : row.findings)
      texts.push_back(absl::StrCat("found    ", finding));
    for (const v1::TaskStatus::Wait& wait : task.waits())
      texts.push_back(absl::StrCat("waits    ", WaitText(wait)));
  } else {
    texts.push_back(std::string(reading.status.message()));
  }
  std::vector<Line> lines = {{Cut(row.cells[1], width), Line::Kind::kHeading}};
  for (const std::string& text : texts) {
    for (Line& line : Wrapped(wire::Escaped(text), width)) lines.push_back(std::move(line));
  }
  return lines;
}

// The length of the whole sequence of a key at the beginning, to its final byte (ECMA-48, 5.4); 0:
// there is none.
size_t LengthOfSequence(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\x1bO")) return bytes.size() >= 3 ? 3 : 0;
  if (!absl::StartsWith(bytes, "\x1b[")) return 0;
  for (size_t i = 2; i < bytes.size(); ++i) {
    if (bytes[i] >= 0x40 && bytes[i] <= 0x7e) return i + 1;
  }
  return 0;
}

void Append(std::vector<Line> from, std::vector<Line>& to) {
  for (Line& line : from) to.push_back(std::move(line));
}

}  // namespace

std::vector<Line> Draw(const Reading& now, const Reading* before, const View& view) {
  const std::vector<Row> rows = SortedRows(now, before, view.order);
  const int selected = IndexOf(AddressesOf(rows), view.selected);
  const bool is_detailed = view.is_detailed && !rows.empty();
  std::vector<Line> lines = HeadOf(now, before);
  for (Line& line : lines) line.text = Cut(line.text, view.width);
  const int room = view.height == 0 ? static_cast<int>(rows.size()) + 1
                                    : view.height - static_cast<int>(lines.size()) - 1;
  Append(is_detailed ? DetailsOf(rows[selected], view.width) : TableOf(rows, view, selected, room),
         lines);
  if (view.height == 0) return lines;
  // Of a low terminal the last line has the keys.
  lines.resize(std::min(lines.size(), static_cast<size_t>(view.height - 1)));
  lines.push_back({Cut(is_detailed ? kKeysOfOne : kKeys, view.width), Line::Kind::kHeading});
  return lines;
}

std::vector<std::string> RowsOf(const Reading& now, const Reading* before, Order order) {
  return AddressesOf(SortedRows(now, before, order));
}

std::vector<Key> KeysIn(absl::string_view bytes) {
  std::vector<Key> keys;
  while (!bytes.empty()) {
    if (const size_t length = LengthOfSequence(bytes); length > 0) {
      // Arrows, in both of a terminal's modes. Other keys, such as F5 ("\x1b[15~"), are ignored.
      const char last = bytes[length - 1];
      if (last == 'A') keys.push_back({Key::Kind::kUp});
      if (last == 'B') keys.push_back({Key::Kind::kDown});
      if (last == 'D') keys.push_back({Key::Kind::kBack});
      if (last == 'C') keys.push_back({Key::Kind::kShow});
      bytes.remove_prefix(length);
      continue;
    }
    const char c = bytes[0];
    bytes.remove_prefix(1);
    if (c == 'q' || c == 'Q') keys.push_back({Key::Kind::kQuit});
    if (c == 'p') keys.push_back({Key::Kind::kServers});
    if (c == 'w') keys.push_back({Key::Kind::kWorkers});
    if (c == 'c') keys.push_back({Key::Kind::kCluster});
    if (c == 'k') keys.push_back({Key::Kind::kUp});
    if (c == 'j') keys.push_back({Key::Kind::kDown});
    if (c == '\r' || c == '\n') keys.push_back({Key::Kind::kShow});
    if (c == '\x1b' || c == '0') keys.push_back({Key::Kind::kBack});
    if (c >= '1' && c <= '9') keys.push_back({Key::Kind::kRow, c - '0'});
  }
  return keys;
}

View Pressed(View view, const Key& key, const std::vector<std::string>& rows) {
  const int num_rows = static_cast<int>(rows.size());
  const auto select = [&](int row) {
    if (num_rows > 0) view.selected = rows[std::clamp(row, 0, num_rows - 1)];
  };
  const int selected = IndexOf(rows, view.selected);
  switch (key.kind) {
    case Key::Kind::kServers: view.order = Order::kServersFirst; break;
    case Key::Kind::kWorkers: view.order = Order::kWorkersFirst; break;
    case Key::Kind::kCluster: view.order = Order::kCluster; break;
    case Key::Kind::kUp: select(selected - 1); break;
    case Key::Kind::kDown: select(selected + 1); break;
    case Key::Kind::kShow:
      select(selected);
      view.is_detailed = true;
      break;
    case Key::Kind::kBack: view.is_detailed = false; break;
    case Key::Kind::kRow:
      if (key.row > num_rows) break;
      select(key.row - 1);
      view.is_detailed = true;
      break;
    case Key::Kind::kQuit: break;
  }
  return view;
}

}  // namespace divvy::top
