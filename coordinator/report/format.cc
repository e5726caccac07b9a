#include "coordinator/report/format.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/number_text.h"
#include "variables/table_parts.h"

namespace divvy {
namespace {

// A wait that is longer than this is shown on the line.
constexpr absl::Duration kWorthSaying = absl::Seconds(5);
// So is work that takes longer than this, with its percentage.
constexpr absl::Duration kLongWork = absl::Seconds(1);
constexpr int kBarWidth = 14;

std::string Bar(double fraction) {
  const int full = std::clamp(static_cast<int>(fraction * kBarWidth), 0, kBarWidth);
  std::string bar(full, '=');
  if (full < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  return absl::StrCat("[", bar, "]");
}

// "19/30", or "19" if the total is not known.
std::string Of(int64_t done, std::optional<int64_t> total) {
  return total ? absl::StrCat(CountText(done), "/", CountText(*total)) : CountText(done);
}

std::string ShardList(const VariableLayout& variable) {
  const std::string shards =
      absl::StrCat(variable.num_shards(), variable.num_shards() == 1 ? " shard: " : " shards: ");
  constexpr size_t kShown = 8;
  const std::vector<int> shown(variable.ps.begin(),
                               variable.ps.begin() + std::min(variable.ps.size(), kShown));
  return absl::StrCat(shards, "ps ", absl::StrJoin(shown, ", "),
                      variable.ps.size() > kShown ? ", ..." : "");
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

// The rows of all tables, and those tables that are full.
void AddTables(const CoordinatorSnapshot& now, std::vector<std::string>& parts) {
  if (now.tables.empty()) return;
  TablePartStats all;
  for (const CoordinatorSnapshot::Table& table : now.tables) all += table.stats;
  parts.push_back(absl::StrCat("table rows ", CountText(static_cast<double>(all.rows))));
  for (const CoordinatorSnapshot::Table& table : now.tables) {
    if (table.stats.refused > 0)
      parts.push_back(absl::StrCat(
          "table ", table.name, " is full: ", CountText(static_cast<double>(table.stats.refused)),
          " keys refused"));
  }
}

// What is worth saying of long work and of waits.
std::vector<std::string> WorkAndWaits(const CoordinatorSnapshot& now) {
  std::vector<std::string> parts;
  if (now.work && IsWorthSaying(*now.work)) parts.push_back(FormatWork(*now.work));
  for (const CoordinatorSnapshot::Wait& wait : now.waits) {
    if (wait.since >= kWorthSaying)
      parts.push_back(absl::StrCat("waiting for ", wait.text, " since ",
                                   absl::ToInt64Seconds(wait.since), " s"));
  }
  return parts;
}

}  // namespace

std::string FormatLength(absl::Duration length) {
  const double seconds = absl::ToDoubleSeconds(length);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string FormatMetrics(const std::map<std::string, double>& metrics) {
  std::vector<std::string> parts;
  const auto loss = metrics.find("loss");
  if (loss != metrics.end()) parts.push_back(absl::StrCat("loss ", NumberText(loss->second)));
  for (const auto& [name, value] : metrics) {
    if (name != "loss") parts.push_back(absl::StrCat(name, " ", NumberText(value)));
  }
  return absl::StrJoin(parts, "  ");
}

bool IsWorthSaying(const CoordinatorSnapshot::Work& work) { return work.since >= kLongWork; }

std::string FormatWork(const CoordinatorSnapshot::Work& work) {
  using Kind = CoordinatorSnapshot::Work::Kind;
  const char* const name = work.kind == Kind::kRestore      ? "restore"
                           : work.kind == Kind::kCheckpoint ? "checkpoint"
                                                            : "replay";
  if (work.total <= 0) return name;
  const double fraction =
      std::clamp(static_cast<double>(work.done) / static_cast<double>(work.total), 0.0, 1.0);
  // Rounded down, so that 100 % is all of it.
  const std::string percent = absl::StrFormat("%d %%", static_cast<int>(fraction * 100));
  const std::string total = work.kind == Kind::kReplay
                                ? CountText(static_cast<double>(work.total)) + " steps"
                                : BytesText(work.total);
  std::string text = absl::StrCat(name, " ", percent, " of ", total);
  if (fraction > 0 && fraction < 1)
    absl::StrAppend(&text, ", ", FormatLength(work.since * ((1 - fraction) / fraction)), " left");
  return text;
}

std::string FormatProgress(const ProgressLine& line, bool bar) {
  const CoordinatorSnapshot& now = line.snapshot;
  const std::vector<std::string> unusual = WorkAndWaits(now);
  std::vector<std::string> parts;
  if (now.progress) {
    const auto& progress = *now.progress;
    parts.push_back(progress.read_only
                        ? "validation"
                        : absl::StrCat("epoch ", Of(progress.pass + 1, line.epochs)));
    if (progress.total && *progress.total > 0) {
      const double fraction =
          std::min(1.0, static_cast<double>(progress.done) / static_cast<double>(*progress.total));
      if (bar && unusual.empty()) parts.push_back(Bar(fraction));
      parts.push_back(absl::StrFormat("%2.0f %%", fraction * 100));
    }
    parts.push_back(absl::StrCat("step ", Of(progress.done, progress.total)));
  } else {
    parts.push_back(absl::StrCat("step ", CountText(static_cast<double>(now.finished_steps))));
  }
  parts.insert(parts.end(), unusual.begin(), unusual.end());
  if (line.examples_per_second > 0)
    parts.push_back(absl::StrCat(CountText(line.examples_per_second), " examples/s"));
  if (!line.metrics.empty()) parts.push_back(FormatMetrics(line.metrics));
  if (line.max_staleness > 0) parts.push_back(absl::StrCat("staleness ", line.max_staleness));
  AddTables(now, parts);
  parts.push_back(absl::StrCat("ps ", now.ps_up, "/", now.num_ps));
  parts.push_back(absl::StrCat("workers ", now.workers_up, "/", now.num_workers));
  if (line.left) parts.push_back(absl::StrCat(FormatLength(*line.left), " left"));
  return absl::StrJoin(parts, "  ");
}

std::map<std::string, double> TablePoints(const CoordinatorSnapshot& snapshot) {
  std::map<std::string, double> points;
  for (const CoordinatorSnapshot::Table& table : snapshot.tables) {
    const auto add = [&](absl::string_view what, int64_t number) {
      points[absl::StrCat("tables/", table.name, "/", what)] = static_cast<double>(number);
    };
    add("rows", table.stats.rows);
    add("waiting", table.stats.waiting);
    add("bytes", table.stats.bytes);
    add("admitted", table.stats.admitted);
    add("refused", table.stats.refused);
    add("evicted", table.stats.evicted);
  }
  return points;
}

std::string FormatVariables(const Layout& layout) {
  size_t name_width = 0, type_width = 0, bytes_width = 0;
  struct Row {
    std::string name, type, bytes, shards;
  };
  std::vector<Row> rows;
  for (const auto& [id, variable] : layout.variables()) {
    Row row{variable.spec.name,
            absl::StrCat(DTypeName(variable.spec.dtype), " ", variable.spec.shape.ToString()),
            BytesText(variable.value_bytes()), ShardList(variable)};
    if (variable.spec.table) {
      row.type = absl::StrCat("dynamic table, width ", variable.spec.shape.dim(1));
      row.bytes = "";
    }
    if (variable.slot_bytes() > 0)
      absl::StrAppend(&row.bytes, " + ", BytesText(variable.slot_bytes()), " slots");
    name_width = std::max(name_width, row.name.size());
    type_width = std::max(type_width, row.type.size());
    bytes_width = std::max(bytes_width, row.bytes.size());
    rows.push_back(std::move(row));
  }
  std::string table;
  for (const Row& row : rows) {
    absl::StrAppend(&table, "  ", Padded(row.name, name_width), "  ", Padded(row.type, type_width),
                    "  ", Padded(row.bytes, bytes_width), "  ", row.shards, "\n");
  }
  return table;
}

}  // namespace divvy
